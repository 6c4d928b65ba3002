//! Why an answer ended: from the engine to the wire.

use engine::StopMatch;
use protocol::finish::{Finish, FinishReason, StopReason};

pub(crate) fn finish(reason: engine::FinishReason, stop: Option<StopMatch>) -> Finish {
    Finish {
        reason: match reason {
            engine::FinishReason::Stop => FinishReason::Stop,
            engine::FinishReason::Length => FinishReason::Length,
        },
        stop: stop.map(|matched| match matched {
            StopMatch::Text(text) => StopReason::Text(text),
            StopMatch::Token(id) => StopReason::Token(id),
        }),
    }
}
