//! What every top-level field of a request means to the cache. A request with a field that is not in this
//! table is not cached at all: it could change the answer.
//!
//! Two values of a field count as one only if no server could answer them differently. So:
//! - the parameters that vLLM takes from the model's own generation config when they are absent
//!   (temperature, top_p, top_k, min_p, repetition_penalty, max_tokens) are [`Absent::Open`]: absent is not
//!   the same as OpenAI's documented default;
//! - `null` is the same as absent only where `null` *is* the default: vLLM takes `"max_tokens": null` for
//!   "as many as fit" but an absent one for 16;
//! - the order of keys counts wherever a template or a grammar may see it: a tool's parameters are written
//!   into the prompt in the order in which they were sent, and a schema's properties come out in its order.

use super::Route;

/// What a field means to the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Part of the fingerprint.
    Answer(Absent, Form),
    /// How the answer is delivered, accounted for or scheduled, not what it says.
    Delivery,
    /// Keeps the request from being cached unless it is absent, `null`, or says this.
    Uncacheable(&'static str),
    /// `stream_options`: delivery, except for options that change every chunk.
    StreamOptions,
    /// `metadata`: only its `context_hash` counts.
    Metadata,
}

/// What the absence of a field is the same as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// `null`.
    Null,
    /// This JSON; `null` is something else.
    Is(&'static str),
    /// Nothing else: the model has a say in it.
    Open,
}

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it was sent, but for white space and escapes.
    Plain,
    /// By its numeric value: 0, 0.0 and -0e1 are the same.
    Number,
    /// A map whose order of keys cannot matter.
    Map,
    /// A list of messages: the order of a message's and a part's keys cannot matter.
    Messages,
    /// Text that may be put into Unicode's normal form.
    Prompt,
}

use Absent::{Is, Null, Open};
use Form::{Map, Messages, Number, Plain, Prompt};
use Meaning::{Answer, Delivery, Uncacheable};

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// `None`: of both routes.
    pub(crate) route: Option<Route>,
    pub(crate) meaning: Meaning,
}

const fn both(name: &'static str, meaning: Meaning) -> Field {
    Field {
        name,
        route: None,
        meaning,
    }
}

const fn chat(name: &'static str, meaning: Meaning) -> Field {
    Field {
        name,
        route: Some(Route::Chat),
        meaning,
    }
}

const fn completions(name: &'static str, meaning: Meaning) -> Field {
    Field {
        name,
        route: Some(Route::Completions),
        meaning,
    }
}

pub(crate) const FIELDS: &[Field] = &[
    // What is asked. The model's name stands in the answer as it was asked for, so it counts as sent,
    // beside the model that it stands for.
    both("model", Answer(Null, Plain)),
    chat("messages", Answer(Open, Messages)),
    completions("prompt", Answer(Open, Prompt)),
    both("suffix", Answer(Null, Plain)),
    both("prompt_embeds", Answer(Null, Plain)),
    both("documents", Answer(Null, Plain)),
    both("tools", Answer(Null, Plain)),
    both("tool_choice", Answer(Null, Plain)),
    both("parallel_tool_calls", Answer(Is("true"), Plain)),
    both("functions", Answer(Null, Plain)),
    both("function_call", Answer(Null, Plain)),
    both("modalities", Answer(Is(r#"["text"]"#), Plain)),
    both("mm_processor_kwargs", Answer(Null, Plain)),
    // How a prompt is made of it.
    chat("add_generation_prompt", Answer(Is("true"), Plain)),
    chat("continue_final_message", Answer(Is("false"), Plain)),
    chat("add_special_tokens", Answer(Is("false"), Plain)),
    completions("add_special_tokens", Answer(Is("true"), Plain)),
    both("chat_template", Answer(Null, Plain)),
    chat("chat_template_kwargs", Answer(Null, Plain)),
    both("truncate_prompt_tokens", Answer(Null, Plain)),
    both("reasoning_effort", Answer(Null, Plain)),
    both("include_reasoning", Answer(Is("true"), Plain)),
    both("thinking_token_budget", Answer(Null, Plain)),
    both("verbosity", Answer(Null, Plain)),
    // How it is sampled.
    both("temperature", Answer(Open, Number)),
    both("top_p", Answer(Open, Number)),
    both("top_k", Answer(Open, Plain)),
    both("min_p", Answer(Open, Number)),
    both("repetition_penalty", Answer(Open, Number)),
    both("presence_penalty", Answer(Is("0"), Number)),
    both("frequency_penalty", Answer(Is("0"), Number)),
    both("length_penalty", Answer(Is("1"), Number)),
    both("repetition_detection", Answer(Null, Plain)),
    both("logit_bias", Answer(Null, Map)),
    both("logits_processors", Answer(Null, Plain)),
    both("logit_processors", Answer(Null, Plain)),
    both("allowed_token_ids", Answer(Null, Plain)),
    both("bad_words", Answer(Null, Plain)),
    both("seed", Answer(Null, Plain)),
    both("n", Answer(Is("1"), Plain)),
    both("best_of", Answer(Null, Plain)),
    both("use_beam_search", Answer(Is("false"), Plain)),
    both("vllm_xargs", Answer(Null, Plain)),
    // Where it ends.
    both("max_tokens", Answer(Open, Plain)),
    both("max_completion_tokens", Answer(Open, Plain)),
    both("min_tokens", Answer(Is("0"), Plain)),
    both("stop", Answer(Null, Plain)),
    both("stop_token_ids", Answer(Null, Plain)),
    both("include_stop_str_in_output", Answer(Is("false"), Plain)),
    both("ignore_eos", Answer(Is("false"), Plain)),
    // What it must look like.
    both("response_format", Answer(Is(r#"{"type":"text"}"#), Plain)),
    both("structured_outputs", Answer(Null, Plain)),
    both("structural_tag", Answer(Null, Plain)),
    both("guided_json", Answer(Null, Plain)),
    both("guided_regex", Answer(Null, Plain)),
    both("guided_choice", Answer(Null, Plain)),
    both("guided_grammar", Answer(Null, Plain)),
    both("guided_decoding_backend", Answer(Null, Plain)),
    both("guided_whitespace_pattern", Answer(Null, Plain)),
    // What is told of it.
    chat("logprobs", Answer(Is("false"), Plain)),
    completions("logprobs", Answer(Null, Plain)),
    chat("top_logprobs", Answer(Null, Plain)),
    both("prompt_logprobs", Answer(Null, Plain)),
    both("echo", Answer(Is("false"), Plain)),
    both("skip_special_tokens", Answer(Is("true"), Plain)),
    both("spaces_between_special_tokens", Answer(Is("true"), Plain)),
    both("return_token_ids", Answer(Null, Plain)),
    both("return_tokens_as_token_ids", Answer(Null, Plain)),
    // The text would be the same, but not what usage tells of its drafts.
    both("speculative", Answer(Null, Plain)),
    // A client that sets a salt keeps its own users apart; so do we.
    both("cache_salt", Answer(Null, Plain)),
    // Not the answer: its delivery, its accounting, its place in the queue, hints where to send it.
    both("stream", Delivery),
    both("stream_options", Meaning::StreamOptions),
    both("user", Delivery),
    both("safety_identifier", Delivery),
    both("session_id", Delivery),
    both("prompt_cache_key", Delivery),
    both("priority", Delivery),
    both("service_tier", Delivery),
    both("metadata", Meaning::Metadata),
    // A hit would leave something undone, or would be yesterday's news.
    both("store", Uncacheable("false")),
    both("kv_transfer_params", Uncacheable("null")),
    both("audio", Uncacheable("null")),
    both("web_search_options", Uncacheable("null")),
];

/// The row of a field, if it is one of this route.
pub(crate) fn field(route: Route, name: &str) -> Option<&'static Field> {
    FIELDS
        .iter()
        .find(|field| field.name == name && field.route.is_none_or(|of| of == route))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_that_a_request_is_read_for_is_in_the_table() {
        for (route, names) in [
            (Route::Chat, protocol::names::of_chats()),
            (Route::Completions, protocol::names::of_completions()),
        ] {
            for name in names {
                assert!(
                    field(route, name).is_some(),
                    "{name} of {route:?} is not in the table: say what it means to a cached answer"
                );
            }
        }
    }

    /// Fields of routes whose answers are not cached: embeddings, scores, responses.
    const OF_OTHER_ROUTES: &[&str] = &[
        "activation",
        "data",
        "dimensions",
        "embed_dtype",
        "encoding_format",
        "endianness",
        "include",
        "input",
        "instructions",
        "items",
        "max_output_tokens",
        "max_tool_calls",
        "normalize",
        "queries",
        "query",
        "reasoning",
        "return_documents",
        "return_token_strs",
        "stop_sequences",
        "system",
        "task",
        "text",
        "text_1",
        "text_2",
        "thinking",
        "tokens",
        "top_n",
        "truncation",
        "use_activation",
    ];

    #[test]
    fn every_field_that_may_pass_to_a_worker_is_in_the_table() {
        for name in protocol::survey::names() {
            let is_known = FIELDS.iter().any(|field| field.name == name);
            assert!(
                is_known != OF_OTHER_ROUTES.contains(&name),
                "{name}: say what it means to a cached answer, or that it is of another route"
            );
        }
    }

    #[test]
    fn no_field_stands_twice() {
        for (place, row) in FIELDS.iter().enumerate() {
            let same = |other: &&Field| {
                other.name == row.name
                    && (other.route.is_none() || row.route.is_none() || other.route == row.route)
            };
            assert!(
                !FIELDS[place + 1..].iter().any(|o| same(&o)),
                "{}",
                row.name
            );
        }
    }
}
