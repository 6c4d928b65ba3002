//! Answers as bytes, in vLLM's shape.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Value, json};

use super::Answer;
use super::request::{Asked, Kind};

/// What the chunks of one answer have in common.
pub(super) struct Shape {
    kind: Kind,
    /// Up to the choices.
    head: String,
    token_ids: bool,
    prompt_tokens: usize,
    include_usage: bool,
}

impl Shape {
    pub(super) fn new(asked: &Asked, id: usize, model: &str) -> Self {
        let created = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let (prefix, object) = match (asked.kind, asked.stream) {
            (Kind::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
            (Kind::Chat, false) => ("chatcmpl", "chat.completion"),
            (Kind::Completion, _) => ("cmpl", "text_completion"),
        };
        Self {
            kind: asked.kind,
            head: format!(
                r#"{{"id":"{prefix}-{id}","object":"{object}","created":{created},"model":{},"choices":["#,
                Value::from(model)
            ),
            token_ids: asked.token_ids,
            prompt_tokens: asked.tokens.len(),
            include_usage: asked.include_usage,
        }
    }

    /// What comes before the first token: chats open with the role.
    pub(super) fn opening(&self, out: &mut Vec<u8>) {
        if self.kind == Kind::Chat {
            self.event(
                out,
                r#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null"#,
            );
        }
    }

    /// The chunk of one token; the last one says why it is the last.
    pub(super) fn token(&self, out: &mut Vec<u8>, answer: &Answer, at: usize) {
        let last = at + 1 == answer.tokens.len();
        let text = Value::from(answer.piece(at, at + 1));
        let finish = if last {
            Value::from(answer.finish)
        } else {
            Value::Null
        };
        let ids = match answer.tokens.get(at) {
            Some(id) if self.token_ids => format!(r#","token_ids":[{id}]"#),
            _ => String::new(),
        };
        let choice = match self.kind {
            Kind::Chat => format!(
                r#"{{"index":0,"delta":{{"content":{text}}},"logprobs":null,"finish_reason":{finish}{ids}}}]"#
            ),
            Kind::Completion => format!(
                r#"{{"index":0,"text":{text},"logprobs":null,"finish_reason":{finish}{ids}}}]"#
            ),
        };
        self.event(out, &choice);
    }

    /// What comes after the last token.
    pub(super) fn closing(&self, out: &mut Vec<u8>, answer: &Answer, cached_tokens: u64) {
        if self.include_usage {
            let usage = self.usage(answer, cached_tokens);
            self.event(out, &format!(r#"],"usage":{usage}"#));
        }
        out.extend_from_slice(protocol::sse::DONE);
    }

    /// The whole answer in one piece.
    pub(super) fn whole(&self, answer: &Answer, cached_tokens: u64) -> Bytes {
        let text = Value::from(answer.text.as_str());
        let content = match self.kind {
            Kind::Chat => {
                format!(r#""message":{{"role":"assistant","content":{text},"tool_calls":[]}}"#)
            }
            Kind::Completion => format!(r#""text":{text}"#),
        };
        let ids = if self.token_ids {
            format!(r#","token_ids":{}"#, Value::from(answer.tokens.clone()))
        } else {
            String::new()
        };
        Bytes::from(format!(
            r#"{}{{"index":0,{content},"logprobs":null,"finish_reason":"{}"{ids}}}],"usage":{}}}"#,
            self.head,
            answer.finish,
            self.usage(answer, cached_tokens)
        ))
    }

    fn usage(&self, answer: &Answer, cached_tokens: u64) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": answer.tokens.len(),
            "total_tokens": self.prompt_tokens + answer.tokens.len(),
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        })
    }

    fn event(&self, out: &mut Vec<u8>, rest: &str) {
        protocol::sse::write_event(out, |out| {
            out.extend_from_slice(self.head.as_bytes());
            out.extend_from_slice(rest.as_bytes());
            out.push(b'}');
        });
    }
}

/// An error body as vLLM writes it.
pub(super) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        400..=499 => "BadRequestError",
        _ => "InternalServerError",
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": status}})
}
