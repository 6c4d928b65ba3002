//! `forespeak engine`: the same engine alone, as a worker.
//!
//! A worker is a server like any other; a gateway elsewhere speaks to it over HTTP, watches its
//! `/metrics` and listens to its KV events. Only what it says of itself differs.

use super::error::CommandError;
use super::serve::run;
use crate::banner::Role;
use crate::cli::ServeOptions;

pub(crate) fn engine(options: Box<ServeOptions>) -> Result<(), CommandError> {
    if options.fleet.config.is_some() || !options.fleet.worker.is_empty() {
        return Err(CommandError::WorkersOfAWorker);
    }
    if options.shared.shared.is_some() {
        return Err(CommandError::SharingOfAWorker);
    }
    run(options, Role::Worker)
}
