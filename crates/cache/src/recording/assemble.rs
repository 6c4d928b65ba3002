//! One answer put together from the chunks of a stream.
//!
//! Every field of a chunk is known by name and has its own rule: texts are joined, lists are appended, calls
//! are joined by their index. A chunk with any other field can be replayed but not put together.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::head::{Head, Usage, write_json};
use super::outline::{End, Outline};
use super::{Unfit, require_complete};
use crate::fingerprint::Route;

/// A chunk in which nothing is unknown.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chunk<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[expect(dead_code, reason = "read to be known; the route tells")]
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    created: u64,
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    choices: Vec<Piece<'a>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    system_fingerprint: Option<Cow<'a, str>>,
    #[serde(borrow)]
    service_tier: Option<Cow<'a, str>>,
    #[serde(borrow)]
    prompt_token_ids: Option<&'a RawValue>,
}

/// A piece of one choice, of either route.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Piece<'a> {
    index: u32,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    logprobs: Option<Logprobs<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    token_ids: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    prompt_token_ids: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delta<'a> {
    #[serde(borrow)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    refusal: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallPiece<'a>>>,
    #[serde(borrow)]
    function_call: Option<FunctionPiece<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallPiece<'a> {
    index: u32,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    function: Option<FunctionPiece<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FunctionPiece<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<Cow<'a, str>>,
}

/// Log-probabilities of either route: chats have the first two lists, completions the others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Logprobs<'a> {
    #[serde(borrow)]
    content: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    refusal: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    tokens: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    token_logprobs: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    top_logprobs: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    text_offset: Option<Vec<&'a RawValue>>,
}

/// Chunks put together so far.
pub(super) struct Assembly {
    route: Route,
    head: Option<Head>,
    usage: Option<Usage>,
    /// How each choice ended.
    ends: BTreeMap<u32, Option<String>>,
    /// `None` once a chunk said something unknown.
    choices: Option<BTreeMap<u32, Choice>>,
    prompt_token_ids: Option<Box<RawValue>>,
}

/// The answer.
pub(super) struct Assembled {
    pub(super) head: Head,
    pub(super) usage: Usage,
    pub(super) json: Option<Vec<u8>>,
}

impl Assembly {
    pub(super) fn new(route: Route) -> Self {
        Self {
            route,
            head: None,
            usage: None,
            ends: BTreeMap::new(),
            choices: Some(BTreeMap::new()),
            prompt_token_ids: None,
        }
    }

    pub(super) fn chunk(&mut self, data: &[u8]) -> Result<(), Unfit> {
        let outline = match serde_json::from_slice::<Chunk<'_>>(data) {
            Ok(chunk) => self.join(chunk),
            Err(_) => {
                self.choices = None;
                serde_json::from_slice(data).map_err(|_| Unfit::Unreadable)?
            }
        };
        if outline.kv_transfer_params.is_some() {
            return Err(Unfit::Unreadable);
        }
        self.head.get_or_insert_with(|| outline.head());
        for choice in outline.choices {
            let end = self.ends.entry(choice.index).or_default();
            if let Some(reason) = choice.finish_reason {
                *end = Some(reason.into_owned());
            }
        }
        if let Some(usage) = outline.usage {
            self.usage = Some(Usage::read(usage).ok_or(Unfit::NoUsage)?);
        }
        Ok(())
    }

    /// Takes what a chunk says and leaves its outline.
    fn join<'a>(&mut self, chunk: Chunk<'a>) -> Outline<'a> {
        if let Some(ids) = chunk.prompt_token_ids {
            self.prompt_token_ids = Some(ids.to_owned());
        }
        let mut ends = Vec::with_capacity(chunk.choices.len());
        for piece in chunk.choices {
            ends.push(End {
                index: piece.index,
                finish_reason: piece.finish_reason.clone(),
            });
            if let Some(choices) = &mut self.choices {
                choices.entry(piece.index).or_default().join(piece);
            }
        }
        Outline {
            id: chunk.id,
            created: chunk.created,
            model: chunk.model,
            choices: ends,
            usage: chunk.usage,
            system_fingerprint: chunk.system_fingerprint,
            service_tier: chunk.service_tier,
            kv_transfer_params: None,
        }
    }

    pub(super) fn finish(self) -> Result<Assembled, Unfit> {
        let head = self.head.ok_or(Unfit::Incomplete)?;
        if self.ends.is_empty() {
            return Err(Unfit::Incomplete);
        }
        for end in self.ends.values() {
            require_complete(end.as_deref())?;
        }
        let usage = self.usage.ok_or(Unfit::NoUsage)?;
        let json = self.choices.map(|choices| {
            let mut out = Vec::new();
            head.clone().of_answer(self.route).open(&mut out);
            for (place, (index, choice)) in choices.into_iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                choice.write(&mut out, self.route, index);
            }
            out.extend_from_slice(b"],\"usage\":");
            usage.write(&mut out);
            if let Some(ids) = &self.prompt_token_ids {
                out.extend_from_slice(b",\"prompt_token_ids\":");
                write_json(&mut out, ids);
            }
            out.push(b'}');
            out
        });
        Ok(Assembled { head, usage, json })
    }
}

/// One choice, as far as it has come.
#[derive(Default)]
struct Choice {
    role: Option<String>,
    content: Option<String>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: BTreeMap<u32, Call>,
    function_call: Option<Function>,
    text: String,
    logprobs: Option<BTreeMap<&'static str, Vec<Box<RawValue>>>>,
    finish_reason: Option<String>,
    stop_reason: Option<Box<RawValue>>,
    token_ids: Option<Vec<Box<RawValue>>>,
    prompt_token_ids: Option<Box<RawValue>>,
}

#[derive(Default, Serialize)]
struct Call {
    id: Option<String>,
    r#type: Option<String>,
    function: Function,
}

#[derive(Default, Serialize)]
struct Function {
    name: Option<String>,
    arguments: String,
}

impl Function {
    fn join(&mut self, piece: FunctionPiece<'_>) {
        append(&mut self.name, piece.name);
        self.arguments
            .push_str(&piece.arguments.unwrap_or_default());
    }
}

fn append(text: &mut Option<String>, more: Option<Cow<'_, str>>) {
    if let Some(more) = more {
        text.get_or_insert_default().push_str(&more);
    }
}

impl Choice {
    fn join(&mut self, piece: Piece<'_>) {
        if let Some(delta) = piece.delta {
            self.join_delta(delta);
        }
        self.text.push_str(&piece.text.unwrap_or_default());
        if let Some(logprobs) = piece.logprobs {
            let lists = self.logprobs.get_or_insert_default();
            for (name, list) in [
                ("content", logprobs.content),
                ("refusal", logprobs.refusal),
                ("tokens", logprobs.tokens),
                ("token_logprobs", logprobs.token_logprobs),
                ("top_logprobs", logprobs.top_logprobs),
                ("text_offset", logprobs.text_offset),
            ] {
                if let Some(list) = list {
                    let list = list.into_iter().map(ToOwned::to_owned);
                    lists.entry(name).or_default().extend(list);
                }
            }
        }
        if let Some(reason) = piece.finish_reason {
            self.finish_reason = Some(reason.into_owned());
        }
        if let Some(stop) = piece.stop_reason {
            self.stop_reason = Some(stop.to_owned());
        }
        if let Some(ids) = piece.token_ids {
            let ids = ids.into_iter().map(ToOwned::to_owned);
            self.token_ids.get_or_insert_default().extend(ids);
        }
        if let Some(ids) = piece.prompt_token_ids {
            self.prompt_token_ids = Some(ids.to_owned());
        }
    }

    fn join_delta(&mut self, delta: Delta<'_>) {
        if let Some(role) = delta.role {
            self.role = Some(role.into_owned());
        }
        append(&mut self.content, delta.content);
        append(&mut self.refusal, delta.refusal);
        append(&mut self.reasoning_content, delta.reasoning_content);
        append(&mut self.reasoning, delta.reasoning);
        for piece in delta.tool_calls.into_iter().flatten() {
            let call = self.tool_calls.entry(piece.index).or_default();
            append(&mut call.id, piece.id);
            if let Some(kind) = piece.r#type {
                call.r#type = Some(kind.into_owned());
            }
            if let Some(function) = piece.function {
                call.function.join(function);
            }
        }
        if let Some(function) = delta.function_call {
            self.function_call.get_or_insert_default().join(function);
        }
    }

    fn write(self, out: &mut Vec<u8>, route: Route, index: u32) {
        #[derive(Serialize)]
        struct Message {
            role: String,
            content: Option<String>,
            refusal: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            reasoning_content: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            reasoning: Option<String>,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            tool_calls: Vec<Call>,
            #[serde(skip_serializing_if = "Option::is_none")]
            function_call: Option<Function>,
        }
        #[derive(Serialize)]
        struct Whole {
            index: u32,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<Message>,
            #[serde(skip_serializing_if = "Option::is_none")]
            text: Option<String>,
            logprobs: Option<BTreeMap<&'static str, Vec<Box<RawValue>>>>,
            finish_reason: Option<String>,
            stop_reason: Option<Box<RawValue>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            prompt_token_ids: Option<Box<RawValue>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            token_ids: Option<Vec<Box<RawValue>>>,
        }
        let (message, text) = match route {
            Route::Completions => (None, Some(self.text)),
            Route::Chat => {
                let calls = !self.tool_calls.is_empty() || self.function_call.is_some();
                let message = Message {
                    role: self.role.unwrap_or_else(|| "assistant".to_owned()),
                    // A stream opens with an empty text even where a call follows.
                    content: self.content.filter(|text| !(calls && text.is_empty())),
                    refusal: self.refusal,
                    reasoning_content: self.reasoning_content,
                    reasoning: self.reasoning,
                    tool_calls: self.tool_calls.into_values().collect(),
                    function_call: self.function_call,
                };
                (Some(message), None)
            }
        };
        let whole = Whole {
            index,
            message,
            text,
            logprobs: self.logprobs,
            finish_reason: self.finish_reason,
            stop_reason: self.stop_reason,
            prompt_token_ids: self.prompt_token_ids,
            token_ids: self.token_ids,
        };
        write_json(out, &whole);
    }
}
