//! KV events over ZMQ, as vLLM publishes them: PUB for the changes, ROUTER for replays.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use protocol::kv_events::{
    END_OF_REPLAY, KvEventBatch, encode_batch, parse_sequence_frame, sequence_frame,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use super::{EventFault, Faults, MockConfig};

/// Messages kept for replay (vLLM's default).
const MAX_KEPT: usize = 10_000;

/// The first frame of every message.
const TOPIC: &str = "kv-events";

type Kept = Arc<Mutex<VecDeque<(u64, Bytes)>>>;

/// Running sockets.
pub(super) struct Publisher {
    pub(super) events_port: u16,
    pub(super) replay_port: u16,
    batches: mpsc::UnboundedSender<KvEventBatch>,
    tasks: Vec<JoinHandle<()>>,
}

impl Publisher {
    pub(super) async fn start(
        config: &MockConfig,
        faults: watch::Receiver<Faults>,
    ) -> io::Result<Self> {
        let mut publisher = PubSocket::new();
        let events_port = bind(&mut publisher, config.events_port).await?;
        let mut router = RouterSocket::new();
        let replay_port = bind(&mut router, config.replay_port).await?;
        let kept = Kept::default();
        let (batches, inbox) = mpsc::unbounded_channel();
        let tasks = vec![
            tokio::spawn(publish(publisher, inbox, faults, Arc::clone(&kept))),
            tokio::spawn(replay(router, kept)),
        ];
        Ok(Self {
            events_port,
            replay_port,
            batches,
            tasks,
        })
    }

    pub(super) fn sender(&self) -> mpsc::UnboundedSender<KvEventBatch> {
        self.batches.clone()
    }

    /// Closes the sockets and waits until they are.
    pub(super) async fn stop(mut self) {
        for task in &mut self.tasks {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn bind(socket: &mut impl Socket, port: u16) -> io::Result<u16> {
    let bound = socket
        .bind(&format!("tcp://127.0.0.1:{port}"))
        .await
        .map_err(io::Error::other)?
        .to_string();
    bound
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok())
        .ok_or_else(|| io::Error::other(format!("{bound} has no port")))
}

async fn publish(
    mut socket: PubSocket,
    mut inbox: mpsc::UnboundedReceiver<KvEventBatch>,
    faults: watch::Receiver<Faults>,
    kept: Kept,
) {
    let mut sequence = 0;
    while let Some(batch) = inbox.recv().await {
        let fault = faults.borrow().events;
        let payload = Bytes::from(encode_batch(&batch));
        if fault != EventFault::Forgotten {
            keep(&kept, sequence, payload.clone());
        }
        if fault == EventFault::None {
            let mut message = ZmqMessage::from(TOPIC);
            message.push_back(Bytes::copy_from_slice(&sequence_frame(sequence)));
            message.push_back(payload);
            // A listener that has gone is not the publisher's concern.
            let _ = socket.send(message).await;
        }
        sequence += 1;
    }
}

fn keep(kept: &Kept, sequence: u64, payload: Bytes) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.push_back((sequence, payload));
    if kept.len() > MAX_KEPT {
        kept.pop_front();
    }
}

async fn replay(mut socket: RouterSocket, kept: Kept) {
    while let Ok(request) = socket.recv().await {
        // [identity, "", first sequence]
        let [identity, _, first] = &request.into_vec()[..] else {
            continue;
        };
        let Some(first) = parse_sequence_frame(first) else {
            continue;
        };
        let mut answers: Vec<(Bytes, u64, Bytes)> = {
            let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let from = kept.partition_point(|(sequence, _)| *sequence < first);
            kept.range(from..)
                .map(|(sequence, payload)| (Bytes::from(TOPIC), *sequence, payload.clone()))
                .collect()
        };
        answers.push((Bytes::new(), END_OF_REPLAY, Bytes::new()));
        for (topic, sequence, payload) in answers {
            let mut message = ZmqMessage::from(identity.clone());
            message.push_back(Bytes::new());
            message.push_back(topic);
            message.push_back(Bytes::copy_from_slice(&sequence_frame(sequence)));
            message.push_back(payload);
            if socket.send(message).await.is_err() {
                break;
            }
        }
    }
}
