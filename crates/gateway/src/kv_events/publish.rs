//! Changes out of the engine, messages into the socket. A listener that is too slow loses messages,
//! which it sees by the gap in the sequence; the engine never waits.

use bytes::Bytes;
use protocol::kv_events::{encode_batch, sequence_frame};
use tokio::sync::mpsc;
use zeromq::{PubSocket, SocketSend, ZmqMessage};

use super::SharedBuffer;
use crate::convert;

pub(super) async fn publish(
    mut socket: PubSocket,
    topic: Bytes,
    mut changes: mpsc::Receiver<engine::KvEventBatch>,
    buffer: SharedBuffer,
) {
    while let Some(batch) = changes.recv().await {
        let payload = Bytes::from(encode_batch(&convert::kv_event_batch(batch)));
        let sequence = buffer.with(|kept| kept.push(payload.clone()));
        let mut message = ZmqMessage::from(topic.clone());
        message.push_back(Bytes::copy_from_slice(&sequence_frame(sequence)));
        message.push_back(payload);
        if let Err(error) = socket.send(message).await {
            tracing::warn!(%error, sequence, "a kv event could not be published");
        }
    }
}
