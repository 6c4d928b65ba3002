//! Fields that would change the meaning of the answer and that nobody here honours. Ignoring them
//! would be answering another question; every other unknown field is ignored.

use serde_json::Value;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::limits::MAX_NAME_BYTES;

/// Fields that are refused unless they say "no": `null`, `false`, `0`, or empty.
const REFUSED: &[(&str, &str)] = &[
    ("audio", "audio output is not supported; leave audio out"),
    (
        "web_search_options",
        "web search is not supported; leave web_search_options out",
    ),
    (
        "documents",
        "documents are not supported; put them into the messages",
    ),
    (
        "chat_template",
        "a template in the request is not supported; start the server with --chat-template",
    ),
    ("suffix", "suffix is not supported; leave it out"),
    (
        "prompt_embeds",
        "prompt_embeds are not supported; send text or token ids",
    ),
    (
        "truncate_prompt_tokens",
        "truncate_prompt_tokens is not supported; shorten the prompt",
    ),
    (
        "use_beam_search",
        "beam search is not supported; leave use_beam_search out",
    ),
    (
        "logits_processors",
        "logits_processors are not supported; use logit_bias",
    ),
    (
        "logit_processors",
        "logit_processors are not supported; use logit_bias",
    ),
    ("bad_words", "bad_words are not supported; use logit_bias"),
    (
        "allowed_token_ids",
        "allowed_token_ids are not supported; use response_format or logit_bias",
    ),
    (
        "guided_regex",
        "guided_regex is not supported; use response_format with a JSON schema",
    ),
    (
        "guided_choice",
        "guided_choice is not supported; use response_format with an enum",
    ),
    (
        "guided_grammar",
        "guided_grammar is not supported; use response_format with a JSON schema",
    ),
];

pub(crate) fn refuse_unsupported(fields: &Fields<'_>) -> Result<(), ApiError> {
    for &(field, advice) in REFUSED {
        if fields.raw(field).is_some_and(asks_for_something) {
            return Err(ApiError::invalid(field, advice));
        }
    }
    refuse_tools(fields, "tools", "tool_choice")?;
    refuse_tools(fields, "functions", "function_call")?;
    refuse_modalities(fields)?;
    refuse_best_of(fields)
}

fn asks_for_something(raw: &str) -> bool {
    let compact: String = raw
        .chars()
        .filter(|c| !c.is_whitespace())
        .take("false".len() + 1)
        .collect();
    !matches!(
        compact.as_str(),
        "null" | "false" | "0" | "\"\"" | "[]" | "{}"
    )
}

fn refuse_tools(
    fields: &Fields<'_>,
    list: &'static str,
    choice: &'static str,
) -> Result<(), ApiError> {
    let given = fields.raw(list).is_some_and(asks_for_something);
    let declined = fields.raw(choice) == Some("\"none\"");
    if given && !declined {
        return Err(ApiError::invalid(
            list,
            format!("tool calling is not supported; leave {list} out or set {choice} to \"none\""),
        ));
    }
    Ok(())
}

fn refuse_modalities(fields: &Fields<'_>) -> Result<(), ApiError> {
    let modalities: Vec<Value> = fields.or("modalities", Vec::new())?;
    match modalities.iter().find(|kind| kind.as_str() != Some("text")) {
        None => Ok(()),
        Some(kind) => {
            let shown: String = kind.to_string().chars().take(MAX_NAME_BYTES).collect();
            Err(ApiError::invalid(
                "modalities",
                format!("modality {shown} is not supported; ask for [\"text\"]"),
            ))
        }
    }
}

fn refuse_best_of(fields: &Fields<'_>) -> Result<(), ApiError> {
    let n = fields.or("n", 1_u64)?;
    match fields.optional::<u64>("best_of")? {
        Some(best_of) if best_of > n.max(1) => Err(ApiError::invalid(
            "best_of",
            "best_of larger than n is not supported; ask for n answers and choose among them",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str) -> Result<(), ApiError> {
        refuse_unsupported(&Fields::parse(body.as_bytes()).ok().unwrap())
    }

    #[test]
    fn what_changes_the_meaning_is_refused() {
        for (field, body) in [
            ("tools", r#"{"tools": [{}]}"#),
            ("tools", r#"{"tools": [{}], "tool_choice": "auto"}"#),
            ("functions", r#"{"functions": [{}]}"#),
            ("modalities", r#"{"modalities": ["text", "audio"]}"#),
            ("audio", r#"{"audio": {"voice": "x"}}"#),
            ("best_of", r#"{"best_of": 3, "n": 2}"#),
            ("suffix", r#"{"suffix": "end"}"#),
            ("use_beam_search", r#"{"use_beam_search": true}"#),
            (
                "truncate_prompt_tokens",
                r#"{"truncate_prompt_tokens": 10}"#,
            ),
        ] {
            assert_eq!(check(body).unwrap_err().param(), Some(field), "{body}");
        }
    }

    #[test]
    fn what_says_no_or_does_not_matter_is_ignored() {
        for body in [
            r#"{"tools": [], "functions": null}"#,
            r#"{"tools": [{}], "tool_choice": "none"}"#,
            r#"{"modalities": ["text"], "audio": null, "suffix": "", "documents": [ ]}"#,
            r#"{"best_of": 2, "n": 2, "use_beam_search": false}"#,
            r#"{"user": "u", "metadata": {"a": "b"}, "store": true, "service_tier": "auto"}"#,
            r#"{"something_new": {"deeply": ["nested"]}}"#,
        ] {
            assert_eq!(check(body), Ok(()), "{body}");
        }
    }
}
