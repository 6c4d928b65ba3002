//! Long texts do not go through the template: something short stands in for them.
//!
//! A chat over a long document brings the document with every turn. Reading it out of its JSON, handing it to the template
//! and joining it with what stands around it copies it half a dozen times, only to find that it was tokenised long ago. So the
//! template is given a short text in its place, and where that comes out again the document is meant.
//!
//! That is right as long as a template treats a text as a text. Some look into it for tags (thoughts, results of tools) or trim it,
//! so only texts stand back in which there is no `<` and no white space at either end; and a stand-in must come out exactly once,
//! in its turn. Otherwise the chat is read as it is. Whether a text stands back follows from the text alone, so that a
//! chat has the same fingerprints in every turn.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use memchr::memmem;
use serde_json::Value;
use serde_json::value::RawValue;

/// Texts from this size stand back, in bytes of their JSON. Below it copying costs less than care.
const LONG_BYTES: usize = 2 << 10;

/// Characters that Unicode leaves to private use: no template looks for them.
const OPENS: char = '\u{f8f0}';
const CLOSES: char = '\u{f8f1}';

/// Messages in which long texts are stood in for.
pub(super) struct Messages<'a> {
    pub(super) shown: Vec<Value>,
    /// The long texts in order, as they stand in their JSON.
    pub(super) long: Vec<&'a str>,
}

impl<'a> Messages<'a> {
    /// Reads a list of messages.
    pub(super) fn read(json: &'a [u8]) -> serde_json::Result<Self> {
        let raw: Vec<BTreeMap<Cow<'a, str>, &'a RawValue>> = serde_json::from_slice(json)?;
        let mut long = Vec::new();
        let mut shown = Vec::with_capacity(raw.len());
        for fields in raw {
            let mut message = serde_json::Map::new();
            for (name, value) in fields {
                let text = value.get();
                let value = if name == "content" && stands_back(text) {
                    long.push(text);
                    Value::String(stand_in(long.len() - 1))
                } else {
                    serde_json::from_str(text)?
                };
                message.insert(name.into_owned(), value);
            }
            shown.push(Value::Object(message));
        }
        Ok(Self { shown, long })
    }
}

/// Whether messages of this size can have long texts in them.
pub(super) fn are_worth_it(json: &[u8]) -> bool {
    json.len() >= LONG_BYTES
}

fn stand_in(number: usize) -> String {
    format!("{OPENS}{number}{CLOSES}")
}

/// Whether a value, as it stands in its JSON, is a long text into which no template looks.
fn stands_back(json: &str) -> bool {
    let text = json
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let Some(text) = text
        .map(str::as_bytes)
        .filter(|text| text.len() >= LONG_BYTES)
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

/// A rendered chat, with the places of its long texts.
pub(super) struct Rendered<'a> {
    short: String,
    long: Vec<&'a str>,
    /// Where their stand-ins are, in order.
    places: Vec<Range<usize>>,
}

/// A piece of a rendered chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Text as it is.
    Plain(&'a str),
    /// A long text, as it stands in its JSON.
    Long(&'a str),
}

impl<'a> Rendered<'a> {
    /// What the template made of messages with these long texts; `None` if it did not leave them alone.
    pub(super) fn of(short: String, long: Vec<&'a str>) -> Option<Self> {
        let mut places: Vec<Range<usize>> = Vec::with_capacity(long.len());
        for number in 0..long.len() {
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
            long,
            places,
        })
    }

    /// The text in which seams are looked for.
    pub(super) fn short(&self) -> &str {
        &self.short
    }

    /// The pieces of a part of [`Self::short`].
    pub(super) fn pieces(&self, part: Range<usize>) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        let mut from = part.start;
        for (place, long) in self.places.iter().zip(&self.long) {
            if place.start < from || place.end > part.end {
                continue;
            }
            let before = self.short.get(from..place.start).unwrap_or_default();
            pieces.extend([Piece::Plain(before), Piece::Long(long)]);
            from = place.end;
        }
        let rest = self.short.get(from..part.end).unwrap_or_default();
        pieces.push(Piece::Plain(rest));
        pieces.retain(|piece| *piece != Piece::Plain(""));
        pieces
    }
}

impl Piece<'_> {
    /// Appends what it stands for.
    pub(super) fn write_to(&self, text: &mut String) {
        match self {
            Piece::Plain(plain) => text.push_str(plain),
            // It was read as JSON before, so it can be read again.
            Piece::Long(json) => {
                text.push_str(&serde_json::from_str::<Cow<'_, str>>(json).unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(edge: &str) -> String {
        format!("{edge}{}{edge}", "word ".repeat(LONG_BYTES / 5 + 1) + "end")
    }

    #[test]
    fn only_long_plain_texts_stand_back() {
        let stands = |text: &str| stands_back(&serde_json::to_string(text).unwrap());
        assert!(stands(&long("")) && stands(&long("x")));
        assert!(stands(&format!("aa{}aa", long("\n\"\u{e9}"))));
        for edge in [" ", "\n", "\t", "<b>", "\u{1}", "\u{e9}", "\\"] {
            assert!(!stands(&long(edge)), "{edge:?}");
        }
        assert!(!stands("short"));
        assert!(!stands_back(&"[1,".repeat(LONG_BYTES)));
    }

    #[test]
    fn what_comes_out_is_put_together_again() {
        let (one, two) = (long("1"), long("2"));
        let json = serde_json::json!([
            {"role": "system", "content": one}, {"content": "hi", "role": "user"}, {"role": "user", "content": two}
        ]);
        let json = serde_json::to_vec(&json).unwrap();
        let messages = Messages::read(&json).unwrap();
        assert_eq!(messages.long.len(), 2);
        let said = |message: &Value| message["content"].as_str().unwrap().to_owned();
        let short = messages
            .shown
            .iter()
            .map(said)
            .collect::<Vec<_>>()
            .join("|");
        let length = short.len();
        let rendered = Rendered::of(short, messages.long).unwrap();
        let mut text = String::new();
        for piece in rendered.pieces(0..length) {
            piece.write_to(&mut text);
        }
        assert_eq!(text, format!("{one}|hi|{two}"));
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
            assert!(Rendered::of(meddled, vec!["\"x\"", "\"y\""]).is_none());
        }
        assert!(Rendered::of(format!("{one}-{two}"), vec!["\"x\"", "\"y\""]).is_some());
    }
}
