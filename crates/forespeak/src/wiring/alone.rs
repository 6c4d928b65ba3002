//! What operators find at a worker: its engine, and nothing behind it.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use config::Config;
use gateway::admin::Operations;
use gateway::placement::Pool;
use serde_json::Value;

/// A worker stands in front of nobody, and what it was told by flags cannot be read again.
pub(crate) struct Alone {
    config: Config,
}

impl Alone {
    pub(crate) fn new(config: Config) -> Self {
        Self { config }
    }
}

impl Operations for Alone {
    fn pools(&self) -> Vec<Arc<Pool>> {
        Vec::new()
    }

    fn config(&self) -> Value {
        serde_json::to_value(&self.config).unwrap_or_default()
    }

    fn reload(&self) -> Pin<Box<dyn Future<Output = Result<Vec<String>, String>> + Send + '_>> {
        let why = "a worker has no configuration file; start it again with other flags";
        Box::pin(ready(Err(why.to_owned())))
    }
}
