//! What goes over the wire: OpenAI types, SSE codec, error bodies, KV events. No I/O.
//!
//! A request passes through two types. What a client sent is read field by field into a raw type
//! (`ChatRequest`), whose errors name the field; `validate` then checks every bound of [`limits`] and
//! gives a `Valid…` type, the only one the rest of the house accepts. Answers go the other way: plain
//! values that serialise into OpenAI's shapes, and writers that render the chunks of a stream.
//!
//! ```
//! # use forespeak_protocol as protocol;
//! use protocol::chat::ChatRequest;
//!
//! let body = br#"{"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 9}"#;
//! let error = ChatRequest::parse(body).and_then(ChatRequest::validate).unwrap_err();
//! assert_eq!(error.param(), Some("temperature"));
//! ```

pub mod chat;
pub mod chunk;
pub mod completions;
mod error;
mod fields;
pub mod finish;
pub mod format;
pub mod headers;
mod json;
pub mod kv_events;
pub mod limits;
pub mod logprobs;
pub mod models;
pub mod names;
pub mod sampling;
pub mod sse;
pub mod stream;
pub mod survey;
pub mod tokenize;
mod unsupported;
mod usage;

pub use error::{ApiError, ErrorKind};
pub use usage::{DraftUsage, Usage};
