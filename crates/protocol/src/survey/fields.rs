//! The top-level fields that may pass to a worker, and how large each may be.
//!
//! These are the fields that vLLM documents for the routes we relay. Some of its fields are left out on
//! purpose, because they reach into the server rather than ask it something: `kv_transfer_params` (moves
//! other requests' caches), `vllm_xargs` (arguments of plug-ins), `chat_template` (runs the client's
//! template), `logits_processors` (names code), `request_id` (may collide with another's),
//! `previous_response_id` and `background` (another tenant's stored answers, on one worker only). A tenant
//! that needs one of them has it in its own list.

/// Most of a field whose size has no reason of its own: the body's bound is bound enough.
const BODY: usize = crate::limits::MAX_BODY_BYTES;
/// A schema, a grammar: compiling it takes time in proportion.
const SCHEMA: usize = 256 << 10;
/// All tools, each with its schema: they go through the template like messages do.
const TOOLS: usize = 1 << 20;
/// Lists of a few tokens, strings or options.
const SMALL: usize = 64 << 10;
/// A name, a number, a switch.
const SCALAR: usize = 1 << 10;

/// A field that may pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// Most bytes of its value.
    pub(super) max_bytes: usize,
}

const fn rule(name: &'static str, max_bytes: usize) -> Rule {
    Rule { name, max_bytes }
}

/// Sorted by name.
static RULES: &[Rule] = &[
    rule("activation", SCALAR),
    rule("add_generation_prompt", SCALAR),
    rule("add_special_tokens", SCALAR),
    rule("allowed_token_ids", SMALL),
    rule("bad_words", SMALL),
    rule("best_of", SCALAR),
    rule("cache_salt", SCALAR),
    rule("chat_template_kwargs", SMALL),
    rule("continue_final_message", SCALAR),
    rule("data", BODY),
    rule("dimensions", SCALAR),
    rule("documents", BODY),
    rule("echo", SCALAR),
    rule("embed_dtype", SCALAR),
    rule("encoding_format", SCALAR),
    rule("endianness", SCALAR),
    rule("frequency_penalty", SCALAR),
    rule("function_call", SMALL),
    rule("functions", TOOLS),
    rule("guided_choice", SCHEMA),
    rule("guided_decoding_backend", SCALAR),
    rule("guided_grammar", SCHEMA),
    rule("guided_json", SCHEMA),
    rule("guided_regex", SMALL),
    rule("guided_whitespace_pattern", SCALAR),
    rule("ignore_eos", SCALAR),
    rule("include", SMALL),
    rule("include_reasoning", SCALAR),
    rule("include_stop_str_in_output", SCALAR),
    rule("input", BODY),
    rule("instructions", BODY),
    rule("items", BODY),
    rule("length_penalty", SCALAR),
    rule("logit_bias", SMALL),
    rule("logprobs", SCALAR),
    rule("max_completion_tokens", SCALAR),
    rule("max_output_tokens", SCALAR),
    rule("max_tokens", SCALAR),
    rule("max_tool_calls", SCALAR),
    rule("messages", BODY),
    rule("metadata", SMALL),
    rule("min_p", SCALAR),
    rule("min_tokens", SCALAR),
    rule("mm_processor_kwargs", SMALL),
    rule("modalities", SCALAR),
    rule("model", SCALAR),
    rule("n", SCALAR),
    rule("normalize", SCALAR),
    rule("parallel_tool_calls", SCALAR),
    rule("presence_penalty", SCALAR),
    rule("priority", SCALAR),
    rule("prompt", BODY),
    rule("prompt_cache_key", SCALAR),
    rule("prompt_logprobs", SCALAR),
    rule("queries", BODY),
    rule("query", BODY),
    rule("reasoning", SMALL),
    rule("reasoning_effort", SCALAR),
    rule("repetition_detection", SMALL),
    rule("repetition_penalty", SCALAR),
    rule("response_format", SCHEMA),
    rule("return_documents", SCALAR),
    rule("return_token_ids", SCALAR),
    rule("return_token_strs", SCALAR),
    rule("return_tokens_as_token_ids", SCALAR),
    rule("safety_identifier", SCALAR),
    rule("seed", SCALAR),
    rule("service_tier", SCALAR),
    rule("session_id", SCALAR),
    rule("skip_special_tokens", SCALAR),
    rule("spaces_between_special_tokens", SCALAR),
    rule("speculative", SCALAR),
    rule("stop", SMALL),
    rule("stop_sequences", SMALL),
    rule("stop_token_ids", SMALL),
    rule("store", SCALAR),
    rule("stream", SCALAR),
    rule("stream_options", SCALAR),
    rule("structural_tag", SCHEMA),
    rule("structured_outputs", SCHEMA),
    rule("suffix", BODY),
    rule("system", BODY),
    rule("task", SCALAR),
    rule("temperature", SCALAR),
    rule("text", SCHEMA),
    rule("text_1", BODY),
    rule("text_2", BODY),
    rule("thinking", SCALAR),
    rule("thinking_token_budget", SCALAR),
    rule("tokens", BODY),
    rule("tool_choice", SMALL),
    rule("tools", TOOLS),
    rule("top_k", SCALAR),
    rule("top_logprobs", SCALAR),
    rule("top_n", SCALAR),
    rule("top_p", SCALAR),
    rule("truncate_prompt_tokens", SCALAR),
    rule("truncation", SCALAR),
    rule("use_activation", SCALAR),
    rule("use_beam_search", SCALAR),
    rule("user", SCALAR),
    rule("verbosity", SCALAR),
];

/// The names of all fields that may pass, for those who must treat each on purpose.
pub fn names() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|rule| rule.name)
}

/// The rule of a field, if it is one of those.
pub(super) fn rule_of(name: &str) -> Option<&'static Rule> {
    let place = RULES.binary_search_by(|rule| rule.name.cmp(name)).ok()?;
    RULES.get(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_it_can_be_searched() {
        assert!(RULES.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(RULES.iter().all(|rule| rule_of(rule.name) == Some(rule)));
    }

    #[test]
    fn fields_that_reach_into_the_server_do_not_pass_by_default() {
        for name in [
            "kv_transfer_params",
            "vllm_xargs",
            "chat_template",
            "logits_processors",
            "request_id",
            "previous_response_id",
            "background",
            "prompt_embeds",
        ] {
            assert_eq!(rule_of(name), None, "{name}");
        }
    }
}
