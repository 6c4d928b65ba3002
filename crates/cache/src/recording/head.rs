//! What all chunks of a stream say besides their choices, and what the answer cost.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::fingerprint::Route;

/// The fields of an answer that are not choices or usage, in the order in which they are sent.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) object: &'static str,
    pub(super) created: u64,
    pub(super) model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system_fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) service_tier: Option<String>,
}

impl Head {
    pub(super) fn of_chunks(self, route: Route) -> Self {
        let object = match route {
            Route::Chat => "chat.completion.chunk",
            Route::Completions => "text_completion",
        };
        Self { object, ..self }
    }

    pub(super) fn of_answer(self, route: Route) -> Self {
        let object = match route {
            Route::Chat => "chat.completion",
            Route::Completions => "text_completion",
        };
        Self { object, ..self }
    }

    /// The opening of a JSON object that goes on.
    pub(super) fn open(&self, out: &mut Vec<u8>) {
        write_json(out, self);
        out.pop();
        out.extend_from_slice(b",\"choices\":[");
    }

    /// The usage as an event.
    pub(super) fn usage_event(self, route: Route, usage: &Usage) -> Vec<u8> {
        let mut out = b"data: ".to_vec();
        self.of_chunks(route).open(&mut out);
        out.extend_from_slice(b"],\"usage\":");
        usage.write(&mut out);
        out.extend_from_slice(b"}\n\n");
        out
    }
}

/// What the answer cost whoever made it.
#[derive(Debug, Clone)]
pub(super) struct Usage {
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    completion_details: Option<Box<RawValue>>,
}

impl Usage {
    /// Reads it; what it says about cached prompts is of no use for the next one who asks.
    pub(super) fn read(usage: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct Sent<'a> {
            prompt_tokens: u64,
            completion_tokens: Option<u64>,
            #[serde(borrow)]
            completion_tokens_details: Option<&'a RawValue>,
        }
        let sent: Sent<'_> = serde_json::from_str(usage.get()).ok()?;
        Some(Self {
            prompt_tokens: sent.prompt_tokens,
            completion_tokens: sent.completion_tokens.unwrap_or(0),
            completion_details: sent.completion_tokens_details.map(ToOwned::to_owned),
        })
    }

    /// Appends it as it is for those who are answered from the cache: all of their prompt was cached.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        #[derive(Serialize)]
        struct Details {
            cached_tokens: u64,
        }
        #[derive(Serialize)]
        struct Shown<'a> {
            prompt_tokens: u64,
            completion_tokens: u64,
            total_tokens: u64,
            prompt_tokens_details: Details,
            #[serde(skip_serializing_if = "Option::is_none")]
            completion_tokens_details: Option<&'a RawValue>,
        }
        let shown = Shown {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            total_tokens: self.prompt_tokens.saturating_add(self.completion_tokens),
            prompt_tokens_details: Details {
                cached_tokens: self.prompt_tokens,
            },
            completion_tokens_details: self.completion_details.as_deref(),
        };
        write_json(out, &shown);
    }
}

/// Appends a value. Writing to memory cannot fail.
pub(super) fn write_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok());
}
