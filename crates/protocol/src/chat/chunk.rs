//! An answer in pieces.

use crate::chunk::{ChunkFrame, write_finish, write_index, write_token_ids};
use crate::finish::Finish;
use crate::json;
use crate::logprobs::ChatLogprobs;
use crate::stream::StreamOptions;
use crate::usage::Usage;

/// Renders the chunks of one stream.
#[derive(Debug, Clone)]
pub struct ChatChunks {
    frame: ChunkFrame,
}

/// What one chunk says about one answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChatPiece<'a> {
    /// Which answer.
    pub index: usize,
    /// Its next text.
    pub text: &'a str,
    /// When asked for.
    pub logprobs: Option<&'a ChatLogprobs>,
    /// When asked for.
    pub token_ids: Option<&'a [u32]>,
    /// With the last piece.
    pub finish: Option<&'a Finish>,
}

impl ChatChunks {
    /// Chunks of the stream `id`.
    pub fn new(id: &str, created: u64, model: &str, options: StreamOptions) -> Self {
        Self {
            frame: ChunkFrame::new("chat.completion.chunk", id, created, model, options),
        }
    }

    /// Appends the first chunk of an answer, which says who speaks.
    pub fn role(
        &self,
        out: &mut Vec<u8>,
        so_far: &Usage,
        index: usize,
        prompt_token_ids: Option<&[u32]>,
    ) {
        self.frame.chunk(out, so_far, |out| {
            write_index(out, index);
            out.extend_from_slice(
                b",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null",
            );
            write_finish(out, None);
            if let Some(ids) = prompt_token_ids {
                out.extend_from_slice(b",\"prompt_token_ids\":");
                json::write(out, ids);
            }
            out.push(b'}');
        });
    }

    /// Appends a chunk with text, an end, or both.
    pub fn piece(&self, out: &mut Vec<u8>, so_far: &Usage, piece: &ChatPiece<'_>) {
        self.frame.chunk(out, so_far, |out| {
            write_index(out, piece.index);
            if piece.text.is_empty() && piece.finish.is_some() {
                out.extend_from_slice(b",\"delta\":{},\"logprobs\":");
            } else {
                out.extend_from_slice(b",\"delta\":{\"content\":");
                json::write(out, piece.text);
                out.extend_from_slice(b"},\"logprobs\":");
            }
            json::write(out, &piece.logprobs);
            write_finish(out, piece.finish);
            write_token_ids(out, piece.token_ids);
            out.push(b'}');
        });
    }

    /// Appends the usage, if it was asked for.
    pub fn usage(&self, out: &mut Vec<u8>, usage: &Usage) {
        self.frame.usage(out, usage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finish::{FinishReason, StopReason};
    use crate::sse::{Decoder, Event};
    use serde_json::{Value, json};

    fn events(out: &[u8]) -> Vec<Value> {
        let mut events: Vec<Event> = Vec::new();
        Decoder::default().push(out, &mut events).unwrap();
        events
            .iter()
            .map(|event| serde_json::from_str(&event.data).unwrap())
            .collect()
    }

    #[test]
    fn a_stream_is_valid_json_in_openai_shape() {
        let options = StreamOptions {
            include_usage: true,
            continuous_usage_stats: false,
        };
        let chunks = ChatChunks::new("chatcmpl-\"1\"", 7, "m", options);
        let usage = Usage {
            prompt_tokens: 3,
            completion_tokens: 2,
            cached_tokens: 1,
            drafts: None,
        };
        let mut out = Vec::new();
        chunks.role(&mut out, &usage, 0, None);
        let text = ChatPiece {
            text: "a\"\n\u{1}😀",
            ..ChatPiece::default()
        };
        chunks.piece(&mut out, &usage, &text);
        let finish = Finish {
            reason: FinishReason::Stop,
            stop: Some(StopReason::Text("END".into())),
        };
        let end = ChatPiece {
            index: 1,
            finish: Some(&finish),
            token_ids: Some(&[4, 5]),
            ..ChatPiece::default()
        };
        chunks.piece(&mut out, &usage, &end);
        chunks.usage(&mut out, &usage);

        let chunk = |choices: Value, usage: Value| {
            json!({"id": "chatcmpl-\"1\"", "object": "chat.completion.chunk", "created": 7,
                   "model": "m", "choices": choices, "usage": usage})
        };
        assert_eq!(
            events(&out),
            [
                chunk(
                    json!([{"index": 0, "delta": {"role": "assistant", "content": ""},
                            "logprobs": null, "finish_reason": null}]),
                    Value::Null
                ),
                chunk(
                    json!([{"index": 0, "delta": {"content": "a\"\n\u{1}😀"},
                            "logprobs": null, "finish_reason": null}]),
                    Value::Null
                ),
                chunk(
                    json!([{"index": 1, "delta": {}, "logprobs": null, "finish_reason": "stop",
                            "stop_reason": "END", "token_ids": [4, 5]}]),
                    Value::Null
                ),
                chunk(
                    json!([]),
                    json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5,
                           "prompt_tokens_details": {"cached_tokens": 1}})
                ),
            ]
        );
    }
}
