//! An answer in pieces.

use crate::chunk::{ChunkFrame, write_finish, write_index, write_token_ids};
use crate::finish::Finish;
use crate::json;
use crate::logprobs::CompletionLogprobs;
use crate::stream::StreamOptions;
use crate::usage::Usage;

/// Renders the chunks of one stream.
#[derive(Debug, Clone)]
pub struct CompletionChunks {
    frame: ChunkFrame,
}

/// What one chunk says about one answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct CompletionPiece<'a> {
    /// Which answer.
    pub index: usize,
    /// Its next text.
    pub text: &'a str,
    /// When asked for.
    pub logprobs: Option<&'a CompletionLogprobs>,
    /// When asked for.
    pub token_ids: Option<&'a [u32]>,
    /// When asked for, with an answer's first piece.
    pub prompt_token_ids: Option<&'a [u32]>,
    /// With the last piece.
    pub finish: Option<&'a Finish>,
}

impl CompletionChunks {
    /// Chunks of the stream `id`.
    pub fn new(id: &str, created: u64, model: &str, options: StreamOptions) -> Self {
        Self {
            frame: ChunkFrame::new("text_completion", id, created, model, options),
        }
    }

    /// Appends a chunk with text, an end, or both.
    pub fn piece(&self, out: &mut Vec<u8>, so_far: &Usage, piece: &CompletionPiece<'_>) {
        self.frame.chunk(out, so_far, |out| {
            write_index(out, piece.index);
            out.extend_from_slice(b",\"text\":");
            json::write(out, piece.text);
            out.extend_from_slice(b",\"logprobs\":");
            json::write(out, &piece.logprobs);
            write_finish(out, piece.finish);
            if let Some(ids) = piece.prompt_token_ids {
                out.extend_from_slice(b",\"prompt_token_ids\":");
                json::write(out, ids);
            }
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
    use serde_json::{Value, json};

    #[test]
    fn a_chunk_is_valid_json_in_openai_shape() {
        let options = StreamOptions {
            continuous_usage_stats: true,
            include_usage: false,
        };
        let chunks = CompletionChunks::new("cmpl-1", 7, "m", options);
        let mut out = Vec::new();
        let piece = CompletionPiece {
            index: 2,
            text: "x",
            ..CompletionPiece::default()
        };
        chunks.piece(&mut out, &Usage::default(), &piece);
        chunks.usage(&mut out, &Usage::default());
        let text = String::from_utf8(out).unwrap();
        let body = text.strip_prefix("data: ").unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(body).unwrap(),
            json!({"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "m",
                   "choices": [{"index": 2, "text": "x", "logprobs": null, "finish_reason": null}],
                   "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0,
                             "prompt_tokens_details": {"cached_tokens": 0}}})
        );
    }
}
