//! Changes to a body that leave the rest of it where it is.
//!
//! The edited body is a list of [`Pieces`]: slices of the one that came, and a few bytes of ours between
//! them. Fields that are set go to the front, so that the usual edit (a salt, a switch) is two pieces: ours
//! and everything else.

use bytes::Bytes;
use serde::Serialize;

use super::{MAX_FIELDS, Member, Name, Survey, members};
use crate::json;

/// The body in pieces, to be sent one after the other.
#[derive(Debug, Clone, Default)]
pub struct Pieces {
    pieces: Vec<Bytes>,
    len: usize,
}

impl Pieces {
    /// Bytes of all pieces.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// All in one, for those who need it so.
    pub fn concat(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push(piece);
        }
    }
}

impl From<Bytes> for Pieces {
    fn from(body: Bytes) -> Self {
        let mut pieces = Self::default();
        pieces.push(body);
        pieces
    }
}

impl IntoIterator for Pieces {
    type Item = Bytes;
    type IntoIter = std::vec::IntoIter<Bytes>;

    fn into_iter(self) -> Self::IntoIter {
        self.pieces.into_iter()
    }
}

/// Edits of one body. Each names a top-level field; editing the same one twice keeps the last edit.
#[derive(Debug)]
pub struct Edits<'a> {
    survey: &'a Survey,
    body: &'a Bytes,
    removed: u128,
    /// Fields that are set: name and value as JSON.
    set: Vec<(&'a str, Vec<u8>)>,
    /// A member and what goes in before the last byte of its value.
    inserted: Option<(usize, Bytes)>,
}

const _: () = assert!(MAX_FIELDS <= u128::BITS as usize);

impl<'a> Edits<'a> {
    /// No edits yet. `survey` must have been read from `body`.
    pub fn new(survey: &'a Survey, body: &'a Bytes) -> Self {
        Self {
            survey,
            body,
            removed: 0,
            set: Vec::new(),
            inserted: None,
        }
    }

    /// Sets a field, whether it was there or not.
    pub fn set<T: Serialize + ?Sized>(&mut self, name: &'a str, value: &T) {
        let mut written = Vec::with_capacity(64);
        json::write(&mut written, value);
        self.set_json(name, written);
    }

    /// Takes a field out.
    pub fn remove(&mut self, name: &str) {
        if let Some(place) = self.place(name) {
            self.removed |= 1 << place;
        }
        self.set.retain(|(set, _)| *set != name);
    }

    /// Sets `stream_options.include_usage` and keeps the other options.
    pub fn ask_for_usage(&mut self) {
        const NAME: &str = "stream_options";
        let sent = self.survey.value(NAME).and_then(|at| self.body.get(at));
        let mut written = b"{\"include_usage\":true".to_vec();
        // Read once already, so it is an object.
        for option in sent.and_then(|sent| members(sent).ok()).unwrap_or_default() {
            if option.name.as_str() != "include_usage" {
                written.push(b',');
                let span = option.start..option.value.end;
                written.extend_from_slice(sent.and_then(|sent| sent.get(span)).unwrap_or_default());
            }
        }
        written.push(b'}');
        self.set_json(NAME, written);
    }

    /// Puts bytes before the last byte of a field's value: elements before a bracket, text before a
    /// quote. For one field of a body.
    pub fn insert_before_end(&mut self, name: &str, bytes: Bytes) {
        if let Some(place) = self.place(name) {
            self.inserted = Some((place, bytes));
        }
    }

    /// The edited body.
    pub fn finish(self) -> Pieces {
        if self.removed == 0 && self.set.is_empty() && self.inserted.is_none() {
            return self.body.clone().into();
        }
        let mut pieces = Pieces::default();
        let mut front = vec![b'{'];
        for (name, value) in &self.set {
            separate(&mut front);
            json::write(&mut front, name);
            front.push(b':');
            front.extend_from_slice(value);
        }
        let kept = |place: &usize| self.removed >> place & 1 == 0;
        let mut rest = (0..self.survey.members.len()).filter(kept).peekable();
        let mut is_closed = false;
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            separate(&mut front);
            pieces.push(std::mem::take(&mut front).into());
            is_closed = self.push_run(&mut pieces, first, last);
        }
        if !is_closed {
            front.push(b'}');
            pieces.push(front.into());
        }
        pieces
    }

    /// Members that stand side by side, with what goes into one of them. True if the end of the body
    /// came with them.
    fn push_run(&self, pieces: &mut Pieces, first: usize, last: usize) -> bool {
        let (Some(start), Some(end)) = (self.member(first), self.member(last)) else {
            return false;
        };
        let mut from = start.start;
        if let Some((place, bytes)) = &self.inserted
            && (first..=last).contains(place)
            && let Some(member) = self.member(*place)
        {
            let cut = member.value.end - 1;
            pieces.push(self.body.slice(from..cut));
            pieces.push(bytes.clone());
            from = cut;
        }
        let is_last = last + 1 == self.survey.members.len();
        let to = if is_last {
            self.body.len()
        } else {
            end.value.end
        };
        pieces.push(self.body.slice(from..to));
        is_last
    }

    fn set_json(&mut self, name: &'a str, written: Vec<u8>) {
        self.remove(name);
        self.set.push((name, written));
    }

    fn member(&self, place: usize) -> Option<&Member> {
        self.survey.members.get(place)
    }

    fn place(&self, name: &str) -> Option<usize> {
        let is_it = |member: &Member| match &member.name {
            Name::Known(rule) => rule.name == name,
            Name::Other(other) => **other == *name,
        };
        self.survey.members.iter().position(is_it)
    }
}

/// A comma, unless nothing stands before it.
fn separate(front: &mut Vec<u8>) {
    if front.last() != Some(&b'{') {
        front.push(b',');
    }
}
