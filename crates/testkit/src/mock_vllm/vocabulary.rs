//! Text to tokens and back: a toy that every test understands, or a model's own tokenizer.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use model::{
    ChatTemplate, Compute, Conversation, LoadOptions, Model, ModelSource, Specials, Tier, Tokenizer,
};
use serde_json::Value;

/// Bytes in a token of the toy vocabulary.
const TOKEN_BYTES: usize = 4;

/// What answers are made of: words that are one token here and in almost every vocabulary.
const WORDS: [&str; 32] = [
    " the", " of", " and", " to", " in", " is", " was", " for", " on", " are", " as", " it",
    " his", " her", " he", " at", " by", " an", " be", " or", " had", " not", " but", " one",
    " we", " all", " can", " has", " out", " who", " new", " two",
];

/// How a mock reads and writes.
#[derive(Clone, Debug)]
pub enum Vocabulary {
    /// A token begins at every space, at every `<` and after every line feed, and has at most four bytes, which
    /// are its id. A text and what is appended to it therefore tokenise as they do alone.
    Words,
    /// A model's tokenizer and chat template; answers are made of those words that it has as tokens.
    Model(Arc<ModelVocabulary>),
}

/// See [`Vocabulary::Model`].
#[derive(Debug)]
pub struct ModelVocabulary {
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    words: Vec<(u32, &'static str)>,
}

impl Vocabulary {
    /// With a model's tokenizer and template. `None` if it has none of our words as single tokens.
    pub fn model(tokenizer: Arc<Tokenizer>, template: Option<ChatTemplate>) -> Option<Self> {
        let words: Vec<(u32, &str)> = WORDS
            .into_iter()
            .filter_map(
                |word| match tokenizer.encode(word, Specials::NONE).ok()?[..] {
                    [id] if tokenizer.token_bytes(id) == Some(word.as_bytes()) => Some((id, word)),
                    _ => None,
                },
            )
            .collect();
        (!words.is_empty()).then(|| {
            Self::Model(Arc::new(ModelVocabulary {
                tokenizer,
                template,
                words,
            }))
        })
    }

    /// With the tokenizer and template of a GGUF file or a Hugging Face folder.
    pub fn load(path: &Path) -> Result<Self, String> {
        let options = LoadOptions {
            quantize: None,
            chat_template: None,
            compute: Arc::new(Compute::new(Tier::detect(), 1)),
            progress: &|_| {},
        };
        let loaded = Model::load(&ModelSource::Path(path.to_owned()), &options)
            .map_err(|error| error.to_string())?;
        let (_, tokenizer, template) = loaded.into_parts();
        Self::model(tokenizer, template)
            .ok_or_else(|| format!("{} has none of our words as a token", path.display()))
    }

    /// The tokens of a plain prompt.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        match self {
            Self::Words => encode_words(text.as_bytes()),
            Self::Model(model) => model
                .tokenizer
                .encode(text, Specials::PARSE_AND_ADD)
                .unwrap_or_default(),
        }
    }

    /// The tokens of a rendered chat, which has its special tokens written out.
    pub fn encode_rendered(&self, text: &str) -> Vec<u32> {
        match self {
            Self::Words => encode_words(text.as_bytes()),
            Self::Model(model) => model
                .tokenizer
                .encode(text, Specials::PARSE)
                .unwrap_or_default(),
        }
    }

    /// The bytes that tokens stand for.
    pub fn bytes(&self, tokens: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for token in tokens {
            match self {
                Self::Words => {
                    let padded = token.to_le_bytes();
                    bytes.extend(padded.into_iter().take_while(|byte| *byte != 0));
                }
                Self::Model(model) => {
                    bytes
                        .extend_from_slice(model.tokenizer.token_bytes(*token).unwrap_or_default());
                }
            }
        }
        bytes
    }

    /// The prompt of a chat. With `continues`, the last message is the beginning of the answer.
    pub fn render(&self, messages: &[Value], continues: bool) -> Result<String, String> {
        let (before, begun) = match messages.split_last() {
            Some((last, before)) if continues => (before, content(last)),
            _ => (messages, String::new()),
        };
        let mut prompt = match self {
            Self::Model(model) => model
                .template
                .as_ref()
                .ok_or("the model has no chat template")?
                .render(&Conversation {
                    messages: before,
                    tools: None,
                    add_generation_prompt: true,
                    arguments: None,
                    now: SystemTime::UNIX_EPOCH,
                })
                .map_err(|error| error.to_string())?,
            Self::Words => {
                let mut prompt = String::new();
                for message in before {
                    let role = message["role"].as_str().unwrap_or_default();
                    prompt.push_str(&format!("<{role}>\n{}\n", content(message)));
                }
                prompt.push_str("<assistant>\n");
                prompt
            }
        };
        prompt.push_str(&begun);
        Ok(prompt)
    }

    /// A word chosen by a number.
    pub(super) fn word(&self, chance: u64) -> (u32, &'static str) {
        let pick = |count: usize| (chance % count.max(1) as u64) as usize;
        match self {
            Self::Words => {
                let word = WORDS[pick(WORDS.len())];
                (word_id(word.as_bytes()), word)
            }
            Self::Model(model) => model.words[pick(model.words.len())],
        }
    }
}

/// The text of a message, whether it is a string or a list of parts.
fn content(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}

fn encode_words(text: &[u8]) -> Vec<u32> {
    let mut tokens = Vec::with_capacity(text.len() / TOKEN_BYTES + 1);
    let mut start = 0;
    for at in 1..=text.len() {
        let ends = at == text.len()
            || at - start == TOKEN_BYTES
            || matches!(text[at], b' ' | b'<')
            || text[at - 1] == b'\n';
        if ends {
            tokens.push(word_id(&text[start..at]));
            start = at;
        }
    }
    tokens
}

fn word_id(bytes: &[u8]) -> u32 {
    let mut padded = [0; TOKEN_BYTES];
    padded[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(padded)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_appended_answer_tokenises_as_it_does_alone() {
        let words = Vocabulary::Words;
        let prompt = words
            .render(&[json!({"role": "user", "content": "Hello there"})], false)
            .unwrap();
        let answer = " the of and";
        let mut apart = words.encode(&prompt);
        apart.extend(words.encode(answer));
        assert_eq!(words.encode(&format!("{prompt}{answer}")), apart);
        assert_eq!(words.encode(answer).len(), 3);
        assert_eq!(words.bytes(&apart), format!("{prompt}{answer}").as_bytes());
    }

    #[test]
    fn a_continued_message_is_the_beginning_of_the_answer() {
        let question = json!({"role": "user", "content": "Why?"});
        let begun = json!({"role": "assistant", "content": " the of"});
        let words = Vocabulary::Words;
        let asked = words
            .render(std::slice::from_ref(&question), false)
            .unwrap();
        let continued = words.render(&[question, begun], true).unwrap();
        assert_eq!(continued, format!("{asked} the of"));
    }
}
