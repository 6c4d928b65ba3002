//! A whole answer cut into the chunks that a stream of it would have had: who speaks, what is said, how it
//! ends.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::head::{Head, Usage, write_json};
use super::outline::Outline;
use super::{Unfit, require_complete};
use crate::fingerprint::Route;

/// A whole answer, if nothing in it is unknown and all of it can be streamed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "read to be known, taken from the outline")]
struct Answer<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    created: &'a RawValue,
    #[serde(borrow)]
    model: &'a RawValue,
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    system_fingerprint: Option<&'a RawValue>,
    #[serde(borrow)]
    service_tier: Option<&'a RawValue>,
    prompt_logprobs: Option<Nothing>,
    #[serde(borrow)]
    prompt_token_ids: Option<&'a RawValue>,
    kv_transfer_params: Option<Nothing>,
}

/// A value that is always `null` in a stream.
#[derive(Deserialize)]
enum Nothing {}

/// A choice of either route.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice<'a> {
    index: u32,
    #[serde(borrow)]
    message: Option<Message<'a>>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    finish_reason: &'a RawValue,
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    token_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_token_ids: Option<&'a RawValue>,
    #[expect(dead_code, reason = "read to be known")]
    prompt_logprobs: Option<Nothing>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "some fields are read to be known, not to be written"
)]
struct Message<'a> {
    #[serde(borrow, skip_serializing)]
    role: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    content: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "has_no_calls")]
    tool_calls: Option<Vec<Call<'a>>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    function_call: Option<&'a RawValue>,
    #[serde(skip_serializing)]
    annotations: Option<Nothing>,
    #[serde(skip_serializing)]
    audio: Option<Nothing>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Call<'a> {
    #[serde(default)]
    index: usize,
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    r#type: &'a RawValue,
    #[serde(borrow)]
    function: &'a RawValue,
}

fn has_no_calls(calls: &Option<Vec<Call<'_>>>) -> bool {
    calls.as_ref().is_none_or(Vec::is_empty)
}

/// The answer.
pub(super) struct Apart {
    pub(super) head: Head,
    pub(super) usage: Usage,
    pub(super) json: Vec<u8>,
    pub(super) events: Option<Vec<u8>>,
}

pub(super) fn take_apart(route: Route, body: &[u8]) -> Result<Apart, Unfit> {
    let outline: Outline<'_> = serde_json::from_slice(body).map_err(|_| Unfit::Unreadable)?;
    if outline.choices.is_empty() || outline.kv_transfer_params.is_some() {
        return Err(Unfit::Unreadable);
    }
    for choice in &outline.choices {
        require_complete(choice.finish_reason.as_deref())?;
    }
    let sent = outline.usage.ok_or(Unfit::NoUsage)?;
    let usage = Usage::read(sent).ok_or(Unfit::NoUsage)?;
    let head = outline.head();
    let events = serde_json::from_slice::<Answer<'_>>(body)
        .ok()
        .map(|answer| events(route, &head, answer));
    Ok(Apart {
        json: with_usage(body, sent, &usage),
        head,
        usage,
        events,
    })
}

/// The body with another usage in the place of its own.
fn with_usage(body: &[u8], sent: &RawValue, usage: &Usage) -> Vec<u8> {
    let sent = sent.get().as_bytes();
    // It was borrowed from the body, so it starts somewhere within.
    let start = sent.as_ptr().addr() - body.as_ptr().addr();
    let mut out = Vec::with_capacity(body.len() + 64);
    out.extend_from_slice(body.get(..start).unwrap_or_default());
    usage.write(&mut out);
    out.extend_from_slice(body.get(start + sent.len()..).unwrap_or_default());
    out
}

fn events(route: Route, head: &Head, answer: Answer<'_>) -> Vec<u8> {
    let mut opening = b"data: ".to_vec();
    head.clone().of_chunks(route).open(&mut opening);
    let mut out = Vec::new();
    let mut chunk = |piece: &Piece<'_>| {
        out.extend_from_slice(&opening);
        write_json(&mut out, piece);
        out.extend_from_slice(b"]}\n\n");
    };
    for choice in answer.choices {
        let base = Piece {
            index: choice.index,
            ..Piece::default()
        };
        let end = Some(choice.finish_reason);
        let stop_reason = choice.stop_reason;
        let Some(mut message) = choice.message else {
            chunk(&Piece {
                text: choice.text,
                logprobs: choice.logprobs,
                finish_reason: end,
                stop_reason,
                prompt_token_ids: choice.prompt_token_ids,
                token_ids: choice.token_ids,
                ..base
            });
            continue;
        };
        for (place, call) in message.tool_calls.iter_mut().flatten().enumerate() {
            call.index = place;
        }
        chunk(&Piece {
            delta: Some(Delta::Opening {
                role: "assistant",
                content: "",
            }),
            prompt_token_ids: choice.prompt_token_ids.or(answer.prompt_token_ids),
            ..base
        });
        chunk(&Piece {
            delta: Some(Delta::Said(&message)),
            logprobs: choice.logprobs,
            token_ids: choice.token_ids,
            ..base
        });
        chunk(&Piece {
            delta: Some(Delta::Nothing {}),
            finish_reason: end,
            stop_reason,
            ..base
        });
    }
    out
}

/// A piece of a choice as it is written.
#[derive(Default, Clone, Copy, Serialize)]
struct Piece<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Delta<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a RawValue>,
    logprobs: Option<&'a RawValue>,
    finish_reason: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a RawValue>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum Delta<'a> {
    Opening {
        role: &'static str,
        content: &'static str,
    },
    Said(&'a Message<'a>),
    Nothing {},
}
