//! Reads GGUF files, versions 2 and 3: a header, metadata, a directory of tensors, their data.
//!
//! The bytes are foreign. Every count and length is held against what is left of the file before
//! anything is allocated for it, so that a lying header costs an error and not memory. The result
//! borrows from the file: large arrays (vocabularies) stay where they are until someone walks them.

mod cursor;
mod directory;
mod metadata;

use std::collections::HashMap;

use crate::ModelError;
use crate::place::Place;
use cursor::Cursor;

pub use metadata::{Array, Elements, Value};

const MAGIC: &[u8] = b"GGUF";
/// Version 1 counted in 32 bits and was in use for some weeks only.
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;

/// A GGUF file's metadata and tensor directory.
#[derive(Debug)]
pub struct Gguf<'a> {
    file: String,
    bytes: &'a [u8],
    metadata: HashMap<&'a str, Value<'a>>,
    tensors: HashMap<&'a str, Place>,
}

impl<'a> Gguf<'a> {
    /// Reads everything but the weights; `file` is the name that errors give.
    ///
    /// ```
    /// use forespeak_model::gguf::Gguf;
    ///
    /// let cut_short = b"GGUF\x03\x00\x00\x00";
    /// let error = Gguf::parse("model.gguf", cut_short).unwrap_err();
    /// assert_eq!(error.to_string(), "model.gguf: ends inside the header");
    /// ```
    pub fn parse(file: &str, bytes: &'a [u8]) -> Result<Self, ModelError> {
        let mut cursor = Cursor::new(file, bytes);
        if cursor.take(MAGIC.len(), "the header")? != MAGIC {
            return Err(ModelError::malformed(
                file,
                "is not a GGUF file (its first four bytes are not `GGUF`)",
            ));
        }
        let version = cursor.u32("the header")?;
        if !VERSIONS.contains(&version) {
            let hint = if VERSIONS.contains(&version.swap_bytes()) {
                "the file is big-endian, convert it to little-endian"
            } else {
                "versions 2 and 3 are"
            };
            return Err(ModelError::unsupported(
                file,
                format!("GGUF version {version}"),
                hint,
            ));
        }
        let tensor_count = cursor.u64("the header")?;
        let metadata_count = cursor.u64("the header")?;
        let metadata = metadata::read(&mut cursor, metadata_count)?;
        let tensors = directory::read(&mut cursor, tensor_count, &metadata)?;
        Ok(Self {
            file: file.to_owned(),
            bytes,
            metadata,
            tensors,
        })
    }

    /// The name given to [`Gguf::parse`].
    pub fn file(&self) -> &str {
        &self.file
    }

    /// All tensors by name.
    pub fn tensors(&self) -> impl Iterator<Item = (&'a str, &Place)> {
        self.tensors.iter().map(|(name, tensor)| (*name, tensor))
    }

    /// A tensor's place in the file.
    pub fn tensor(&self, name: &str) -> Option<&Place> {
        self.tensors.get(name)
    }

    /// A tensor's encoded values.
    pub fn data(&self, tensor: &Place) -> &'a [u8] {
        self.bytes.get(tensor.range.clone()).unwrap_or_default()
    }

    /// A metadata value of whatever type.
    pub fn value(&self, key: &str) -> Option<&Value<'a>> {
        self.metadata.get(key)
    }

    /// A text, if the key is there.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, ModelError> {
        self.typed(key, "a text", |value| match value {
            Value::String(text) => Some(*text),
            _ => None,
        })
    }

    /// A truth value, if the key is there.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.typed(key, "a truth value", |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// A whole number that is not negative, if the key is there.
    pub fn count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.typed(key, "a whole number", Value::as_usize)
    }

    /// A finite number, if the key is there.
    pub fn number(&self, key: &str) -> Result<Option<f32>, ModelError> {
        self.typed(key, "a finite number", Value::as_f32)
    }

    /// An array, if the key is there.
    pub fn array(&self, key: &str) -> Result<Option<&Array<'a>>, ModelError> {
        let Some(value) = self.metadata.get(key) else {
            return Ok(None);
        };
        match value {
            Value::Array(array) => Ok(Some(array)),
            _ => Err(self.wrong_type(key, "an array")),
        }
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.metadata.get(key) else {
            return Ok(None);
        };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(self.wrong_type(key, expected)),
        }
    }

    fn wrong_type(&self, key: &str, expected: &str) -> ModelError {
        ModelError::malformed(&self.file, format!("metadata `{key}` is not {expected}"))
    }
}
