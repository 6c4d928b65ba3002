//! From what was said to what runs.
//!
//! ```text
//! tenants   sections `tenants` and `limits`      -> gateway::tenants::Tenants
//! pools     a section of `pools` and its model   -> a running placement::Pool
//! learn     workers                              -> the names of their models
//! cache     section `cache`                      -> the response cache and who may use it how
//! sharing   section `shared`                     -> what gateways side by side tell each other
//! live      all of it, running, and replaced part by part at a reload
//! alone     nothing of it: a worker was told everything by flags
//! ```

mod alone;
mod cache;
mod learn;
mod live;
mod pools;
mod sharing;
mod tenants;

pub(crate) use alone::Alone;
pub(crate) use cache::{open_cache, prices};
pub(crate) use learn::{Learnt, ask_for_models};
pub(crate) use live::Live;
pub(crate) use pools::{codec_of, model_of, pool_config, workers_now};
pub(crate) use sharing::sharing;
pub(crate) use tenants::{salt_secret, tenants};
