//! The front door: listener, stages of a request, routes.
//!
//! `pipeline.rs` tells the way of a request from top to bottom. Around it stand the [`Server`] (sockets,
//! connections, draining), the routes that need no pipeline (health, models, metrics) and the publisher
//! of KV events. Whatever generates is behind the [`Worker`] trait; whatever turns text into tokens is
//! behind [`Codec`]. In front of a fleet of such servers, [`placement`] says which of them gets a request.

pub mod admin;
mod answer;
mod catalog;
mod convert;
mod error;
mod gateway;
mod http_io;
pub mod kv_events;
mod metrics;
mod model_codec;
mod near;
mod pipeline;
pub mod placement;
mod recall;
mod record;
mod relay;
mod route;
mod routes;
mod server;
mod sharing;
mod stages;
pub mod tenants;
mod traffic;
mod worker;

pub use catalog::{Catalog, FleetModel};
pub use error::GatewayError;
pub use gateway::{Gateway, ServedModel};
pub use model_codec::ModelCodec;
pub use recall::{PriceList, Prices};
pub use relay::{RelayTimeouts, RetryLimits};
pub use server::{Server, ServerConfig, StopSwitch};
pub use traffic::Traffic;
pub use worker::{Codec, JsonChat, Load, Worker};
