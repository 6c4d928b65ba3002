//! In place of the engine in a binary without one.

use config::Config;
use gateway::Gateway;
use gateway::kv_events::KvEventsPublisher;
use gateway::tenants::Tenants;

use super::error::CommandError;
use crate::banner::{Banner, Role};
use crate::cli::ServeOptions;

/// There is none.
pub(super) enum Own {}

pub(super) fn start(_: &ServeOptions, _: &Config, _: Role) -> Result<Own, CommandError> {
    Err(CommandError::NoEngine)
}

impl Own {
    pub(super) async fn gateway(
        self,
        _: Tenants,
        _: &mut Banner,
    ) -> Result<(Gateway, Option<KvEventsPublisher>), CommandError> {
        match self {}
    }
}
