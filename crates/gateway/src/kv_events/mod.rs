//! Publishing the KV cache's changes over ZMQ, as vLLM does: a PUB socket for the changes, and a ROUTER
//! socket on which a listener that missed some asks for them again.
//!
//! Every message is `[topic, sequence (u64, big endian), payload]`. A replay is asked for with
//! `["", first sequence]` and answered with `["", topic, sequence, payload]` for each message that is
//! still kept, then `["", "", 2^64 - 1, ""]`.

mod publish;
mod replay;
mod replay_buffer;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use zeromq::{PubSocket, RouterSocket, Socket};

use crate::error::GatewayError;
use replay_buffer::ReplayBuffer;

/// Where and under which name changes are published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEventsConfig {
    /// Of the PUB socket, such as `tcp://127.0.0.1:5557`; port 0 takes a free one.
    pub endpoint: String,
    /// Of the ROUTER socket; `None` offers no replay.
    pub replay_endpoint: Option<String>,
    /// The first frame of every message, by which listeners subscribe.
    pub topic: String,
}

/// Running sockets. Dropping it closes them.
pub struct KvEventsPublisher {
    endpoint: String,
    replay_endpoint: Option<String>,
    tasks: Vec<JoinHandle<()>>,
}

impl KvEventsPublisher {
    /// Binds the sockets and publishes what comes out of `changes`.
    pub async fn start(
        config: KvEventsConfig,
        changes: mpsc::Receiver<engine::KvEventBatch>,
    ) -> Result<Self, GatewayError> {
        let buffer = SharedBuffer::default();
        let topic = config.topic.into_bytes().into();

        let mut publisher = PubSocket::new();
        let endpoint = bind(&mut publisher, &config.endpoint).await?;
        let mut tasks = vec![tokio::spawn(publish::publish(
            publisher,
            Clone::clone(&topic),
            changes,
            buffer.clone(),
        ))];

        let mut replay_endpoint = None;
        if let Some(wanted) = &config.replay_endpoint {
            let mut router = RouterSocket::new();
            replay_endpoint = Some(bind(&mut router, wanted).await?);
            tasks.push(tokio::spawn(replay::serve_replays(router, topic, buffer)));
        }
        Ok(Self {
            endpoint,
            replay_endpoint,
            tasks,
        })
    }

    /// Where changes are published.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Where replays are asked for.
    pub fn replay_endpoint(&self) -> Option<&str> {
        self.replay_endpoint.as_deref()
    }
}

impl Drop for KvEventsPublisher {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn bind(socket: &mut impl Socket, endpoint: &str) -> Result<String, GatewayError> {
    // ZMQ's own word for "all addresses", which the library does not know.
    let address = endpoint.replace("tcp://*:", "tcp://0.0.0.0:");
    socket
        .bind(&address)
        .await
        .map(|bound| bound.to_string())
        .map_err(|error| GatewayError::KvEvents {
            endpoint: endpoint.to_owned(),
            reason: error.to_string(),
        })
}

/// The buffer between the task that publishes and the one that replays; held only to copy handles.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<ReplayBuffer>>);

impl SharedBuffer {
    fn with<T>(&self, work: impl FnOnce(&mut ReplayBuffer) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
