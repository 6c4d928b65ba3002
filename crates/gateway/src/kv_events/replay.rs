//! Answers to listeners that missed messages.

use bytes::Bytes;
use protocol::kv_events::{END_OF_REPLAY, parse_sequence_frame, sequence_frame};
use zeromq::{RouterSocket, SocketRecv, SocketSend, ZmqError, ZmqMessage};

use super::SharedBuffer;

pub(super) async fn serve_replays(mut socket: RouterSocket, topic: Bytes, buffer: SharedBuffer) {
    loop {
        let request = match socket.recv().await {
            Ok(request) => request.into_vec(),
            Err(error) => {
                tracing::warn!(%error, "no more replays of kv events");
                return;
            }
        };
        // [identity, "", first sequence]
        let [identity, delimiter, first] = request.as_slice() else {
            continue;
        };
        let Some(first) = parse_sequence_frame(first).filter(|_| delimiter.is_empty()) else {
            continue;
        };
        if let Err(error) = replay(&mut socket, identity, &topic, first, &buffer).await {
            tracing::debug!(%error, "a listener left during its replay");
        }
    }
}

async fn replay(
    socket: &mut RouterSocket,
    identity: &Bytes,
    topic: &Bytes,
    first: u64,
    buffer: &SharedBuffer,
) -> Result<(), ZmqError> {
    for (sequence, payload) in buffer.with(|kept| kept.from(first)) {
        socket
            .send(message(identity, topic.clone(), sequence, payload))
            .await?;
    }
    socket
        .send(message(identity, Bytes::new(), END_OF_REPLAY, Bytes::new()))
        .await
}

fn message(identity: &Bytes, topic: Bytes, sequence: u64, payload: Bytes) -> ZmqMessage {
    let mut message = ZmqMessage::from(identity.clone());
    message.push_back(Bytes::new());
    message.push_back(topic);
    message.push_back(Bytes::copy_from_slice(&sequence_frame(sequence)));
    message.push_back(payload);
    message
}
