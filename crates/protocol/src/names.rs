//! The names of all top-level fields that reading a request asks for, one list per route.
//!
//! Whoever must treat every field on purpose (the response cache: a forgotten one would be a wrong answer)
//! checks itself against these lists, and a test here checks the lists against the readers.

use std::collections::BTreeSet;

/// Fields of both routes.
const COMMON: &[&str] = &[
    "allowed_token_ids",
    "audio",
    "bad_words",
    "best_of",
    "cache_salt",
    "chat_template",
    "documents",
    "echo",
    "frequency_penalty",
    "function_call",
    "functions",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "ignore_eos",
    "include_stop_str_in_output",
    "logit_bias",
    "logit_processors",
    "logits_processors",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "min_p",
    "min_tokens",
    "modalities",
    "model",
    "n",
    "presence_penalty",
    "priority",
    "prompt_embeds",
    "prompt_logprobs",
    "repetition_penalty",
    "response_format",
    "return_token_ids",
    "seed",
    "skip_special_tokens",
    "speculative",
    "stop",
    "stop_token_ids",
    "stream",
    "stream_options",
    "structured_outputs",
    "suffix",
    "temperature",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
    "truncate_prompt_tokens",
    "use_beam_search",
    "web_search_options",
];

/// Fields of chats only.
const CHAT: &[&str] = &[
    "add_generation_prompt",
    "chat_template_kwargs",
    "continue_final_message",
    "messages",
    "top_logprobs",
];

/// Fields of completions only.
const COMPLETIONS: &[&str] = &["add_special_tokens", "prompt"];

/// All fields that reading a chat asks for.
pub fn of_chats() -> BTreeSet<&'static str> {
    COMMON.iter().chain(CHAT).copied().collect()
}

/// All fields that reading a completion asks for.
pub fn of_completions() -> BTreeSet<&'static str> {
    COMMON.iter().chain(COMPLETIONS).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ChatRequest;
    use crate::completions::CompletionRequest;
    use crate::fields::names_asked_for;

    #[test]
    fn the_lists_hold_exactly_what_the_readers_ask_for() {
        let chat = names_asked_for(|| {
            let body = br#"{"messages": [{"role": "user", "content": ""}]}"#;
            assert!(ChatRequest::parse(body).is_ok());
        });
        assert!(chat.iter().map(String::as_str).eq(of_chats()));
        let completion = names_asked_for(|| {
            assert!(CompletionRequest::parse(br#"{"prompt": ""}"#).is_ok());
        });
        assert!(completion.iter().map(String::as_str).eq(of_completions()));
    }
}
