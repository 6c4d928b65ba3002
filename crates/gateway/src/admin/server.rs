//! The listener of the admin API.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::routes::router;
use super::{AdminConfig, Desk, Operations};
use crate::error::GatewayError;
use crate::gateway::Gateway;
use crate::server::{Connection, StopSwitch, listen};

/// Operators and their scripts are few.
const MAX_CONNECTIONS: usize = 64;

/// How long one may take to send the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An admin API that listens.
pub struct AdminServer {
    listener: TcpListener,
    address: SocketAddr,
    desk: Desk,
}

impl AdminServer {
    /// Takes the address. Connections wait until [`AdminServer::run`].
    ///
    /// # Errors
    /// If the address is taken, or would be open to others without a key.
    pub fn bind(
        config: AdminConfig,
        gateway: Arc<Gateway>,
        operations: Arc<dyn Operations>,
    ) -> Result<Self, GatewayError> {
        let address = config.listen;
        if !address.ip().is_loopback() && config.key.is_none() {
            return Err(GatewayError::OpenAdmin { address });
        }
        let listener = listen(address).map_err(|source| GatewayError::Bind { address, source })?;
        let address = listener.local_addr().unwrap_or(address);
        let desk = Desk {
            gateway,
            operations,
            key: config.key,
            changing: Arc::default(),
        };
        Ok(Self {
            listener,
            address,
            desk,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until everything is to end: also while the gateway drains, when operators want to look.
    pub async fn run(self, stop: StopSwitch) {
        let router = router(self.desk);
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let connections = TaskTracker::new();
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            let accepted = tokio::select! {
                () = stop.now() => break,
                accepted = self.listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Ok(connection) = Connection::new(stream, router.clone(), HEADER_TIMEOUT) else {
                continue;
            };
            let stop = stop.clone();
            connections.spawn(async move {
                connection.serve(stop, || false).await;
                drop(slot);
            });
        }
        connections.close();
        connections.wait().await;
    }
}
