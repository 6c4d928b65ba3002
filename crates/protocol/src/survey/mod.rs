//! What a gateway must know of a request that it passes on, read in one pass and without a copy.
//!
//! A request to a fleet goes on as it came: the gateway looks at its top-level fields, [`Edits`] a few and
//! hands on the rest byte for byte. The danger in that is *smuggling*: a body of which we check one reading
//! and the worker acts on another. Three rules make it impossible, and each has its test:
//!
//! 1. Only strict JSON in UTF-8 passes. Lax forms (`NaN`, a byte order mark, control characters, UTF-16) are
//!    refused, so every parser reads the same structure.
//! 2. A top-level key stands once. Which of two wins differs between parsers; we refuse the second, also
//!    when it is spelt with escapes.
//! 3. A field that we act on has its documented type. Where a worker would take `"stream": "yes"` for true,
//!    we refuse it.
//!
//! ```
//! # use forespeak_protocol as protocol;
//! use bytes::Bytes;
//! use protocol::survey::{Edits, Survey};
//!
//! let body = Bytes::from_static(br#"{"model": "m", "cache_salt": "mine", "prompt": "Hi", "stream": true}"#);
//! let survey = Survey::read(&body).unwrap();
//! assert!(survey.stream && !survey.include_usage);
//!
//! let mut edits = Edits::new(&survey, &body);
//! edits.set("cache_salt", "tenant's");
//! assert_eq!(
//!     edits.finish().concat(),
//!     br#"{"cache_salt":"tenant's","model": "m","prompt": "Hi", "stream": true}"#,
//! );
//! ```

mod edits;
mod fields;
#[cfg(test)]
mod oracle;
mod scan;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use serde::de::DeserializeOwned;

use crate::error::{ApiError, ErrorKind};
use crate::limits::{MAX_CHOICES, MAX_MESSAGES, MAX_N, MAX_NAME_BYTES, MAX_PROMPTS};
pub use edits::{Edits, Pieces};
pub use fields::names;
use fields::{Rule, rule_of};
use scan::{Flaw, Scanner, Text, Value};
pub use scan::{Kind, MAX_DEPTH, MAX_NUMBER_BYTES};

/// Top-level fields of a body. vLLM knows under a hundred.
pub const MAX_FIELDS: usize = 128;

/// A field's name: one that all may send, or another.
#[derive(Debug, Clone)]
enum Name {
    Known(&'static Rule),
    Other(Box<str>),
}

impl Name {
    fn as_str(&self) -> &str {
        match self {
            Name::Known(rule) => rule.name,
            Name::Other(name) => name,
        }
    }
}

/// A top-level field and where it stands.
#[derive(Debug, Clone)]
struct Member {
    name: Name,
    /// Where its key begins, quote included.
    start: usize,
    value: Range<usize>,
    kind: Kind,
    items: usize,
    first: Option<Kind>,
}

/// What stands in a body.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// In the order in which they were sent.
    members: Vec<Member>,
    /// The model asked for.
    pub model: Option<Box<str>>,
    /// Whether the answer is to come in pieces.
    pub stream: bool,
    /// Whether the client wants the usage at the end of a stream.
    pub include_usage: bool,
    /// Whether the client wants the usage in every piece of a stream.
    pub continuous_usage: bool,
    /// Most tokens of one answer.
    pub max_tokens: Option<u64>,
    /// Answers to each prompt.
    pub n: u64,
    /// Prompts, each of which is a request of its own to the worker.
    pub prompts: u64,
    /// How much chance there is.
    pub temperature: Option<f64>,
    /// Where the chance comes from.
    pub seed: Option<i64>,
    /// What the client says about its urgency. For vLLM lower goes first.
    pub priority: Option<i64>,
    /// What the client would keep its cache apart with.
    pub cache_salt: Option<Box<str>>,
    /// What the client says about its urgency in OpenAI's words.
    pub service_tier: Option<Box<str>>,
}

impl Survey {
    /// Reads a body.
    ///
    /// # Errors
    /// If it breaks one of the rules above or one of the bounds.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        if let Err(error) = std::str::from_utf8(body) {
            return Err(not_json(Flaw {
                what: "not UTF-8",
                at: error.valid_up_to(),
            }));
        }
        let survey = Self {
            members: members(body)?,
            n: 1,
            prompts: 1,
            ..Self::default()
        };
        survey.with_fields(body)
    }

    /// Where the value of a top-level field stands; `None` if the field is absent or `null`.
    pub fn value(&self, name: &str) -> Option<Range<usize>> {
        self.present(name).map(|member| member.value.clone())
    }

    /// Whether a top-level field is there and not `null`.
    pub fn has(&self, name: &str) -> bool {
        self.present(name).is_some()
    }

    /// What kind of value a top-level field has; `None` if the field is absent.
    pub fn kind(&self, name: &str) -> Option<Kind> {
        self.member(name).map(|member| member.kind)
    }

    /// A top-level switch; `None` if it is absent or something else.
    pub fn switch(&self, body: &[u8], name: &str) -> Option<bool> {
        let member = self.member(name)?;
        let is_switch = member.kind == Kind::Bool;
        is_switch.then(|| body.get(member.value.clone()) == Some(b"true"))
    }

    /// Refuses fields that are neither documented nor among `extra`.
    ///
    /// # Errors
    /// For the first such field, and for one that is larger than it may be.
    pub fn require_allowed(&self, extra: &BTreeSet<String>) -> Result<(), ApiError> {
        for member in &self.members {
            let name = member.name.as_str();
            match &member.name {
                Name::Known(rule) if member.value.len() > rule.max_bytes => {
                    return Err(ApiError::invalid(
                        rule.name,
                        format!(
                            "{name} has {} bytes, over the limit of {}; send less",
                            member.value.len(),
                            rule.max_bytes
                        ),
                    ));
                }
                Name::Other(_) if !extra.contains(name) => {
                    let shown: String = name.chars().take(MAX_NAME_BYTES).collect();
                    return Err(ApiError::invalid(
                        shown.clone(),
                        format!("the field {shown:?} is not allowed here; leave it out"),
                    )
                    .with_code("unknown_field"));
                }
                Name::Known(_) | Name::Other(_) => {}
            }
        }
        Ok(())
    }

    fn member(&self, name: &str) -> Option<&Member> {
        self.members
            .iter()
            .find(|member| member.name.as_str() == name)
    }

    fn present(&self, name: &str) -> Option<&Member> {
        self.member(name).filter(|member| member.kind != Kind::Null)
    }

    fn with_fields(mut self, body: &[u8]) -> Result<Self, ApiError> {
        let text = |name| self.typed::<Box<str>>(body, name, Kind::String, "a string");
        let whole = |name| self.typed::<u64>(body, name, Kind::Number, "a whole number");
        let signed = |name| self.typed::<i64>(body, name, Kind::Number, "a whole number");

        let (model, service_tier) = (text("model")?, text("service_tier")?);
        let stream = self.typed(body, "stream", Kind::Bool, "true or false")?;
        // The newer name wins, as it does at OpenAI and in vLLM.
        let mut max_tokens = None;
        for name in ["max_completion_tokens", "max_output_tokens", "max_tokens"] {
            max_tokens = max_tokens.or(whole(name)?);
        }
        let n = whole("n")?.unwrap_or(1).max(whole("best_of")?.unwrap_or(1));
        let temperature = self.typed(body, "temperature", Kind::Number, "a number")?;
        let (seed, priority) = (signed("seed")?, signed("priority")?);
        let cache_salt = text("cache_salt")?;
        let (include_usage, continuous_usage) = self.usage_options(body)?;

        self.n = n;
        self.prompts = self.count_prompts();
        self.model = model;
        self.stream = stream.unwrap_or(false);
        self.include_usage = include_usage;
        self.continuous_usage = continuous_usage;
        self.max_tokens = max_tokens;
        self.temperature = temperature;
        self.seed = seed;
        self.priority = priority;
        self.cache_salt = cache_salt;
        self.service_tier = service_tier;
        self.within_bounds()
    }

    fn within_bounds(self) -> Result<Self, ApiError> {
        let over = |name: &'static str, count: u64, limit: usize| {
            ApiError::invalid(
                name,
                format!("{name}: {count} is over the limit of {limit}"),
            )
        };
        let model = self.model.as_ref().map_or(0, |name| name.len());
        if model > MAX_NAME_BYTES {
            return Err(over("model", model as u64, MAX_NAME_BYTES));
        }
        let messages = self.member("messages").map_or(0, |member| member.items);
        if messages > MAX_MESSAGES {
            return Err(over("messages", messages as u64, MAX_MESSAGES));
        }
        if self.n > MAX_N as u64 {
            return Err(over("n", self.n, MAX_N));
        }
        if self.prompts > MAX_PROMPTS as u64 {
            return Err(over("prompt", self.prompts, MAX_PROMPTS));
        }
        if self.n.max(1) * self.prompts > MAX_CHOICES as u64 {
            return Err(over("n", self.n.max(1) * self.prompts, MAX_CHOICES));
        }
        Ok(self)
    }

    /// A list of texts or of token lists is a prompt for each of them; a list of tokens is one prompt.
    fn count_prompts(&self) -> u64 {
        match self.member("prompt") {
            Some(prompt) if matches!(prompt.first, Some(Kind::String | Kind::Array)) => {
                prompt.items as u64
            }
            _ => 1,
        }
    }

    /// `include_usage` and `continuous_usage_stats` of `stream_options`.
    fn usage_options(&self, body: &[u8]) -> Result<(bool, bool), ApiError> {
        const NAME: &str = "stream_options";
        let Some(options) = self.present(NAME) else {
            return Ok((false, false));
        };
        if options.kind != Kind::Object {
            return Err(wrong_type(NAME, "an object"));
        }
        let (mut include, mut continuous) = (None, None);
        let options = body.get(options.value.clone()).unwrap_or_default();
        for option in members(options)? {
            let slot = match option.name.as_str() {
                "include_usage" => &mut include,
                "continuous_usage_stats" => &mut continuous,
                _ => continue,
            };
            *slot = match option.kind {
                Kind::Null => None,
                Kind::Bool => Some(options.get(option.value) == Some(b"true")),
                _ => return Err(wrong_type(NAME, "an object of switches")),
            };
        }
        Ok((include.unwrap_or(false), continuous.unwrap_or(false)))
    }

    /// A field that must be of one kind, or absent or `null`.
    fn typed<T: DeserializeOwned>(
        &self,
        body: &[u8],
        name: &'static str,
        kind: Kind,
        expected: &'static str,
    ) -> Result<Option<T>, ApiError> {
        let Some(member) = self.present(name) else {
            return Ok(None);
        };
        let value = body.get(member.value.clone()).unwrap_or_default();
        match serde_json::from_slice(value) {
            Ok(value) if member.kind == kind => Ok(Some(value)),
            _ => Err(wrong_type(name, expected)),
        }
    }
}

/// The members of an object that fills `body`, each name once.
fn members(body: &[u8]) -> Result<Vec<Member>, ApiError> {
    let mut members: Vec<Member> = Vec::with_capacity(16);
    let mut refusal = None;
    let mut scanner = Scanner::new(body);
    scanner.skip_space();
    let walked = scanner.object(|scanner, key| {
        let name = name_of(body, &key).ok_or_else(|| scanner.flaw("a key that is not text"))?;
        let Value {
            kind,
            span,
            items,
            first,
        } = scanner.value(1)?;
        if members.len() == MAX_FIELDS {
            return Err(scanner.flaw("too many fields"));
        }
        if members
            .iter()
            .any(|member| member.name.as_str() == name.as_str())
        {
            let shown: String = name.as_str().chars().take(MAX_NAME_BYTES).collect();
            refusal.get_or_insert(
                ApiError::invalid(
                    shown.clone(),
                    format!("the field {shown:?} stands twice; send it once"),
                )
                .with_code("duplicate_field"),
            );
        }
        members.push(Member {
            name,
            start: key.span.start - 1,
            value: span,
            kind,
            items,
            first,
        });
        Ok(())
    });
    walked.and_then(|()| scanner.end()).map_err(not_json)?;
    match refusal {
        Some(refusal) => Err(refusal),
        None => Ok(members),
    }
}

fn name_of(body: &[u8], key: &Text) -> Option<Name> {
    let written = body.get(key.span.clone())?;
    let name: Cow<'_, str> = if key.has_escapes {
        let quoted = body.get(key.span.start - 1..key.span.end + 1)?;
        Cow::Owned(serde_json::from_slice(quoted).ok()?)
    } else {
        Cow::Borrowed(std::str::from_utf8(written).ok()?)
    };
    Some(match rule_of(&name) {
        Some(rule) => Name::Known(rule),
        None => Name::Other(name.into_owned().into_boxed_str()),
    })
}

fn wrong_type(name: &'static str, expected: &str) -> ApiError {
    ApiError::invalid(name, format!("{name} must be {expected}"))
}

fn not_json(flaw: Flaw) -> ApiError {
    let Flaw { what, at } = flaw;
    ApiError::new(
        ErrorKind::InvalidRequest,
        format!("the body is not a JSON object that we take: {what} at byte {at}"),
    )
}
