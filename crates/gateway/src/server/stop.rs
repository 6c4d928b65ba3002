//! The switch that ends a server, in two steps.

use tokio_util::sync::CancellationToken;

/// Pulled once it drains, pulled twice it ends at once. Clones are the same switch.
#[derive(Debug, Clone, Default)]
pub struct StopSwitch {
    drain: CancellationToken,
    now: CancellationToken,
}

impl StopSwitch {
    /// A switch that has not been pulled.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first pull drains, the second ends at once.
    pub fn pull(&self) {
        if self.drain.is_cancelled() {
            self.now.cancel();
        } else {
            self.drain.cancel();
        }
    }

    /// Ends at once.
    pub fn stop_now(&self) {
        self.drain.cancel();
        self.now.cancel();
    }

    /// Completes when it was pulled.
    pub async fn draining(&self) {
        self.drain.cancelled().await;
    }

    /// Completes when everything is to end at once.
    pub async fn now(&self) {
        self.now.cancelled().await;
    }
}
