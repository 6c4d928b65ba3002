//! What the `tokenizers` crate takes on trust: stages over which it panics where a file is wrong, some while it reads them,
//! some with the first text. They are refused before it sees them; what no look at the file can tell is caught.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Map, Value};
use tokenizers::pattern::Pattern;
use tokenizers::utils::SysRegex;

use crate::ModelError;

/// Patterns that find nothing at all in some place mostly do so here.
const PROBE: &str = "a ";

/// What is done with a text. A regular expression with too many ways to match it makes the crate panic, in time bounded by the
/// expression's engine.
pub(super) fn unless_it_panics<T>(
    work: impl FnOnce() -> tokenizers::Result<T>,
) -> tokenizers::Result<T> {
    // Nothing half made is left behind: the crate's and our memories take in what is done.
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err("one of its patterns gives up on this text".into()))
}

/// Checks every stage of a `tokenizer.json` that takes part in encoding.
pub(super) fn check_stages(file: &str, json: &Value) -> Result<(), ModelError> {
    ["normalizer", "pre_tokenizer", "post_processor"]
        .iter()
        .filter_map(|part| json.get(part))
        .try_for_each(|part| check_within(file, part))
}

/// Stages hold stages; how deep, the reader of JSON bounds.
fn check_within(file: &str, value: &Value) -> Result<(), ModelError> {
    match value {
        Value::Object(fields) => {
            check_stage(file, fields)?;
            fields
                .values()
                .try_for_each(|part| check_within(file, part))
        }
        Value::Array(items) => items.iter().try_for_each(|item| check_within(file, item)),
        _ => Ok(()),
    }
}

fn check_stage(file: &str, stage: &Map<String, Value>) -> Result<(), ModelError> {
    let is = |kind: &str| stage.get("type").and_then(Value::as_str) == Some(kind);
    // Its table, a binary one, is followed wherever it points. It belongs to Unigram tokenizers.
    if is("Precompiled") || stage.contains_key("precompiled_charsmap") {
        return Err(ModelError::unsupported(
            file,
            "normalizer `Precompiled`",
            "those of BPE tokenizers are",
        ));
    }
    let is_empty = |name: &str| stage.get(name).and_then(Value::as_str) == Some("");
    let replaces = stage.contains_key("content");
    let flaw = if is_empty("prepend") {
        "puts an empty text in front"
    } else if replaces && stage.get("pattern").is_some_and(finds_nothing) {
        "replaces what is empty"
    } else if is("FixedLength") && stage.get("length").and_then(Value::as_u64) == Some(0) {
        "cuts texts into pieces of length 0"
    } else if !is_template_for_one_text(stage) {
        "has a template for one text that names what it does not have"
    } else {
        return Ok(());
    };
    Err(ModelError::malformed(file, flaw))
}

fn finds_nothing(pattern: &Value) -> bool {
    let text = |kind: &str| pattern.get(kind).and_then(Value::as_str);
    let regex = text("Regex").and_then(|regex| SysRegex::new(regex).ok());
    let found = regex.and_then(|regex| unless_it_panics(|| (&regex).find_matches(PROBE)).ok());
    let is_empty = |((start, end), is_match): ((usize, usize), bool)| is_match && start == end;
    text("String") == Some("") || found.into_iter().flatten().any(is_empty)
}

/// Whether all pieces of a template are there when one text is processed; no template is a good one.
fn is_template_for_one_text(stage: &Map<String, Value>) -> bool {
    let pieces = stage.get("single").and_then(Value::as_array);
    pieces.into_iter().flatten().all(|piece| {
        let special = piece.pointer("/SpecialToken/id").and_then(Value::as_str);
        let known = |name| stage.get("special_tokens")?.get(name);
        piece.pointer("/Sequence/id") != Some(&Value::from("B"))
            && special.is_none_or(|name| known(name).is_some())
    })
}
