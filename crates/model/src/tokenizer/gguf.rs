//! Builds a tokenizer from GGUF metadata.

use std::collections::{HashMap, HashSet};

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use crate::ModelError;
use crate::gguf::{Gguf, Value};

use super::pieces::{Pieces, Spelling};
use super::scores::{self, Piece};
use super::{MAX_VOCAB, Tokenizer};

/// Tokens that end a turn or a text under these names, whatever ids the file lists: chat models are
/// trained to stop at them, and many files name only one.
const END_NAMES: [&str; 6] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "</s>",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Byte,
    Unused,
}

impl Kind {
    fn from_code(code: u64) -> Self {
        match code {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }

    fn is_special(self) -> bool {
        matches!(self, Self::Unknown | Self::Control)
    }
}

/// Builds the tokenizer that a GGUF file describes.
pub(crate) fn read(gguf: &Gguf<'_>) -> Result<Tokenizer, ModelError> {
    let file = gguf.file();
    let vocabulary = Vocabulary::read(gguf)?;
    let model = gguf.text(&key("model"))?;
    let (built, spelling, add_bos_by_default) = match model {
        Some("gpt2") => byte_level(gguf, &vocabulary)?,
        Some("llama") => sentence_piece(gguf, &vocabulary)?,
        other => {
            return Err(ModelError::unsupported(
                file,
                format!("tokenizer model `{}`", other.unwrap_or("(none)")),
                "gpt2 and llama are",
            ));
        }
    };
    let strips_leading_space =
        model == Some("llama") && gguf.flag(&key("add_space_prefix"))?.unwrap_or(true);
    let bos = vocabulary.id(gguf, "bos_token_id")?;
    let add_bos = gguf
        .flag(&key("add_bos_token"))?
        .unwrap_or(add_bos_by_default);
    let pieces = Pieces::new(vocabulary.tokens.iter().zip(0..).map(|((text, kind), id)| {
        let bytes = match kind {
            Kind::Control | Kind::UserDefined | Kind::Unknown => text.as_bytes().to_vec(),
            Kind::Normal | Kind::Byte | Kind::Unused => spelling.bytes_of(text),
        };
        (id, bytes, kind.is_special())
    }));
    Ok(Tokenizer {
        parsing: built,
        literal: Default::default(),
        seams: Default::default(),
        words: Default::default(),
        pieces,
        bos,
        eos: vocabulary.ends(gguf)?,
        prepend_bos: add_bos,
        strips_leading_space,
    })
}

fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

/// Tokens in the order of their ids, and the ids of their texts.
struct Vocabulary<'a> {
    tokens: Vec<(&'a str, Kind)>,
    ids: HashMap<&'a str, u32>,
}

impl<'a> Vocabulary<'a> {
    fn read(gguf: &Gguf<'a>) -> Result<Self, ModelError> {
        let file = gguf.file();
        let missing =
            || ModelError::malformed(file, format!("metadata `{}` is missing", key("tokens")));
        let texts = gguf.array(&key("tokens"))?.ok_or_else(missing)?;
        if texts.len() > MAX_VOCAB {
            let reason = format!("has {} tokens, more than {MAX_VOCAB}", texts.len());
            return Err(ModelError::malformed(file, reason));
        }
        let kinds: Vec<Kind> = match gguf.array(&key("token_type"))? {
            Some(kinds) if kinds.len() == texts.len() => kinds.iter().map(kind_of).collect(),
            Some(kinds) => {
                let (found, expected) = (kinds.len(), texts.len());
                let reason = format!("has {found} token types for {expected} tokens");
                return Err(ModelError::malformed(file, reason));
            }
            None => vec![Kind::Normal; texts.len()],
        };
        let mut tokens = Vec::with_capacity(texts.len());
        let mut ids = HashMap::with_capacity(texts.len());
        for ((value, kind), id) in texts.iter().zip(kinds).zip(0u32..) {
            let Value::String(text) = value else {
                let reason = format!("metadata `{}` is not an array of texts", key("tokens"));
                return Err(ModelError::malformed(file, reason));
            };
            // Some files repeat padding tokens; the first keeps the name.
            ids.entry(text).or_insert(id);
            tokens.push((text, kind));
        }
        Ok(Self { tokens, ids })
    }

    fn id(&self, gguf: &Gguf<'_>, name: &str) -> Result<Option<u32>, ModelError> {
        let id = gguf.count(&key(name))?;
        Ok(id
            .filter(|id| *id < self.tokens.len())
            .and_then(|id| u32::try_from(id).ok()))
    }

    fn ends(&self, gguf: &Gguf<'_>) -> Result<Vec<u32>, ModelError> {
        let mut ends = Vec::new();
        for name in ["eos_token_id", "eot_token_id", "eom_token_id"] {
            ends.extend(self.id(gguf, name)?);
        }
        let named = END_NAMES
            .iter()
            .filter_map(|name| self.ids.get(name).copied());
        ends.extend(
            named.filter(|id| matches!(self.tokens.get(*id as usize), Some((_, Kind::Control)))),
        );
        let mut seen = HashSet::new();
        ends.retain(|id| seen.insert(*id));
        Ok(ends)
    }

    fn model_vocab(&self) -> Vocab {
        self.ids
            .iter()
            .map(|(text, id)| ((*text).to_owned(), *id))
            .collect()
    }

    fn added_tokens(&self) -> Vec<AddedToken> {
        self.tokens
            .iter()
            .filter(|(text, kind)| {
                !text.is_empty() && (kind.is_special() || *kind == Kind::UserDefined)
            })
            .map(|(text, kind)| AddedToken {
                content: (*text).to_owned(),
                single_word: false,
                lstrip: false,
                rstrip: false,
                normalized: false,
                special: kind.is_special(),
            })
            .collect()
    }
}

fn kind_of(value: Value<'_>) -> Kind {
    match value {
        Value::Unsigned(code) => Kind::from_code(code),
        Value::Signed(code) => Kind::from_code(u64::try_from(code).unwrap_or_default()),
        _ => Kind::Normal,
    }
}

type Built = (tokenizers::Tokenizer, Spelling, bool);

fn byte_level(gguf: &Gguf<'_>, vocabulary: &Vocabulary<'_>) -> Result<Built, ModelError> {
    let rule = SplitRule::read(gguf)?;
    let merges = stored_merges(gguf, vocabulary)?;
    let model = BPE::builder()
        .vocab_and_merges(vocabulary.model_vocab(), merges)
        .ignore_merges(rule.whole_words_first())
        .build();
    let mut tokenizer = tokenizers::Tokenizer::new(model.map_err(|error| broken(gguf, error))?);
    let pre_tokenizer = rule.pre_tokenizer().map_err(|error| broken(gguf, error))?;
    tokenizer.with_pre_tokenizer(Some(pre_tokenizer));
    add_tokens(gguf, &mut tokenizer, vocabulary)?;
    Ok((tokenizer, Spelling::ByteLevel, rule.adds_bos()))
}

fn sentence_piece(gguf: &Gguf<'_>, vocabulary: &Vocabulary<'_>) -> Result<Built, ModelError> {
    let merges = match gguf.array(&key("merges"))? {
        Some(_) => stored_merges(gguf, vocabulary)?,
        None => merges_by_score(gguf, vocabulary)?,
    };
    let mut builder = BPE::builder()
        .vocab_and_merges(vocabulary.model_vocab(), merges)
        .byte_fallback(true)
        .fuse_unk(true);
    let unknown = vocabulary
        .tokens
        .iter()
        .find(|(_, kind)| *kind == Kind::Unknown);
    if let Some((unknown, _)) = unknown {
        builder = builder.unk_token((*unknown).to_owned());
    }
    let model = builder.build().map_err(|error| broken(gguf, error))?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
    if gguf.flag(&key("add_space_prefix"))?.unwrap_or(true) {
        normalizers.push(Prepend::new("▁".to_owned()).into());
    }
    let spaces = Replace::new(" ", "▁").map_err(|error| broken(gguf, error))?;
    normalizers.push(spaces.into());
    tokenizer
        .with_normalizer(Some(Normalizers::new(normalizers)))
        .map_err(|error| broken(gguf, error))?;
    add_tokens(gguf, &mut tokenizer, vocabulary)?;
    let spelling = Spelling::SentencePiece {
        byte_fallback: true,
    };
    Ok((tokenizer, spelling, true))
}

fn add_tokens(
    gguf: &Gguf<'_>,
    tokenizer: &mut tokenizers::Tokenizer,
    vocabulary: &Vocabulary<'_>,
) -> Result<(), ModelError> {
    tokenizer
        .add_tokens(vocabulary.added_tokens())
        .map(|_| ())
        .map_err(|error| broken(gguf, error))
}

fn broken(gguf: &Gguf<'_>, error: tokenizers::Error) -> ModelError {
    ModelError::malformed(gguf.file(), format!("tokenizer: {error}"))
}

/// Merges written as `left right`. Those whose parts or result are no tokens are refused here: the
/// crate that uses them trusts that they are.
fn stored_merges(
    gguf: &Gguf<'_>,
    vocabulary: &Vocabulary<'_>,
) -> Result<Vec<(String, String)>, ModelError> {
    let file = gguf.file();
    let Some(merges) = gguf.array(&key("merges"))? else {
        let reason = format!("metadata `{}` is missing", key("merges"));
        return Err(ModelError::malformed(file, reason));
    };
    merges
        .iter()
        .enumerate()
        .map(|(rank, value)| {
            let Value::String(text) = value else {
                return Err(ModelError::malformed(
                    file,
                    format!("merge {rank} is not a text"),
                ));
            };
            // The left part may itself begin with a space in vocabularies that are not byte-level.
            let cut = text.char_indices().skip(1).find(|(_, c)| *c == ' ');
            let parts = cut.map(|(at, _)| (&text[..at], &text[at + 1..]));
            let known = |token: &str| vocabulary.ids.contains_key(token);
            match parts {
                Some((left, right))
                    if known(left) && known(right) && known(&format!("{left}{right}")) =>
                {
                    Ok((left.to_owned(), right.to_owned()))
                }
                _ => {
                    let reason = format!("merge {rank} does not join two tokens into a third");
                    Err(ModelError::malformed(file, reason))
                }
            }
        })
        .collect()
}

fn merges_by_score(
    gguf: &Gguf<'_>,
    vocabulary: &Vocabulary<'_>,
) -> Result<Vec<(String, String)>, ModelError> {
    let expected = vocabulary.tokens.len();
    let scores: Vec<f32> = match gguf.array(&key("scores"))? {
        Some(scores) => scores
            .iter()
            .map(|score| match score {
                Value::Float(score) => score as f32,
                _ => 0.0,
            })
            .collect(),
        None => Vec::new(),
    };
    if scores.len() != expected {
        let found = scores.len();
        let reason = format!("has {found} token scores for {expected} tokens");
        return Err(ModelError::malformed(gguf.file(), reason));
    }
    let pieces: Vec<Piece<'_>> = vocabulary
        .tokens
        .iter()
        .zip(scores)
        .filter(|((_, kind), _)| matches!(kind, Kind::Normal | Kind::UserDefined))
        .map(|((text, _), score)| Piece { text, score })
        .collect();
    Ok(scores::merges(&pieces, &vocabulary.ids))
}

/// How text is cut into words before merging; GGUF names rules after the models that introduced them.
/// The format has no word for normalisation, so texts are taken as they are, as in llama.cpp: Qwen's
/// own `tokenizer.json` would compose accents first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SplitRule {
    Gpt2,
    /// GPT-2's rule, each digit on its own.
    SingleDigits,
    Llama3,
    Qwen2,
    Tekken,
}

pub(super) const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(super) const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(super) const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

impl SplitRule {
    /// A file from before rules had names gets GPT-2's, as `default` does.
    fn read(gguf: &Gguf<'_>) -> Result<Self, ModelError> {
        Ok(match gguf.text(&key("pre"))?.unwrap_or("default") {
            "default" | "gpt-2" | "gpt2" | "olmo" | "phi-2" | "jina-v2-code" => Self::Gpt2,
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" => Self::SingleDigits,
            "llama-bpe" | "llama3" | "llama-v3" | "llama4" => Self::Llama3,
            "qwen2" | "deepseek-r1-qwen" | "megrez" => Self::Qwen2,
            "tekken" => Self::Tekken,
            other => {
                return Err(ModelError::unsupported(
                    gguf.file(),
                    format!("pre-tokenizer `{other}`"),
                    "default, gpt-2, smollm, llama-bpe, qwen2 and tekken are",
                ));
            }
        })
    }

    fn pre_tokenizer(self) -> Result<PreTokenizerWrapper, tokenizers::Error> {
        let split = |regex: &str| {
            let pattern = SplitPattern::Regex(regex.to_owned());
            Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
        };
        let bytes = ByteLevel::new(false, true, false);
        let gpt2 = ByteLevel::new(false, true, true);
        Ok(match self {
            Self::Gpt2 => gpt2.into(),
            Self::SingleDigits => {
                PreTokenizers::new(vec![Digits::new(true).into(), gpt2.into()]).into()
            }
            Self::Llama3 => PreTokenizers::new(vec![split(LLAMA3)?.into(), bytes.into()]).into(),
            Self::Qwen2 => PreTokenizers::new(vec![split(QWEN2)?.into(), bytes.into()]).into(),
            Self::Tekken => PreTokenizers::new(vec![split(TEKKEN)?.into(), bytes.into()]).into(),
        })
    }

    /// Llama 3's and Mistral's vocabularies came from tiktoken, where a word that is a token is taken
    /// whole even if no chain of merges leads to it.
    fn whole_words_first(self) -> bool {
        matches!(self, Self::Llama3 | Self::Tekken)
    }

    fn adds_bos(self) -> bool {
        matches!(self, Self::Llama3 | Self::Tekken)
    }
}
