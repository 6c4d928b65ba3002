//! Texts do not go through the template: something short stands in for them.
//!
//! A chat over a long document brings the document with every turn. Reading it out of its JSON, handing it to the template
//! and joining it with what stands around it copies it half a dozen times, only to find that it was tokenised long ago. So the
//! template is given a short text in its place, and where that comes out again the document is meant. What then comes out is a
//! [`Skeleton`], which is the same for all chats of the same shape (a system prompt and a question, say): most requests
//! need no template at all.
//!
//! That is right as long as a template treats a text as a text. Some look into it for tags (thoughts, results of tools) or trim it,
//! so only texts stand back in which there is no `<` and no white space at either end; and a stand-in must come out exactly once,
//! in its turn. Otherwise the chat is read as it is. Whether a text stands back follows from the text alone, so that a
//! chat has the same fingerprints in every turn.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;
use routing::memo::Weighed;
use serde_json::Value;
use serde_json::value::RawValue;

/// Texts from this size stand back, in bytes of their JSON: what is shorter may well be a word that a template knows.
const MIN_BYTES: usize = 16;

/// Characters that Unicode leaves to private use: no template looks for them.
const OPENS: char = '\u{f8f0}';
const CLOSES: char = '\u{f8f1}';

/// Stands for a text in the fingerprint of a skeleton; no JSON has it.
const TEXT: &[u8] = &[0xff];

/// Messages, and those of their texts that stand back.
pub(super) struct Messages<'a> {
    fields: Vec<BTreeMap<Cow<'a, str>, &'a RawValue>>,
    /// Of each message, whether its content stands back.
    stands_back: Vec<bool>,
    /// The texts that stand back, in order, as they stand in their JSON.
    pub(super) texts: Vec<&'a str>,
}

impl<'a> Messages<'a> {
    /// Reads a list of messages.
    pub(super) fn read(json: &'a [u8]) -> serde_json::Result<Self> {
        let fields: Vec<BTreeMap<Cow<'a, str>, &'a RawValue>> = serde_json::from_slice(json)?;
        let contents = fields.iter().map(|fields| fields.get("content").copied());
        let standing: Vec<Option<&str>> = contents
            .map(|content| content.map(RawValue::get).filter(|text| stands_back(text)))
            .collect();
        Ok(Self {
            stands_back: standing.iter().map(Option::is_some).collect(),
            texts: standing.into_iter().flatten().collect(),
            fields,
        })
    }

    /// Everything about them but the texts that stand back, to be fingerprinted.
    pub(super) fn shape(&self) -> impl Iterator<Item = &[u8]> {
        let messages = self.fields.iter().zip(&self.stands_back);
        messages.flat_map(|(fields, stands_back)| {
            let fields = fields.iter().flat_map(move |(name, value)| {
                let is_text = *stands_back && name == "content";
                let value = if is_text {
                    TEXT
                } else {
                    value.get().as_bytes()
                };
                [name.as_bytes(), value]
            });
            fields.chain([b"".as_slice()])
        })
    }

    /// As the template is to see them.
    pub(super) fn shown(&self) -> serde_json::Result<Vec<Value>> {
        let mut number = 0;
        let messages = self.fields.iter().zip(&self.stands_back);
        messages
            .map(|(fields, stands_back)| {
                let mut message = serde_json::Map::new();
                for (name, value) in fields {
                    let value = if *stands_back && name == "content" {
                        number += 1;
                        Value::String(stand_in(number - 1))
                    } else {
                        serde_json::from_str(value.get())?
                    };
                    message.insert(name.clone().into_owned(), value);
                }
                Ok(Value::Object(message))
            })
            .collect()
    }
}

fn stand_in(number: usize) -> String {
    format!("{OPENS}{number}{CLOSES}")
}

/// Whether a value, as it stands in its JSON, is a text into which no template looks.
fn stands_back(json: &str) -> bool {
    let text = json
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let Some(text) = text
        .map(str::as_bytes)
        .filter(|text| text.len() >= MIN_BYTES)
    else {
        return false;
    };
    let is_plain =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_graphic() && *byte != b'\\');
    // The last character may be the end of an escaped one.
    let ends_plainly = is_plain(text.last()) && is_plain(text.get(text.len() - 2));
    is_plain(text.first())
        && ends_plainly
        && memchr::memchr(b'<', text).is_none()
        && memmem::find(text, b"\\u").is_none()
}

/// What a template makes of messages, with stand-ins for their texts.
pub(super) struct Skeleton {
    short: String,
    /// Where the stand-ins are, in order.
    places: Vec<Range<usize>>,
    /// Where the text can be cut.
    seams: Vec<usize>,
}

impl Weighed for Skeleton {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.short.capacity()
            + self.places.capacity() * size_of::<Range<usize>>()
            + self.seams.capacity() * size_of::<usize>()
    }
}

impl Skeleton {
    /// Of a rendered chat with so many texts in it; `None` if the template did not leave them alone.
    pub(super) fn of(short: String, texts: usize, seams: Vec<usize>) -> Option<Self> {
        let mut places: Vec<Range<usize>> = Vec::with_capacity(texts);
        for number in 0..texts {
            let name = stand_in(number);
            let mut found = memmem::find_iter(short.as_bytes(), &name);
            let (at, again) = (found.next()?, found.next());
            let comes_in_turn = places.last().is_none_or(|last| last.end <= at);
            if again.is_some() || !comes_in_turn {
                return None;
            }
            places.push(at..at + name.len());
        }
        Some(Self {
            short,
            places,
            seams,
        })
    }
}

/// A rendered chat: a skeleton and its texts.
pub(super) struct Rendered<'a> {
    pub(super) skeleton: Arc<Skeleton>,
    pub(super) texts: Vec<&'a str>,
}

/// A piece of a rendered chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Text as it is.
    Plain(&'a str),
    /// A text that stood back, as it stands in its JSON.
    Quoted(&'a str),
}

impl Rendered<'_> {
    /// All of it.
    pub(super) fn whole(&self) -> Vec<Piece<'_>> {
        self.pieces(0..self.skeleton.short.len())
    }

    /// Its parts, between seams.
    pub(super) fn parts(&self) -> Vec<Vec<Piece<'_>>> {
        let skeleton = &self.skeleton;
        let mut parts = Vec::with_capacity(skeleton.seams.len() + 1);
        let mut from = 0;
        for seam in skeleton.seams.iter().copied().chain([skeleton.short.len()]) {
            if seam > from {
                parts.push(self.pieces(from..seam));
            }
            from = seam;
        }
        parts
    }

    fn pieces(&self, part: Range<usize>) -> Vec<Piece<'_>> {
        let short = &self.skeleton.short;
        let mut pieces = Vec::new();
        let mut from = part.start;
        for (place, text) in self.skeleton.places.iter().zip(&self.texts) {
            if place.start < from || place.end > part.end {
                continue;
            }
            let before = short.get(from..place.start).unwrap_or_default();
            pieces.extend([Piece::Plain(before), Piece::Quoted(text)]);
            from = place.end;
        }
        pieces.push(Piece::Plain(short.get(from..part.end).unwrap_or_default()));
        pieces.retain(|piece| *piece != Piece::Plain(""));
        pieces
    }
}

impl Piece<'_> {
    /// Its length, escapes counted as they are written.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Piece::Plain(text) | Piece::Quoted(text) => text.len(),
        }
    }

    /// Appends what it stands for.
    pub(super) fn write_to(&self, text: &mut String) {
        match self {
            Piece::Plain(plain) => text.push_str(plain),
            // It was read as JSON before, so it can be read again.
            Piece::Quoted(json) => {
                let unquoted: Cow<'_, str> = serde_json::from_str(json).unwrap_or_default();
                text.push_str(&unquoted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(edge: &str) -> String {
        format!("{edge}{}{edge}", "word ".repeat(MIN_BYTES) + "end")
    }

    #[test]
    fn only_plain_texts_stand_back() {
        let stands = |text: &str| stands_back(&serde_json::to_string(text).unwrap());
        assert!(stands(&long("")) && stands(&long("x")));
        assert!(stands(&format!("aa{}aa", long("\n\"\u{e9}"))));
        for edge in [" ", "\n", "\t", "<b>", "\u{1}", "\u{e9}", "\\"] {
            assert!(!stands(&long(edge)), "{edge:?}");
        }
        assert!(!stands("short") && !stands(""));
        assert!(!stands_back(&"[1,".repeat(MIN_BYTES)));
    }

    #[test]
    fn what_comes_out_is_put_together_again() {
        let (one, two) = (long("1"), long("2"));
        let json = serde_json::json!([
            {"role": "system", "content": one}, {"content": "hi", "role": "user"}, {"role": "user", "content": two}
        ]);
        let json = serde_json::to_vec(&json).unwrap();
        let messages = Messages::read(&json).unwrap();
        assert_eq!(messages.texts.len(), 2);
        let said = |message: &Value| message["content"].as_str().unwrap().to_owned();
        let shown = messages.shown().unwrap();
        let short = shown.iter().map(said).collect::<Vec<_>>().join("|");
        let skeleton = Skeleton::of(short, 2, Vec::new()).unwrap();
        let rendered = Rendered {
            skeleton: Arc::new(skeleton),
            texts: messages.texts,
        };
        let mut text = String::new();
        for piece in rendered.whole() {
            piece.write_to(&mut text);
        }
        assert_eq!(text, format!("{one}|hi|{two}"));
    }

    #[test]
    fn chats_of_one_shape_differ_in_their_texts_alone() {
        let shape = |role: &str, content: &str| {
            let json = serde_json::json!([{"role": role, "content": content}]).to_string();
            let messages = Messages::read(json.as_bytes()).unwrap();
            messages.shape().collect::<Vec<_>>().concat()
        };
        assert_eq!(shape("user", &long("a")), shape("user", &long("b")));
        assert_ne!(shape("user", &long("a")), shape("system", &long("a")));
        assert_ne!(shape("user", "hi"), shape("user", "ho"));
    }

    #[test]
    fn a_template_that_meddles_is_noticed() {
        let (one, two) = (stand_in(0), stand_in(1));
        for meddled in [
            String::new(),
            format!("{one}{one}{two}"),
            format!("{two}{one}"),
            one.clone(),
        ] {
            assert!(Skeleton::of(meddled, 2, Vec::new()).is_none());
        }
        assert!(Skeleton::of(format!("{one}-{two}"), 2, Vec::new()).is_some());
    }
}
