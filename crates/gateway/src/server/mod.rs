//! Sockets and connections: how they come in, and how they go.
//!
//! Our own accept loop, because the bounds live here: how many connections, how long a client may take
//! to send its headers, and how a stop is carried out.
//!
//! ```text
//! running --drain--> no new connections, /ready says 503, running answers finish
//!                    within the drain time-out --> ended
//!         --now----> everything is dropped -------> ended
//! ```

mod connection;
mod lanes;
mod packing;
mod rewound;
mod seldom;
mod stop;
mod underway;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::error::GatewayError;
use crate::gateway::Gateway;
use crate::routes::router;
pub(crate) use connection::Connection;
pub(crate) use lanes::current_lane;
use lanes::{Deal, Lanes};
pub use stop::StopSwitch;

/// Connections that the kernel holds for us while all slots are taken.
const BACKLOG: u32 = 1024;

/// Pause after a failed accept: it fails for want of file descriptors, which only time brings back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bounds of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Most connections at a time; more wait in the kernel's queue.
    pub max_connections: usize,
    /// How long a client may take to send the headers of a request, and to think between two.
    pub header_timeout: Duration,
    /// How long running answers may take to finish after a stop.
    pub drain_timeout: Duration,
    /// Threads that carry connections, each on its own; 0 leaves them to the runtime that the server runs in.
    pub lanes: usize,
    /// Threads of each lane for work that takes long.
    pub blocking_threads: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            max_connections: 4096,
            header_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            lanes: 0,
            blocking_threads: 2,
        }
    }
}

/// A gateway that listens.
pub struct Server {
    listener: TcpListener,
    lanes: Lanes,
    address: SocketAddr,
    gateway: Arc<Gateway>,
    config: ServerConfig,
}

impl Server {
    /// Takes the address. Connections wait until [`Server::run`].
    pub fn bind(config: ServerConfig, gateway: Arc<Gateway>) -> Result<Self, GatewayError> {
        let address = config.listen;
        let listener = listen(address).map_err(|source| GatewayError::Bind { address, source })?;
        let address = listener.local_addr().unwrap_or(address);
        let lanes = Lanes::open(config.lanes, config.blocking_threads);
        Ok(Self {
            lanes: lanes.map_err(GatewayError::Threads)?,
            listener,
            address,
            gateway,
            config,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is pulled and everything has ended.
    pub async fn run(self, stop: StopSwitch) {
        let connections = TaskTracker::new();
        let carry = Carry {
            deal: self.lanes.deal(),
            connections: connections.clone(),
            stop: stop.clone(),
        };
        let mut accepted_before = 0;
        let router = router(Arc::clone(&self.gateway));
        let slots = Arc::new(Semaphore::new(self.config.max_connections));
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.draining() => break,
                accepted = accept(&self.listener, &slots) => accepted,
            };
            let Some((stream, slot)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let held = (self.gateway.metrics.connection(), slot);
            let header_timeout = self.config.header_timeout;
            match Connection::new(stream, router.clone(), header_timeout) {
                Ok(connection) => carry.put(accepted_before, connection, held),
                Err(error) => tracing::warn!(%error, "a connection was lost"),
            }
            accepted_before += 1;
        }
        drop(self.listener);
        self.gateway.start_draining();
        connections.close();
        let finished = async {
            if let Some(worker) = self.gateway.worker() {
                worker.drain().await;
            }
            connections.wait().await;
        };
        tokio::select! {
            () = stop.now() => tracing::info!("stopping at once"),
            drained = tokio::time::timeout(self.config.drain_timeout, finished) => match drained {
                Ok(()) => tracing::info!("all answers are finished"),
                Err(_) => tracing::warn!("the drain time-out is over; dropping what still runs"),
            },
        }
        stop.stop_now();
        if let Some(worker) = self.gateway.worker() {
            worker.stop();
        }
        connections.wait().await;
    }
}

/// Puts connections where they belong.
#[derive(Clone)]
struct Carry {
    deal: Arc<Deal>,
    connections: TaskTracker,
    stop: StopSwitch,
}

impl Carry {
    /// Has a connection served in its lane, and in other ones when it belongs there; what is `held` for it lives as long.
    fn put(&self, number: usize, connection: Connection, held: impl Send + 'static) {
        let carry = self.clone();
        let lane = carry.deal.lane_of(number);
        let served = async move {
            let goes = || carry.deal.lane_of(number) != lane;
            let served = connection.serve(carry.stop.clone(), goes).await;
            match served {
                Some(connection) => carry.put(number, connection, held),
                None => drop(held),
            }
        };
        match lane.and_then(|lane| self.deal.handle(lane)) {
            Some(lane) => drop(self.connections.spawn_on(served, lane)),
            None => drop(self.connections.spawn(served)),
        }
    }
}

pub(crate) fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // A restart must not wait for the old connections' time-outs.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A connection and its slot, or nothing when accepting failed.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, slot)),
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const REQUEST: &[u8] = b"GET /lane HTTP/1.1\r\nhost: here\r\n\r\n";

    #[tokio::test]
    async fn a_connection_follows_the_number_of_lanes_in_use() {
        let lanes = Lanes::open(2, 1).unwrap();
        let carry = Carry {
            deal: lanes.deal(),
            connections: TaskTracker::new(),
            stop: StopSwitch::new(),
        };
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let router = Router::new().route("/lane", get(|| async { current_lane().to_string() }));
        let connection = Connection::new(stream, router, Duration::from_secs(5)).unwrap();
        carry.put(1, connection, ());
        let mut seen = Vec::new();
        let since = std::time::Instant::now();
        // Lanes without work to speak of are all opened again from time to time, so it may take some tries.
        while seen != ["2", "1", "2"] {
            assert!(since.elapsed() < Duration::from_secs(20), "{seen:?}");
            carry.deal.use_lanes(if seen.len() == 1 { 1 } else { 2 });
            client.write_all(REQUEST).await.unwrap();
            let mut answer = [0; 512];
            let length = client.read(&mut answer).await.unwrap();
            let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
            let lane = answer[answer.len() - 1..].to_owned();
            if seen.last() != Some(&lane) {
                seen.push(lane);
            }
        }
    }
}
