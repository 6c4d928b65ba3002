//! Updates of a generation rendered as events, for either route.

use std::sync::Arc;

use engine::Token;
use protocol::Usage;
use protocol::chat::{ChatChunks, ChatPiece};
use protocol::completions::{CompletionChunks, CompletionPiece};
use protocol::finish::Finish;
use protocol::stream::StreamOptions;

use crate::convert;
use crate::stages::Form;
use crate::stages::{DispatchedPrompt, Shape};
use crate::worker::Codec;

/// Renders the chunks of one stream.
pub(super) struct Pieces {
    chunks: Chunks,
    codec: Arc<dyn Codec>,
    shape: Shape,
    /// Answers to each prompt.
    n: usize,
    /// Where each answer's next token starts in its text; only completions with logprobs count it.
    offsets: Vec<usize>,
}

enum Chunks {
    Chat(ChatChunks),
    Completions(CompletionChunks),
}

impl Pieces {
    pub(super) fn new(
        shape: Shape,
        options: StreamOptions,
        (id, created, model): (&str, u64, &str),
        codec: Arc<dyn Codec>,
        (prompts, n): (usize, usize),
    ) -> Self {
        Self {
            chunks: match shape.form {
                Form::Chat => Chunks::Chat(ChatChunks::new(id, created, model, options)),
                Form::Completions => {
                    Chunks::Completions(CompletionChunks::new(id, created, model, options))
                }
            },
            codec,
            shape,
            n,
            offsets: vec![0; prompts * n],
        }
    }

    /// The opening of every answer to a prompt: who speaks, or the echo of the prompt.
    pub(super) fn start(
        &mut self,
        out: &mut Vec<u8>,
        usage: &Usage,
        place: usize,
        prompt: &DispatchedPrompt,
        prompt_tokens: &[Token],
    ) {
        for choice in 0..self.n {
            let index = place * self.n + choice;
            match &self.chunks {
                Chunks::Chat(chunks) => {
                    chunks.role(out, usage, index, prompt.tokens.as_deref());
                }
                Chunks::Completions(chunks) if self.shape.echo || prompt.tokens.is_some() => {
                    let logprobs = (self.shape.echo && self.shape.logprobs).then(|| {
                        let mut unused = 0;
                        let offset = self.offsets.get_mut(index).unwrap_or(&mut unused);
                        convert::completion_logprobs(self.codec.as_ref(), prompt_tokens, offset)
                    });
                    let piece = CompletionPiece {
                        index,
                        text: &prompt.echo,
                        logprobs: logprobs.as_ref(),
                        prompt_token_ids: prompt.tokens.as_deref(),
                        ..CompletionPiece::default()
                    };
                    chunks.piece(out, usage, &piece);
                }
                Chunks::Completions(_) => {}
            }
        }
    }

    /// More of an answer, its end, or both.
    pub(super) fn piece(
        &mut self,
        out: &mut Vec<u8>,
        usage: &Usage,
        (place, choice): (usize, usize),
        text: &str,
        tokens: &[Token],
        finish: Option<&Finish>,
    ) {
        let shows_tokens = self.shape.logprobs || self.shape.return_token_ids;
        let says_nothing = text.is_empty() && (tokens.is_empty() || !shows_tokens);
        if says_nothing && finish.is_none() {
            return;
        }
        let index = place * self.n + choice;
        let ids: Option<Vec<u32>> = (self.shape.return_token_ids && !tokens.is_empty())
            .then(|| tokens.iter().map(|token| token.id).collect());
        let has_logprobs = self.shape.logprobs && !tokens.is_empty();
        match &self.chunks {
            Chunks::Chat(chunks) => {
                let logprobs =
                    has_logprobs.then(|| convert::chat_logprobs(self.codec.as_ref(), tokens));
                let piece = ChatPiece {
                    index,
                    text,
                    logprobs: logprobs.as_ref(),
                    token_ids: ids.as_deref(),
                    finish,
                };
                chunks.piece(out, usage, &piece);
            }
            Chunks::Completions(chunks) => {
                let logprobs = has_logprobs.then(|| {
                    let mut unused = 0;
                    let offset = self.offsets.get_mut(index).unwrap_or(&mut unused);
                    convert::completion_logprobs(self.codec.as_ref(), tokens, offset)
                });
                let piece = CompletionPiece {
                    index,
                    text,
                    logprobs: logprobs.as_ref(),
                    token_ids: ids.as_deref(),
                    finish,
                    prompt_token_ids: None,
                };
                chunks.piece(out, usage, &piece);
            }
        }
    }

    /// The usage, if it was asked for.
    pub(super) fn usage(&self, out: &mut Vec<u8>, usage: &Usage) {
        match &self.chunks {
            Chunks::Chat(chunks) => chunks.usage(out, usage),
            Chunks::Completions(chunks) => chunks.usage(out, usage),
        }
    }
}
