//! Whether two models speak of the same tokens. A draft model may only guess for a target if every id means
//! the same to both; equal sizes say little.

use serde_json::Value;

use super::Tokenizer;

impl Tokenizer {
    /// The first entry in which another tokenizer differs from this one, in words; `None` if both agree in
    /// sizes, tokens, special tokens and merges.
    pub fn first_difference(&self, other: &Self) -> Option<String> {
        let sizes = (self.vocab_size(), other.vocab_size());
        if sizes.0 != sizes.1 {
            return Some(format!("{} tokens against {}", sizes.0, sizes.1));
        }
        let differs = |id: &u32| {
            self.token_bytes(*id) != other.token_bytes(*id)
                || self.is_special(*id) != other.is_special(*id)
        };
        if let Some(id) = (0..sizes.0 as u32).find(differs) {
            return Some(format!(
                "token {id} is {} against {}",
                self.describe(id),
                other.describe(id)
            ));
        }
        if self.bos != other.bos {
            return Some(format!(
                "the token that begins a text is {} against {}",
                self.named(self.bos.as_slice()),
                other.named(other.bos.as_slice())
            ));
        }
        if self.eos != other.eos {
            return Some(format!(
                "the tokens that end a text are {} against {}",
                self.named(&self.eos),
                other.named(&other.eos)
            ));
        }
        self.first_different_merge(other)
    }

    fn describe(&self, id: u32) -> String {
        let kind = if self.is_special(id) { "special " } else { "" };
        match self.token_bytes(id) {
            Some(_) => format!("{kind}{:?}", self.token_text(id)),
            None => "missing".to_owned(),
        }
    }

    fn named(&self, ids: &[u32]) -> String {
        let named = ids
            .iter()
            .map(|&id| format!("{id} ({})", self.describe(id)));
        let named: Vec<String> = named.collect();
        if named.is_empty() {
            return "none".to_owned();
        }
        named.join(", ")
    }

    fn first_different_merge(&self, other: &Self) -> Option<String> {
        let (ours, theirs) = (self.merges(), other.merges());
        let at = (0..ours.len().max(theirs.len())).find(|&at| ours.get(at) != theirs.get(at))?;
        let show = |merge: Option<&Value>| merge.map_or("missing".to_owned(), Value::to_string);
        Some(format!(
            "merge {at} is {} against {}",
            show(ours.get(at)),
            show(theirs.get(at))
        ))
    }

    /// In their order; none for tokenizers that do not merge.
    fn merges(&self) -> Vec<Value> {
        let model = serde_json::to_value(self.parsing.get_model()).unwrap_or_default();
        match model {
            Value::Object(mut fields) => match fields.remove("merges") {
                Some(Value::Array(merges)) => merges,
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tokenizer(tokens: &[&str], special: &str, merges: &[(&str, &str)]) -> Tokenizer {
        let vocab: serde_json::Map<String, Value> = tokens
            .iter()
            .enumerate()
            .map(|(id, token)| ((*token).to_owned(), json!(id)))
            .collect();
        let special_id = tokens.iter().position(|token| *token == special);
        let file = json!({
            "version": "1.0",
            "added_tokens": [{
                "id": special_id, "content": special, "special": true, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false
            }],
            "pre_tokenizer": {
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                "use_regex": true
            },
            "decoder": {
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                "use_regex": true
            },
            "model": {"type": "BPE", "vocab": vocab, "merges": merges}
        });
        Tokenizer::from_json("test", file.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_first_difference_is_named() {
        let merges = [("a", "b"), ("ab", "c")];
        let tokens = ["a", "b", "c", "ab", "abc", "<s>"];
        let target = tokenizer(&tokens, "<s>", &merges);
        assert_eq!(target.first_difference(&target), None);

        let other = tokenizer(&["a", "b", "c", "ab", "abc", "d", "<s>"], "<s>", &merges);
        assert_eq!(
            target.first_difference(&other).unwrap(),
            "6 tokens against 7"
        );

        let other = tokenizer(&["a", "c", "b", "ab", "abc", "<s>"], "<s>", &merges);
        let difference = target.first_difference(&other).unwrap();
        assert_eq!(difference, r#"token 1 is "b" against "c""#);

        let other = tokenizer(&tokens, "c", &merges);
        let difference = target.first_difference(&other).unwrap();
        assert_eq!(difference, r#"token 2 is "c" against special "c""#);

        let other = tokenizer(&tokens, "<s>", &merges[..1]);
        let difference = target.first_difference(&other).unwrap();
        assert!(difference.starts_with("merge 1 is "), "{difference}");
        assert!(difference.ends_with("against missing"), "{difference}");
    }

    #[test]
    fn texts_must_begin_and_end_alike() {
        let read = || tokenizer(&["a", "b", "<s>"], "<s>", &[]);
        let begins = Tokenizer {
            bos: Some(2),
            ..read()
        };
        assert_eq!(
            read().first_difference(&begins).unwrap(),
            r#"the token that begins a text is none against 2 (special "<s>")"#
        );
        assert_eq!(begins.first_difference(&begins), None);

        let ends = |eos: &[u32]| Tokenizer {
            eos: eos.to_vec(),
            ..read()
        };
        assert_eq!(
            ends(&[2]).first_difference(&ends(&[2, 1])).unwrap(),
            r#"the tokens that end a text are 2 (special "<s>") against 2 (special "<s>"), 1 ("b")"#
        );
        assert_eq!(ends(&[2]).first_difference(&ends(&[2])), None);
    }
}
