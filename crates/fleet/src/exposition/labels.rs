//! What stands between the braces of a sample.

use std::borrow::Cow;

use super::MAX_LABELS;
use super::line::Refused;

/// The labels of a sample: checked once, read on demand.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Labels<'a> {
    /// The text between the braces, known to be well formed.
    inside: &'a str,
}

/// One label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label<'a> {
    /// Its name; empty for a metric name that stands quoted among the labels.
    pub name: &'a str,
    raw_value: &'a str,
}

impl<'a> Label<'a> {
    /// Its value, without escapes.
    pub fn value(&self) -> Cow<'a, str> {
        if !self.raw_value.contains('\\') {
            return Cow::Borrowed(self.raw_value);
        }
        let mut value = String::with_capacity(self.raw_value.len());
        let mut rest = self.raw_value.chars();
        while let Some(symbol) = rest.next() {
            match symbol {
                '\\' => match rest.next() {
                    Some('n') => value.push('\n'),
                    Some(other) => value.push(other),
                    None => {}
                },
                other => value.push(other),
            }
        }
        Cow::Owned(value)
    }
}

impl<'a> Labels<'a> {
    /// The labels in the order of the page.
    pub fn iter(&self) -> impl Iterator<Item = Label<'a>> + use<'a> {
        let mut rest = self.inside;
        std::iter::from_fn(move || {
            let (label, after) = next_label(rest).ok()??;
            rest = after;
            Some(label)
        })
    }

    /// The value of the first label of this name.
    pub fn get(&self, name: &str) -> Option<Cow<'a, str>> {
        self.iter()
            .find(|label| label.name == name)
            .map(|label| label.value())
    }

    /// Takes off a metric name that stands quoted in front of the labels.
    pub(super) fn split_quoted_name(self) -> Option<(&'a str, Labels<'a>)> {
        let (label, rest) = next_label(self.inside).ok()??;
        label
            .name
            .is_empty()
            .then_some((label.raw_value, Labels { inside: rest }))
    }
}

/// Splits the text after an opening brace into the labels and what follows the closing brace.
pub(super) fn split(inside: &str) -> Result<(Labels<'_>, &str), Refused> {
    let mut rest = inside;
    for labels in 0.. {
        let (label, after) = match next_label(rest)? {
            Some(found) => found,
            None => {
                let end = inside.len() - rest.trim_start().len();
                let (inside, after) = inside.split_at_checked(end).ok_or(Refused::Malformed)?;
                let after = after.strip_prefix('}').ok_or(Refused::Malformed)?;
                return Ok((Labels { inside }, after));
            }
        };
        if label.name.is_empty() && labels > 0 {
            return Err(Refused::Malformed);
        }
        if labels == MAX_LABELS {
            return Err(Refused::TooManyLabels);
        }
        rest = after;
    }
    Err(Refused::Malformed)
}

/// Reads one label and the comma after it; `None` at a closing brace or at the end.
fn next_label(text: &str) -> Result<Option<(Label<'_>, &str)>, Refused> {
    let text = text.trim_start();
    if text.is_empty() || text.starts_with('}') {
        return Ok(None);
    }
    let quote = text
        .bytes()
        .position(|byte| byte == b'"')
        .ok_or(Refused::Malformed)?;
    let (before, quoted) = text.split_at(quote);
    let name = match before.trim_end() {
        "" => "",
        before => {
            let name = before
                .strip_suffix('=')
                .ok_or(Refused::Malformed)?
                .trim_end();
            if name.is_empty() || name.contains([',', '}', '{', ' ', '=']) {
                return Err(Refused::Malformed);
            }
            name
        }
    };
    let quoted = quoted.get(1..).ok_or(Refused::Malformed)?;
    let end = closing_quote(quoted).ok_or(Refused::Malformed)?;
    let (raw_value, after) = quoted.split_at(end);
    let after = after.get(1..).unwrap_or_default().trim_start();
    let after = match after.strip_prefix(',') {
        Some(after) => after,
        None if after.is_empty() || after.starts_with('}') => after,
        None => return Err(Refused::Malformed),
    };
    Ok(Some((Label { name, raw_value }, after)))
}

/// Where the first quotation mark stands that no backslash escapes.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}
