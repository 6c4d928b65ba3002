//! Reads `tokenizer.json`, and `tokenizer_config.json` for what it says about special tokens.

use std::collections::HashMap;

use serde_json::Value;
use tokenizers::Model as _;

use crate::ModelError;
use crate::config::GenerationConfig;

use super::pieces::{Pieces, Spelling};
use super::trusted::check_stages;
use super::{MAX_VOCAB, Tokenizer};

/// Texts of special tokens as `tokenizer_config.json` names them; templates use them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FolderTexts {
    pub(crate) bos: Option<String>,
    pub(crate) eos: Option<String>,
}

impl FolderTexts {
    /// From `tokenizer_config.json`: tokens are texts, or objects with a `content`.
    pub(crate) fn read(tokenizer_config: &Value) -> Self {
        let text = |name: &str| {
            let value = tokenizer_config.get(name)?;
            let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
            Some(text.to_owned())
        };
        Self {
            bos: text("bos_token"),
            eos: text("eos_token"),
        }
    }
}

/// Reads `tokenizer.json`.
pub(crate) fn read(
    file: &str,
    bytes: &[u8],
    texts: &FolderTexts,
    generation: &GenerationConfig,
) -> Result<Tokenizer, ModelError> {
    let json: Value = serde_json::from_slice(bytes)
        .map_err(|error| ModelError::malformed(file, error.to_string()))?;
    check_model(file, &json)?;
    check_stages(file, &json)?;
    let (spelling, strips_leading_space) = spelling(file, &json)?;
    let given_ids = added_ids(&json);
    // As it was checked: of what a file says twice, the crate would read both.
    let checked = json.to_string();
    drop(json);
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(checked)
        .map_err(|error| ModelError::malformed(file, error.to_string()))?;
    // Files often keep the truncation of some training run; a server must not cut prompts in silence.
    tokenizer
        .with_truncation(None)
        .map_err(|error| ModelError::malformed(file, error.to_string()))?;
    tokenizer.with_padding(None);
    check_added_ids(file, &tokenizer, &given_ids)?;
    let pieces = pieces(&tokenizer, spelling);
    let id = |text: &Option<String>| tokenizer.token_to_id(text.as_deref()?);
    let bos = id(&texts.bos).or(generation.bos);
    let mut eos: Vec<u32> = id(&texts.eos).into_iter().collect();
    for id in &generation.eos {
        if !eos.contains(id) {
            eos.push(*id);
        }
    }
    Ok(Tokenizer {
        parsing: tokenizer,
        literal: Default::default(),
        seams: Default::default(),
        words: Default::default(),
        pieces,
        bos,
        eos,
        prepend_bos: false,
        strips_leading_space,
    })
}

/// The crate builds its merges on trust and would panic on some that join nothing, so they are
/// checked before it sees them; ids are checked because they become indices.
fn check_model(file: &str, json: &Value) -> Result<(), ModelError> {
    let model = json.get("model").unwrap_or(&Value::Null);
    let kind = model.get("type").and_then(Value::as_str).unwrap_or("BPE");
    if kind != "BPE" {
        return Err(ModelError::unsupported(
            file,
            format!("tokenizer model `{kind}`"),
            "BPE is",
        ));
    }
    for affix in ["continuing_subword_prefix", "end_of_word_suffix"] {
        let text = model.get(affix).and_then(Value::as_str).unwrap_or_default();
        if !text.is_empty() {
            return Err(ModelError::unsupported(file, affix, "it must be empty"));
        }
    }
    let Some(vocab) = model.get("vocab").and_then(Value::as_object) else {
        return Err(ModelError::malformed(file, "has no model.vocab"));
    };
    let small = |id: &Value| id.as_u64().is_some_and(|id| id < MAX_VOCAB as u64);
    if !vocab.values().all(small) {
        let reason = format!("has token ids that are not numbers below {MAX_VOCAB}");
        return Err(ModelError::malformed(file, reason));
    }
    let merges = model.get("merges").and_then(Value::as_array);
    for (rank, merge) in merges.into_iter().flatten().enumerate() {
        let parts = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(parts) => match &parts[..] {
                [Value::String(left), Value::String(right)] => {
                    Some((left.as_str(), right.as_str()))
                }
                _ => None,
            },
            _ => None,
        };
        let joins = parts.is_some_and(|(left, right)| {
            vocab.contains_key(left)
                && vocab.contains_key(right)
                && vocab.contains_key(&format!("{left}{right}"))
        });
        if !joins {
            let reason = format!("merge {rank} does not join two tokens into a third");
            return Err(ModelError::malformed(file, reason));
        }
    }
    Ok(())
}

/// How tokens spell bytes, and whether decoding drops a leading space, out of the decoder's stages.
fn spelling(file: &str, json: &Value) -> Result<(Spelling, bool), ModelError> {
    let stages = stages(json.get("decoder"), "decoders");
    let find = |kind: &str| stages.iter().find(|stage| is(stage, kind));
    if find("ByteLevel").is_some() {
        return Ok((Spelling::ByteLevel, false));
    }
    let byte_fallback = find("ByteFallback").is_some();
    let sentence_piece = Spelling::SentencePiece { byte_fallback };
    if let Some(metaspace) = find("Metaspace") {
        let scheme = metaspace.get("prepend_scheme").and_then(Value::as_str);
        let old_flag = metaspace.get("add_prefix_space").and_then(Value::as_bool);
        let prepends = scheme.map_or(old_flag.unwrap_or(true), |scheme| scheme != "never");
        return Ok((sentence_piece, prepends));
    }
    let replaces_spaces = stages.iter().any(|stage| {
        is(stage, "Replace") && stage.pointer("/pattern/String") == Some(&Value::from("▁"))
    });
    if replaces_spaces {
        let strips = find("Strip")
            .and_then(|stage| stage.get("start")?.as_u64())
            .is_some_and(|start| start > 0);
        return Ok((sentence_piece, strips));
    }
    let pre_tokenizers = self::stages(json.get("pre_tokenizer"), "pretokenizers");
    if stages.is_empty() && pre_tokenizers.iter().any(|stage| is(stage, "ByteLevel")) {
        return Ok((Spelling::ByteLevel, false));
    }
    Err(ModelError::unsupported(
        file,
        "this tokenizer's decoder",
        "ByteLevel, Metaspace and the SentencePiece sequence are",
    ))
}

fn is(stage: &Value, kind: &str) -> bool {
    stage.get("type").and_then(Value::as_str) == Some(kind)
}

/// The stages of a pipeline part: itself, or the members of a sequence.
fn stages<'a>(part: Option<&'a Value>, members: &str) -> Vec<&'a Value> {
    match part {
        None | Some(Value::Null) => Vec::new(),
        Some(part) if is(part, "Sequence") => {
            let members = part.get(members).and_then(Value::as_array);
            members.into_iter().flatten().collect()
        }
        Some(part) => vec![part],
    }
}

fn added_ids(json: &Value) -> HashMap<String, u64> {
    let added = json.get("added_tokens").and_then(Value::as_array);
    added
        .into_iter()
        .flatten()
        .filter_map(|token| {
            let content = token.get("content")?.as_str()?.to_owned();
            Some((content, token.get("id")?.as_u64()?))
        })
        .collect()
}

/// The crate numbers added tokens itself; where that disagrees with the file, answers would be noise.
fn check_added_ids(
    file: &str,
    tokenizer: &tokenizers::Tokenizer,
    given: &HashMap<String, u64>,
) -> Result<(), ModelError> {
    for (content, id) in given {
        let used = tokenizer.token_to_id(content).map(u64::from);
        if used.is_some_and(|used| used != *id || used >= MAX_VOCAB as u64) {
            let reason =
                format!("gives token `{content}` the id {id}, which does not fit its vocabulary");
            return Err(ModelError::malformed(file, reason));
        }
    }
    Ok(())
}

fn pieces(tokenizer: &tokenizers::Tokenizer, spelling: Spelling) -> Pieces {
    let added = tokenizer.get_added_tokens_decoder();
    let plain = tokenizer
        .get_model()
        .get_vocab()
        .into_iter()
        .filter(|(_, id)| !added.contains_key(id))
        .map(|(token, id)| (id, spelling.bytes_of(&token), false));
    let added = added
        .iter()
        .map(|(id, token)| (*id, token.content.clone().into_bytes(), token.special));
    Pieces::new(plain.chain(added))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read_json(json: &Value) -> Result<Tokenizer, ModelError> {
        let bytes = serde_json::to_vec(json).unwrap();
        read(
            "tokenizer.json",
            &bytes,
            &FolderTexts::default(),
            &GenerationConfig::default(),
        )
    }

    fn small() -> Value {
        json!({
            "version": "1.0", "added_tokens": [],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
        })
    }

    #[test]
    fn truncation_in_the_file_is_ignored() {
        let tokenizer = read_json(&small()).unwrap();
        let ids = tokenizer
            .encode("abbab", super::super::Specials::PARSE)
            .unwrap();
        assert_eq!(ids, [2, 1, 2]);
    }

    #[test]
    fn merges_that_join_nothing_are_refused() {
        let mut json = small();
        json["model"]["merges"] = json!([["ab", "ab"]]);
        let error = read_json(&json).unwrap_err();
        assert!(error.to_string().contains("merge 0"), "{error}");
    }

    #[test]
    fn huge_ids_and_moved_tokens_are_refused() {
        let mut json = small();
        json["model"]["vocab"]["b"] = json!(u32::MAX);
        assert!(read_json(&json).is_err());
        let mut json = small();
        json["added_tokens"] = json!([{"id": 9, "content": "<end>", "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false, "special": true}]);
        assert!(
            read_json(&json)
                .unwrap_err()
                .to_string()
                .contains("`<end>`")
        );
    }
}
