//! Answers that must have a form: JSON, or JSON of a schema.
//!
//! A grammar is compiled when a request is submitted, on the caller's thread, so that a bad schema is
//! refused at once and a large one holds nobody up. In the steps it only masks scores, under bounds on
//! the work for each mask.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::error::SubmitError;
use crate::request::Format;
use crate::vocabulary::Vocabulary;

/// Longer tokens are never part of a formatted answer: the tree has no room for them, and real ones are
/// long runs of blanks or marks.
const LONGEST_TOKEN: usize = 1000;

/// Compiles formats for one vocabulary. The tree of its tokens is built with the first format: most
/// servers never see one.
pub(crate) struct Grammars {
    vocabulary: Arc<dyn Vocabulary>,
    factory: OnceLock<Result<ParserFactory, String>>,
}

impl Grammars {
    pub(crate) fn new(vocabulary: Arc<dyn Vocabulary>) -> Self {
        Self {
            vocabulary,
            factory: OnceLock::new(),
        }
    }

    /// One grammar for each of `choices`, in its initial state; none for free text.
    pub(crate) fn compile(
        &self,
        format: &Format,
        choices: usize,
    ) -> Result<Vec<Grammar>, SubmitError> {
        let schema = match format {
            Format::Text => return Ok(Vec::new()),
            Format::JsonObject => json!({"type": "object"}),
            Format::JsonSchema(schema) => schema.clone(),
        };
        // Schemas and vocabularies come from strangers: even an assertion that fails on one of them
        // inside the compiler must only refuse the request.
        catch_unwind(AssertUnwindSafe(|| self.compile_schema(schema, choices)))
            .unwrap_or_else(|_| Err("the schema cannot be compiled".to_owned()))
            .map_err(SubmitError::Format)
    }

    fn compile_schema(&self, schema: Value, choices: usize) -> Result<Vec<Grammar>, String> {
        let factory = self
            .factory
            .get_or_init(|| factory(self.vocabulary.as_ref()))
            .as_ref()
            .map_err(String::clone)?;
        let parser = factory
            .create_parser(TopLevelGrammar::from_json_schema(schema))
            .map_err(|error| error.to_string())?;
        let matcher = Matcher::new(Ok(parser));
        if let Some(error) = matcher.get_error() {
            return Err(error);
        }
        let mut grammars: Vec<Grammar> = (1..choices)
            .map(|_| Grammar {
                matcher: matcher.deep_clone(),
            })
            .collect();
        grammars.push(Grammar { matcher });
        Ok(grammars)
    }
}

fn factory(vocabulary: &dyn Vocabulary) -> Result<ParserFactory, String> {
    let Some(&eos) = vocabulary.eos().first() else {
        return Err("the model has no end-of-text token".to_owned());
    };
    let words: Vec<Vec<u8>> = (0..vocabulary.vocab_size() as u32)
        .map(|id| {
            let bytes = vocabulary.token_bytes(id).unwrap_or_default();
            if bytes.len() > LONGEST_TOKEN {
                Vec::new()
            } else if vocabulary.is_special(id) {
                // Markers are no text: the first byte keeps them apart from tokens spelt the same.
                [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat()
            } else {
                bytes.to_vec()
            }
        })
        .collect();
    let info = TokRxInfo::new(words.len() as u32, eos);
    let trie = TokTrie::from(&info, &words).with_eos_tokens(vocabulary.eos());
    let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory = ParserFactory::new_simple(&environment).map_err(|error| error.to_string())?;
    factory.quiet();
    let limits = factory.limits_mut();
    // About 5 ms for one mask at the parser's stated 20k items and 14k fuel a millisecond.
    limits.step_max_items = 50_000;
    limits.step_lexer_fuel = 70_000;
    limits.verbose_errors = false;
    Ok(factory)
}

/// Where an answer stands in its grammar.
pub(crate) struct Grammar {
    matcher: Matcher,
}

impl Grammar {
    /// Makes all tokens impossible that the grammar does not allow next.
    pub(crate) fn mask(&mut self, row: &mut [f32]) -> Result<(), String> {
        let allowed = self
            .matcher
            .compute_mask_or_eos()
            .map_err(|error| error.to_string())?;
        let mut words = allowed.as_slice().iter();
        for scores in row.chunks_mut(u32::BITS as usize) {
            let word = words.next().copied().unwrap_or(0);
            if word == u32::MAX {
                continue;
            }
            for (bit, score) in scores.iter_mut().enumerate() {
                if word >> bit & 1 == 0 {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
        Ok(())
    }

    /// Goes on with a token that was chosen. `true` when the answer is complete.
    pub(crate) fn advance(&mut self, id: u32) -> Result<bool, String> {
        self.matcher
            .consume_token(id)
            .map_err(|error| error.to_string())?;
        Ok(self.matcher.is_stopped())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::tests::Bytes;

    fn grammars() -> Grammars {
        Grammars::new(Arc::new(Bytes))
    }

    fn allowed(grammar: &mut Grammar) -> Vec<u32> {
        let mut row = vec![0.0; Bytes.vocab_size()];
        grammar.mask(&mut row).unwrap();
        (0..row.len() as u32)
            .filter(|&id| row[id as usize] == 0.0)
            .collect()
    }

    #[test]
    fn only_what_the_schema_allows_is_possible_and_the_end_is_seen() {
        let schema = json!({
            "type": "object",
            "properties": {"a": {"enum": [1, 2]}},
            "required": ["a"],
            "additionalProperties": false,
        });
        let mut both = grammars().compile(&Format::JsonSchema(schema), 2).unwrap();
        let (mut grammar, mut other) = (both.remove(0), both.remove(0));
        let text = br#"{"a":2}"#;
        for (i, &byte) in text.iter().enumerate() {
            let id = u32::from(byte);
            assert!(allowed(&mut grammar).contains(&id), "at {i}");
            assert!(!allowed(&mut grammar).contains(&u32::from(b'x')));
            assert_eq!(grammar.advance(id), Ok(i + 1 == text.len()));
        }
        assert!(allowed(&mut other).contains(&u32::from(b'{')));
    }

    #[test]
    fn a_bad_schema_is_refused_when_it_is_compiled() {
        let bad = Format::JsonSchema(json!({"type": "nonsense"}));
        assert!(matches!(
            grammars().compile(&bad, 1),
            Err(SubmitError::Format(_))
        ));
        assert!(matches!(grammars().compile(&Format::Text, 1), Ok(none) if none.is_empty()));
    }
}
