//! Log-probabilities: from the engine's ids to the wire's texts.

use std::collections::BTreeMap;

use engine::Token;
use protocol::logprobs::{
    Alternative, BestTokens, ChatLogprob, ChatLogprobs, CompletionLogprobs, PromptLogprob,
    PromptLogprobs,
};

use crate::worker::Codec;

fn bytes(codec: &dyn Codec, id: u32) -> Vec<u8> {
    codec.token_bytes(id).unwrap_or_default().to_vec()
}

fn text(codec: &dyn Codec, id: u32) -> String {
    String::from_utf8_lossy(codec.token_bytes(id).unwrap_or_default()).into_owned()
}

/// In the shape of chats.
pub(crate) fn chat_logprobs(codec: &dyn Codec, tokens: &[Token]) -> ChatLogprobs {
    let entry = |token: &Token| {
        let scored = token.logprob.as_ref()?;
        let top_logprobs = scored
            .top
            .iter()
            .map(|&(id, logprob)| Alternative {
                token: text(codec, id),
                logprob,
                bytes: bytes(codec, id),
            })
            .collect();
        Some(ChatLogprob {
            token: text(codec, token.id),
            logprob: scored.logprob,
            bytes: bytes(codec, token.id),
            top_logprobs,
        })
    };
    ChatLogprobs {
        content: tokens.iter().filter_map(entry).collect(),
    }
}

/// In the shape of completions. `offset` is the place of the first token in the text, in characters,
/// and is moved behind the last.
pub(crate) fn completion_logprobs(
    codec: &dyn Codec,
    tokens: &[Token],
    offset: &mut usize,
) -> CompletionLogprobs {
    let mut logprobs = CompletionLogprobs::default();
    for token in tokens {
        let shown = text(codec, token.id);
        let length = shown.chars().count();
        let best = token.logprob.as_ref().map(|scored| {
            let mut best = BestTokens::default();
            for &(id, logprob) in &scored.top {
                best.push(text(codec, id), logprob);
            }
            best
        });
        let logprob = token.logprob.as_ref().map(|scored| scored.logprob);
        logprobs.push(shown, *offset, logprob, best);
        *offset += length;
    }
    logprobs
}

/// In vLLM's shape for prompts.
pub(crate) fn prompt_logprobs(codec: &dyn Codec, tokens: &[Token]) -> PromptLogprobs {
    let entry = |id: u32, logprob: f32, rank: usize| PromptLogprob {
        logprob,
        rank,
        decoded_token: text(codec, id),
    };
    tokens
        .iter()
        .map(|token| {
            let scored = token.logprob.as_ref()?;
            let mut places = BTreeMap::new();
            for (index, &(id, logprob)) in scored.top.iter().enumerate() {
                places.insert(id, entry(id, logprob, index + 1));
            }
            places
                .entry(token.id)
                .or_insert_with(|| entry(token.id, scored.logprob, scored.rank));
            Some(places)
        })
        .collect()
}
