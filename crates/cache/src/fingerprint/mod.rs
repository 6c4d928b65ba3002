//! Whether two requests ask the same thing.
//!
//! A [`Fingerprint`] is a keyed BLAKE3 hash over the tenant, the model and its revision, the route, the
//! context tag and the canonical request: every field of [`fields`] that can change the answer. Two requests
//! with the same fingerprint may be given the same answer; what cannot be told for certain (a field nobody
//! knows, a key that stands twice) has no fingerprint.

pub(crate) mod fields;
mod recogniser;
mod value;

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::secret::Keys;
use fields::{Absent, Form, Meaning, field};
pub(crate) use recogniser::{Known, Recogniser};
use value::{Key, Value, write_text};

/// Longest context tag: room for any hash.
pub const MAX_CONTEXT_BYTES: usize = 256;

/// The field of `metadata` that holds a context tag.
const CONTEXT_FIELD: &str = "context_hash";

/// The routes whose answers are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

/// The name of a question; whoever has the same may have the same answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    /// The name of one of several answers to the question.
    pub(crate) fn variant(self, number: u8) -> Self {
        match number {
            0 => self,
            number => {
                let mut hasher = blake3::Hasher::new_keyed(&self.0);
                hasher.update(b"variant");
                hasher.update(&[number]);
                Self(*hasher.finalize().as_bytes())
            }
        }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Who asks whom.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Nobody else ever sees the answer.
    pub tenant: &'a str,
    /// Where it was sent.
    pub route: Route,
    /// The model that answers, by its own name.
    pub model: &'a str,
    /// Which weights, template and settings are behind that name now.
    pub revision: &'a str,
    /// What the client's header says about the context that is not in the request.
    pub context: Option<&'a str>,
    /// Whether texts that differ only in Unicode's composition are the same.
    pub normalise_unicode: bool,
}

/// What recognising a request tells about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    /// Its name.
    pub(crate) fingerprint: Fingerprint,
    /// How the answer is wanted.
    pub(crate) wants: Wants,
    /// Whether asking again would give the same answer: temperature 0, or a seed.
    pub(crate) deterministic: bool,
    /// The model as it was asked for.
    pub(crate) model: Option<Box<str>>,
    /// The context that is not in the request, by which answers can be invalidated.
    pub(crate) context: Option<Box<str>>,
}

/// How an answer is wanted. The same answer can be given either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Wants {
    /// As events.
    pub stream: bool,
    /// With the usage in an event of its own.
    pub include_usage: bool,
}

/// Why a request cannot be recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unclear {
    /// Not a JSON object, or too deep: whoever answers will refuse it.
    #[error("the body cannot be read")]
    Unreadable,
    /// Parsers disagree which one counts.
    #[error("a key stands twice")]
    RepeatedKey,
    /// Parsers disagree how much of it they keep.
    #[error("a number is too large to be compared")]
    Number,
    /// It could change the answer.
    #[error("a field is not known to the cache")]
    UnknownField,
    /// A hit would leave something undone or would be stale.
    #[error("{0} cannot be answered from a cache")]
    Field(&'static str),
    /// A URL in a message: what is behind it may change.
    #[error("a message refers to content elsewhere")]
    RemoteContent,
    /// A header and a field that disagree, or a tag that is too long.
    #[error("the context tag is not usable")]
    Context,
}

/// Recognises a request by its body.
pub(crate) fn recognise(
    keys: &Keys,
    subject: &Subject<'_>,
    body: &[u8],
) -> Result<Question, Unclear> {
    let Members(mut members) = serde_json::from_slice(body).map_err(|_| Unclear::Unreadable)?;
    members.sort_by(|a, b| a.0.cmp(&b.0));
    if members
        .windows(2)
        .any(|pair| matches!(pair, [one, next] if one.0 == next.0))
    {
        return Err(Unclear::RepeatedKey);
    }
    let mut reading = Reading::default();
    for (name, raw) in members {
        let row = field(subject.route, &name).ok_or(Unclear::UnknownField)?;
        reading.read(row, raw.get(), subject)?;
    }
    reading.finish(keys, subject)
}

/// What has been read of a request so far.
#[derive(Default)]
struct Reading {
    canonical: Vec<u8>,
    stream: bool,
    has_stream_options: bool,
    include_usage: bool,
    is_greedy: bool,
    has_seed: bool,
    model: Option<Box<str>>,
    context: Option<Box<str>>,
}

impl Reading {
    fn read(
        &mut self,
        row: &'static fields::Field,
        raw: &str,
        subject: &Subject<'_>,
    ) -> Result<(), Unclear> {
        match row.meaning {
            Meaning::Delivery if row.name != "stream" => Ok(()),
            Meaning::Delivery => match raw {
                "true" => {
                    self.stream = true;
                    Ok(())
                }
                "false" | "null" => Ok(()),
                _ => Err(Unclear::Unreadable),
            },
            Meaning::Uncacheable(harmless) => {
                if raw == "null" || raw == harmless {
                    Ok(())
                } else {
                    Err(Unclear::Field(row.name))
                }
            }
            Meaning::StreamOptions => self.read_stream_options(&Value::parse(raw)?),
            Meaning::Metadata => self.read_metadata(&Value::parse(raw)?),
            Meaning::Answer(absent, form) => {
                let mut value = Value::parse(raw)?;
                match row.name {
                    "temperature" => self.is_greedy = value.number() == Some(0.0),
                    "model" => self.model = value.text().map(Into::into),
                    "seed" => self.has_seed = value.number().is_some(),
                    _ => {}
                }
                make_comparable(&mut value, form, subject.normalise_unicode)?;
                if !is_absent(&value, absent, form)? {
                    write_text(&mut self.canonical, row.name);
                    value.write(&mut self.canonical)?;
                }
                Ok(())
            }
        }
    }

    fn read_stream_options(&mut self, options: &Value<'_>) -> Result<(), Unclear> {
        let Value::Map(members) = options else {
            return match options {
                Value::Null => Ok(()),
                _ => Err(Unclear::Field("stream_options")),
            };
        };
        self.has_stream_options = true;
        for (name, value) in members {
            match (&**name, value) {
                ("include_usage", Value::Bool(wanted)) => self.include_usage = *wanted,
                (_, Value::Null | Value::Bool(false)) => {}
                // The usage so far in every chunk: nobody recorded it.
                _ => return Err(Unclear::Field("stream_options")),
            }
        }
        Ok(())
    }

    fn read_metadata(&mut self, metadata: &Value<'_>) -> Result<(), Unclear> {
        match metadata.get(CONTEXT_FIELD) {
            None | Some(Value::Null) => Ok(()),
            Some(Value::Text(tag)) => {
                self.context = Some((&**tag).into());
                Ok(())
            }
            Some(_) => Err(Unclear::Context),
        }
    }

    fn finish(self, keys: &Keys, subject: &Subject<'_>) -> Result<Question, Unclear> {
        if self.has_stream_options && !self.stream {
            return Err(Unclear::Field("stream_options"));
        }
        let context: Option<Box<str>> = match (subject.context, self.context) {
            (Some(header), Some(field)) if *header != *field => return Err(Unclear::Context),
            (Some(header), _) => Some(header.into()),
            (None, field) => field,
        };
        if context
            .as_ref()
            .is_some_and(|tag| tag.len() > MAX_CONTEXT_BYTES)
        {
            return Err(Unclear::Context);
        }
        let mut head = Vec::with_capacity(256);
        head.push(match subject.route {
            Route::Chat => b'c',
            Route::Completions => b'p',
        });
        head.push(if subject.normalise_unicode {
            b'u'
        } else {
            b'r'
        });
        for text in [subject.tenant, subject.model, subject.revision] {
            write_text(&mut head, text);
        }
        head.push(if context.is_some() { b'x' } else { b'-' });
        write_text(&mut head, context.as_deref().unwrap_or_default());
        let mut hasher = blake3::Hasher::new_keyed(&keys.fingerprint);
        hasher.update(&head);
        hasher.update(&self.canonical);
        Ok(Question {
            fingerprint: Fingerprint(*hasher.finalize().as_bytes()),
            wants: Wants {
                stream: self.stream,
                include_usage: self.include_usage,
            },
            deterministic: self.is_greedy || self.has_seed,
            model: self.model,
            context,
        })
    }
}

/// Makes values that mean the same the same.
fn make_comparable(value: &mut Value<'_>, form: Form, unicode: bool) -> Result<(), Unclear> {
    match form {
        Form::Plain => {}
        Form::Map => value.sort_keys(),
        Form::Number => {
            if let Some(number) = value.number() {
                // Adding zero makes -0 the same as 0.
                *value = Value::Float(number + 0.0);
            }
        }
        Form::Prompt => {
            if unicode {
                value.normalise_texts();
            }
        }
        Form::Messages => {
            if let Value::List(messages) = value {
                messages.iter_mut().try_for_each(message)?;
            }
            if unicode {
                value.normalise_texts();
            }
        }
    }
    Ok(())
}

fn message(message: &mut Value<'_>) -> Result<(), Unclear> {
    message.sort_keys();
    let Value::Map(members) = message else {
        return Ok(());
    };
    let content = members.iter_mut().find(|(key, _)| key == "content");
    let Some((_, Value::List(parts))) = content else {
        return Ok(());
    };
    for part in parts {
        let is_text = part.get("type").and_then(Value::text) == Some("text");
        if !is_text && part.any_text(is_url) {
            return Err(Unclear::RemoteContent);
        }
        part.sort_keys();
    }
    Ok(())
}

/// Whether a text names something elsewhere; `data:` holds what it names.
fn is_url(text: &str) -> bool {
    !text.starts_with("data:") && text.contains("://")
}

fn is_absent(value: &Value<'_>, absent: Absent, form: Form) -> Result<bool, Unclear> {
    Ok(match absent {
        Absent::Open => false,
        Absent::Null => *value == Value::Null,
        Absent::Is(json) => {
            let mut default = Value::parse(json)?;
            make_comparable(&mut default, form, false)?;
            *value == default
        }
    })
}

/// The members of an object, values unread.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Members<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Key(key), value)) = map.next_entry::<_, &RawValue>()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Shape)
    }
}

#[cfg(test)]
mod tests;
