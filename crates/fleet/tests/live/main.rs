//! The fleet on real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod kv_events;
mod support;
mod workers;
