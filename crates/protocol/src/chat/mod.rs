//! `/v1/chat/completions`.

mod answer;
mod chunk;
mod conversation;
mod types;
mod validate;

pub use answer::{ChatAnswer, ChatChoice};
pub use chunk::{ChatChunks, ChatPiece};
pub use conversation::{Conversation, Message};
pub use types::ChatRequest;
pub(crate) use types::ConversationFields;
pub use validate::ValidChat;

/// The name of every id made for this route starts so.
pub const ID_PREFIX: &str = "chatcmpl-";
