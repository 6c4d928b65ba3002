//! Whether an answer that a worker broke off may be continued by another.
//!
//! Another worker can only be given the text so far. So the request must be one whose answer follows from
//! its text alone (greedy, or seeded by a client that wants *an* answer more than the very same chance), and
//! nothing else may have been under way: no tool call, no grammar, no second choice, no log-probabilities
//! with offsets, no penalty that counts what was said.

use protocol::survey::{Kind, Survey};

use super::tap::TextKey;
use crate::route::Route;

/// Fields whose effect reaches back over what was said.
const TIES: [&str; 21] = [
    "add_generation_prompt",
    "continue_final_message",
    "echo",
    "frequency_penalty",
    "functions",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "include_reasoning",
    "logprobs",
    "min_tokens",
    "presence_penalty",
    "prompt_logprobs",
    "response_format",
    "return_token_ids",
    "structural_tag",
    "structured_outputs",
    "suffix",
    "tools",
    "use_beam_search",
];

/// Where the text of an answer stands that could be continued; `None` if it could not.
pub(super) fn text_to_keep(route: Route, survey: &Survey) -> Option<TextKey> {
    let is_steady = survey.temperature == Some(0.0) || survey.seed.is_some();
    let is_alone = survey.n == 1 && survey.prompts == 1;
    let is_free = !TIES.iter().any(|field| survey.has(field));
    if !(survey.stream && is_steady && is_alone && is_free) {
        return None;
    }
    match route {
        Route::Chat => Some(TextKey::Content),
        // Token ids cannot be continued with text.
        Route::Completions if survey.kind("prompt") == Some(Kind::String) => Some(TextKey::Text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(route: Route, body: &str) -> bool {
        text_to_keep(route, &Survey::read(body.as_bytes()).unwrap()).is_some()
    }

    #[test]
    fn greedy_and_seeded_streams_can_be_continued() {
        let chat = |rest: &str| kept(Route::Chat, &format!(r#"{{"messages":[],{rest}}}"#));
        assert!(chat(r#""stream":true,"temperature":0"#));
        assert!(chat(r#""stream":true,"temperature":0.7,"seed":1"#));
        assert!(!chat(r#""stream":true"#));
        assert!(!chat(r#""temperature":0"#));
        assert!(!chat(r#""stream":true,"temperature":0,"n":2"#));
        assert!(!chat(r#""stream":true,"temperature":0,"tools":[{}]"#));
        assert!(chat(r#""stream":true,"temperature":0,"tools":null"#));
    }

    #[test]
    fn prompts_of_tokens_cannot() {
        let asked = |prompt: &str| {
            let body = format!(r#"{{"stream":true,"temperature":0,"prompt":{prompt}}}"#);
            kept(Route::Completions, &body)
        };
        assert!(asked(r#""text""#));
        assert!(!asked("[1, 2]") && !asked(r#"["a", "b"]"#));
    }
}
