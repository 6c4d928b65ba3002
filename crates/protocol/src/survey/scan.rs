//! One pass over JSON that understands its structure and keeps nothing.
//!
//! As strict as RFC 8259: no comments, no `NaN`, no raw control characters, no trailing commas. What is
//! lax somewhere may be read differently elsewhere, and a body that two parsers read differently is how
//! one smuggles a request past a check. The bytes must be UTF-8; the caller has made sure of that.

use std::ops::Range;

/// Objects and arrays inside each other. Tool schemas stay far below it; a parser that recurses (most
/// workers' do) must not be driven into its stack.
pub const MAX_DEPTH: u32 = 64;

/// Bytes of a number. No number that a request needs is longer, and reading endless digits is slow.
pub const MAX_NUMBER_BYTES: usize = 64;

/// Bytes looked at together while skipping text: a vector of every x86-64.
const LANES: usize = 16;

/// Why bytes are not the JSON we take, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) what: &'static str,
    pub(super) at: usize,
}

/// What kind of value was passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// A value that was passed over.
#[derive(Debug, Clone)]
pub(super) struct Value {
    pub(super) kind: Kind,
    pub(super) span: Range<usize>,
    /// Elements of an array or members of an object.
    pub(super) items: usize,
    /// Kind of an array's first element.
    pub(super) first: Option<Kind>,
}

/// A string, without its quotes.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) span: Range<usize>,
    pub(super) has_escapes: bool,
}

/// Whether a byte ends what means itself. No branch: that would keep [`has_special`] from becoming vector code.
fn is_special(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < b' ')
}

fn has_special(lane: &[u8; LANES]) -> bool {
    lane.iter()
        .fold(0, |found, &byte| found | u8::from(is_special(byte)))
        != 0
}

pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Walks over the members of an object, from its first brace to its last. `member` gets each key and
    /// must pass over its value.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Text) -> Result<(), Flaw>,
    ) -> Result<(), Flaw> {
        self.expect(b'{', "expected an object")?;
        self.skip_space();
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let key = self.key()?;
            member(self, key)?;
            self.skip_space();
            if self.take(b'}') {
                return Ok(());
            }
            self.expect(b',', "expected a comma or the end of the object")?;
            self.skip_space();
        }
    }

    /// Nothing but white space may be left.
    pub(super) fn end(&mut self) -> Result<(), Flaw> {
        self.skip_space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.flaw("something follows the object")),
        }
    }

    /// Passes over one value inside `outer` others.
    pub(super) fn value(&mut self, outer: u32) -> Result<Value, Flaw> {
        self.skip_space();
        let start = self.at;
        let mut nest = Nest::default();
        let (mut outermost, mut first, mut items) = (None, None, 0);
        loop {
            let kind = self.kind()?;
            match nest.depth {
                0 => outermost = Some(kind),
                1 => {
                    items += 1;
                    first.get_or_insert(kind);
                }
                _ => {}
            }
            let is_open = match kind {
                Kind::Array => self.enter(&mut nest, outer, false, b']')?,
                Kind::Object => self.enter(&mut nest, outer, true, b'}')?,
                Kind::String => self.string().map(|_| false)?,
                Kind::Number => self.number().map(|()| false)?,
                Kind::Bool | Kind::Null => self.literal().map(|()| false)?,
            };
            if !is_open && self.leave(&mut nest)? {
                return Ok(Value {
                    kind: outermost.unwrap_or(kind),
                    span: start..self.at,
                    items,
                    first,
                });
            }
        }
    }

    /// Steps into an object or array. False if it was empty and is already behind us.
    fn enter(
        &mut self,
        nest: &mut Nest,
        outer: u32,
        is_object: bool,
        close: u8,
    ) -> Result<bool, Flaw> {
        self.at += 1;
        if outer + nest.depth >= MAX_DEPTH {
            return Err(self.flaw("nested too deeply"));
        }
        self.skip_space();
        if self.take(close) {
            return Ok(false);
        }
        nest.push(is_object);
        if is_object {
            self.key()?;
        }
        self.skip_space();
        Ok(true)
    }

    /// After a value: steps to the next one, out of as many objects and arrays as end here. True if that
    /// was all.
    fn leave(&mut self, nest: &mut Nest) -> Result<bool, Flaw> {
        while nest.depth > 0 {
            self.skip_space();
            let is_object = nest.is_object();
            match self.peek() {
                Some(b',') => {
                    self.at += 1;
                    self.skip_space();
                    if is_object {
                        self.key()?;
                        self.skip_space();
                    }
                    return Ok(false);
                }
                Some(b'}') if is_object => nest.pop(),
                Some(b']') if !is_object => nest.pop(),
                _ => return Err(self.flaw("expected a comma or an end")),
            }
            self.at += 1;
        }
        Ok(true)
    }

    fn kind(&self) -> Result<Kind, Flaw> {
        match self.peek() {
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'"') => Ok(Kind::String),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            _ => Err(self.flaw("expected a value")),
        }
    }

    /// A key and its colon.
    fn key(&mut self) -> Result<Text, Flaw> {
        if self.peek() != Some(b'"') {
            return Err(self.flaw("expected a key in quotes"));
        }
        let key = self.string()?;
        self.skip_space();
        self.expect(b':', "expected a colon")?;
        Ok(key)
    }

    fn string(&mut self) -> Result<Text, Flaw> {
        self.at += 1;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            self.skip_plain();
            match self.peek() {
                Some(b'"') => {
                    let span = start..self.at;
                    self.at += 1;
                    return Ok(Text { span, has_escapes });
                }
                Some(b'\\') => {
                    has_escapes = true;
                    self.escape()?;
                }
                Some(_) => return Err(self.flaw("a control character in a string")),
                None => return Err(self.flaw("the body ends inside a string")),
            }
        }
    }

    /// Passes over characters that mean themselves, [`LANES`] at a time.
    fn skip_plain(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (lanes, _) = rest.as_chunks::<LANES>();
        let plain = lanes.iter().take_while(|lane| !has_special(lane)).count();
        self.at += plain * LANES;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let plain = rest.iter().position(|&byte| is_special(byte));
        self.at += plain.unwrap_or(rest.len());
    }

    fn escape(&mut self) -> Result<(), Flaw> {
        let escaped = self.bytes.get(self.at + 1..).unwrap_or_default();
        let length = match escaped {
            [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
            [b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|hex| hex.is_ascii_hexdigit()) => 6,
            _ => return Err(self.flaw("not an escape")),
        };
        self.at += length;
        Ok(())
    }

    fn number(&mut self) -> Result<(), Flaw> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _signed = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        if self.at - start > MAX_NUMBER_BYTES {
            self.at = start;
            return Err(self.flaw("a number with too many digits"));
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Flaw> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.flaw("expected a digit"));
        }
        self.at += count;
        Ok(())
    }

    fn literal(&mut self) -> Result<(), Flaw> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let literals: [&[u8]; 3] = [b"true", b"false", b"null"];
        match literals.iter().find(|literal| rest.starts_with(literal)) {
            Some(literal) => {
                self.at += literal.len();
                Ok(())
            }
            None => Err(self.flaw("expected a value")),
        }
    }

    pub(super) fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Flaw> {
        if self.take(byte) {
            Ok(())
        } else {
            Err(self.flaw(what))
        }
    }

    pub(super) fn flaw(&self, what: &'static str) -> Flaw {
        Flaw { what, at: self.at }
    }
}

/// What we are inside of: one bit for each level, set for objects.
#[derive(Default)]
struct Nest {
    objects: u64,
    depth: u32,
}

const _: () = assert!(MAX_DEPTH <= u64::BITS);

impl Nest {
    fn push(&mut self, is_object: bool) {
        self.objects = self.objects << 1 | u64::from(is_object);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.objects >>= 1;
        self.depth -= 1;
    }

    fn is_object(&self) -> bool {
        self.objects & 1 == 1
    }
}
