//! The key-value part of a GGUF file.

use std::collections::HashMap;

use crate::ModelError;

use super::cursor::{Cursor, shown};

/// The least an entry takes: the length of its key, its type, a one-byte value.
const SMALLEST_ENTRY: usize = 8 + 4 + 1;

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Any unsigned integer type.
    Unsigned(u64),
    /// Any signed integer type.
    Signed(i64),
    /// Either float type.
    Float(f64),
    /// `bool`
    Bool(bool),
    /// `string`
    String(&'a str),
    /// `array`
    Array(Array<'a>),
}

impl Value<'_> {
    pub(super) fn as_usize(&self) -> Option<usize> {
        match *self {
            Self::Unsigned(value) => usize::try_from(value).ok(),
            Self::Signed(value) => usize::try_from(value).ok(),
            _ => None,
        }
    }

    pub(super) fn as_f32(&self) -> Option<f32> {
        let value = match *self {
            Self::Float(value) => value as f32,
            Self::Unsigned(value) => value as f32,
            Self::Signed(value) => value as f32,
            _ => return None,
        };
        value.is_finite().then_some(value)
    }
}

/// An array, still in the file's encoding; its extent has been checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<'a> {
    element: ElementType,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements one after another. Ends early at a string that is not UTF-8.
    pub fn iter(&self) -> Elements<'a> {
        Elements {
            element: self.element,
            left: self.len,
            bytes: self.bytes,
        }
    }
}

/// Walks over an [`Array`].
#[derive(Debug)]
pub struct Elements<'a> {
    element: ElementType,
    left: usize,
    bytes: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        let mut cursor = Cursor::new("", self.bytes);
        let value = scalar(&mut cursor, self.element, "").ok()?;
        self.bytes = self.bytes.get(cursor.position()..)?;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    U64,
    I64,
    F64,
}

const ARRAY: u32 = 9;

impl ElementType {
    fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::String,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// The least bytes that an element takes: a string at least the length in front of it.
    fn smallest(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
        }
    }
}

pub(super) fn read<'a>(
    cursor: &mut Cursor<'_, 'a>,
    count: u64,
) -> Result<HashMap<&'a str, Value<'a>>, ModelError> {
    let count = cursor.checked_count(count, SMALLEST_ENTRY, "metadata entries")?;
    let mut metadata = HashMap::with_capacity(count);
    for _ in 0..count {
        let key = cursor.text("a metadata key")?;
        let value = value(cursor, key)?;
        if metadata.insert(key, value).is_some() {
            let key = shown(key);
            return Err(cursor.error(format!("metadata `{key}` is there twice")));
        }
    }
    Ok(metadata)
}

fn value<'a>(cursor: &mut Cursor<'_, 'a>, key: &str) -> Result<Value<'a>, ModelError> {
    let within = format!("metadata `{}`", shown(key));
    let code = cursor.u32(&within)?;
    if code == ARRAY {
        let code = cursor.u32(&within)?;
        let element = element_type(cursor, code, &within)?;
        return array(cursor, element, &within).map(Value::Array);
    }
    let element = element_type(cursor, code, &within)?;
    scalar(cursor, element, &within)
}

fn element_type(
    cursor: &Cursor<'_, '_>,
    code: u32,
    within: &str,
) -> Result<ElementType, ModelError> {
    ElementType::from_code(code).ok_or_else(|| {
        let kind = if code == ARRAY {
            "arrays of arrays"
        } else {
            "an unknown type"
        };
        cursor.error(format!("{within} has {kind} (type {code})"))
    })
}

fn array<'a>(
    cursor: &mut Cursor<'_, 'a>,
    element: ElementType,
    within: &str,
) -> Result<Array<'a>, ModelError> {
    let len = cursor.u64(within)?;
    let len = cursor.checked_count(len, element.smallest(), &format!("elements for {within}"))?;
    let bytes = if element == ElementType::String {
        let mut walker = Cursor::new(cursor.file(), cursor.rest());
        for _ in 0..len {
            walker.text(within)?;
        }
        cursor.take(walker.position(), within)?
    } else {
        cursor.take(len * element.smallest(), within)?
    };
    Ok(Array {
        element,
        len,
        bytes,
    })
}

fn scalar<'a>(
    cursor: &mut Cursor<'_, 'a>,
    element: ElementType,
    within: &str,
) -> Result<Value<'a>, ModelError> {
    Ok(match element {
        ElementType::U8 => Value::Unsigned(u8::from_le_bytes(cursor.array(within)?).into()),
        ElementType::I8 => Value::Signed(i8::from_le_bytes(cursor.array(within)?).into()),
        ElementType::U16 => Value::Unsigned(u16::from_le_bytes(cursor.array(within)?).into()),
        ElementType::I16 => Value::Signed(i16::from_le_bytes(cursor.array(within)?).into()),
        ElementType::U32 => Value::Unsigned(u32::from_le_bytes(cursor.array(within)?).into()),
        ElementType::I32 => Value::Signed(i32::from_le_bytes(cursor.array(within)?).into()),
        ElementType::U64 => Value::Unsigned(u64::from_le_bytes(cursor.array(within)?)),
        ElementType::I64 => Value::Signed(i64::from_le_bytes(cursor.array(within)?)),
        ElementType::F32 => Value::Float(f32::from_le_bytes(cursor.array(within)?).into()),
        ElementType::F64 => Value::Float(f64::from_le_bytes(cursor.array(within)?)),
        ElementType::Bool => Value::Bool(cursor.array::<1>(within)? != [0]),
        ElementType::String => Value::String(cursor.text(within)?),
    })
}
