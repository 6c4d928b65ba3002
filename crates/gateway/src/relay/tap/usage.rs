//! What an answer says it cost.

use serde::Deserialize;

/// What an answer says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Report {
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    pub(crate) cached_tokens: Option<u64>,
}

/// Usage as vLLM and OpenAI write it, for chats and for responses.
#[derive(Deserialize)]
struct WrittenUsage {
    #[serde(alias = "input_tokens")]
    prompt_tokens: Option<u64>,
    #[serde(alias = "output_tokens")]
    completion_tokens: Option<u64>,
    #[serde(alias = "input_tokens_details")]
    prompt_tokens_details: Option<WrittenDetails>,
}

#[derive(Deserialize)]
struct WrittenDetails {
    cached_tokens: Option<u64>,
}

/// A usage object and its length.
pub(super) fn read_usage(written: &[u8]) -> Option<(Report, usize)> {
    let mut values = serde_json::Deserializer::from_slice(written).into_iter::<WrittenUsage>();
    let usage = values.next()?.ok()?;
    let report = Report {
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        cached_tokens: usage.prompt_tokens_details.and_then(|d| d.cached_tokens),
    };
    Some((report, values.byte_offset()))
}

impl Report {
    /// What an earlier worker said was part of this one's prompt.
    pub(super) fn add_before(&mut self, tokens: u64) {
        if let (Some(prompt), Some(completion)) =
            (&mut self.prompt_tokens, &mut self.completion_tokens)
        {
            let moved = tokens.min(*prompt);
            *prompt -= moved;
            *completion += moved;
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let count =
            |tokens: Option<u64>| usize::try_from(tokens.unwrap_or(0)).unwrap_or(usize::MAX);
        let usage = protocol::Usage {
            prompt_tokens: count(self.prompt_tokens),
            completion_tokens: count(self.completion_tokens),
            cached_tokens: count(self.cached_tokens),
            drafts: None,
        };
        // Writing to memory cannot fail.
        let _written = serde_json::to_writer(out, &usage);
    }
}
