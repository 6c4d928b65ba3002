//! A publisher of KV events as vLLM has it, on the sockets of the ZeroMQ library.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use protocol::kv_events::{
    END_OF_REPLAY, KvEvent, KvEventBatch, encode_batch, parse_sequence_frame, sequence_frame,
};
use tokio::task::JoinHandle;
use zeromq::{RouterSocket, Socket, SocketRecv, SocketSend, XPubSocket, ZmqMessage};

type Kept = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// Publishes, keeps, and replays what it keeps.
pub(crate) struct Publisher {
    socket: XPubSocket,
    pub(crate) events_port: u16,
    pub(crate) replay_port: u16,
    kept: Kept,
    next: u64,
    replay: JoinHandle<()>,
}

fn port_of(endpoint: &zeromq::Endpoint) -> u16 {
    endpoint
        .to_string()
        .rsplit_once(':')
        .unwrap()
        .1
        .parse()
        .unwrap()
}

impl Publisher {
    pub(crate) async fn start() -> Self {
        Self::start_on(0, 0).await
    }

    pub(crate) async fn start_on(events_port: u16, replay_port: u16) -> Self {
        let mut socket = XPubSocket::new();
        let events = socket
            .bind(&format!("tcp://127.0.0.1:{events_port}"))
            .await
            .unwrap();
        let mut router = RouterSocket::new();
        let replay = router
            .bind(&format!("tcp://127.0.0.1:{replay_port}"))
            .await
            .unwrap();
        let kept = Kept::default();
        Self {
            socket,
            events_port: port_of(&events),
            replay_port: port_of(&replay),
            replay: tokio::spawn(answer_replays(router, Arc::clone(&kept))),
            kept,
            next: 0,
        }
    }

    /// Waits until somebody has subscribed.
    pub(crate) async fn subscribed(&mut self) {
        self.socket.recv().await.unwrap();
    }

    /// Publishes and keeps.
    pub(crate) async fn publish(&mut self, payload: Vec<u8>) {
        let number = self.keep(payload.clone());
        self.send(number, payload).await;
    }

    /// Keeps without publishing: a message that got lost on its way.
    pub(crate) fn keep(&mut self, payload: Vec<u8>) -> u64 {
        let number = self.skip();
        self.kept.lock().unwrap().push((number, payload));
        number
    }

    /// Neither keeps nor publishes: a message that is gone for good.
    pub(crate) fn skip(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Forgets the oldest messages.
    pub(crate) fn forget_before(&mut self, number: u64) {
        self.kept
            .lock()
            .unwrap()
            .retain(|(kept, _)| *kept >= number);
    }

    pub(crate) async fn send(&mut self, number: u64, payload: Vec<u8>) {
        let mut message = ZmqMessage::from("kv");
        message.push_back(Bytes::copy_from_slice(&sequence_frame(number)));
        message.push_back(payload.into());
        self.socket.send(message).await.unwrap();
    }

    /// Dies, closing all connections.
    pub(crate) async fn kill(self) -> (u16, u16) {
        self.replay.abort();
        let _ = self.replay.await;
        assert!(self.socket.close().await.is_empty());
        (self.events_port, self.replay_port)
    }
}

async fn answer_replays(mut router: RouterSocket, kept: Kept) {
    loop {
        let Ok(request) = router.recv().await else {
            continue;
        };
        let frames = request.into_vec();
        let [peer, _empty, start] = &frames[..] else {
            continue;
        };
        let start = parse_sequence_frame(start).unwrap();
        let mut answers = kept.lock().unwrap().clone();
        answers.retain(|(number, _)| *number >= start);
        answers.push((END_OF_REPLAY, Vec::new()));
        for (number, payload) in answers {
            let topic: &[u8] = if number == END_OF_REPLAY { b"" } else { b"kv" };
            let mut message = ZmqMessage::from(peer.clone());
            message.push_back(Bytes::new());
            message.push_back(Bytes::copy_from_slice(topic));
            message.push_back(Bytes::copy_from_slice(&sequence_frame(number)));
            message.push_back(payload.into());
            if router.send(message).await.is_err() {
                break;
            }
        }
    }
}

/// A batch that removes this block, in today's encoding.
pub(crate) fn batch(block: u64) -> Vec<u8> {
    encode_batch(&KvEventBatch {
        timestamp: block as f64,
        events: vec![KvEvent::Removed {
            block_hashes: vec![block],
            medium: protocol::kv_events::Medium::Resident,
        }],
        data_parallel_rank: None,
    })
}

/// The same in the encoding before vLLM 0.24.
pub(crate) fn old_batch(block: u64) -> Vec<u8> {
    rmp_serde::to_vec(&(block as f64, (("BlockRemoved", [block], "GPU"),))).unwrap()
}
