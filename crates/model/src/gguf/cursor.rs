//! A position in foreign bytes that cannot leave them.

use crate::ModelError;

/// Names in errors are cut here: a file may claim any name.
const SHOWN_NAME_CHARS: usize = 128;

pub(super) struct Cursor<'f, 'a> {
    file: &'f str,
    bytes: &'a [u8],
    position: usize,
}

impl<'f, 'a> Cursor<'f, 'a> {
    pub(super) fn new(file: &'f str, bytes: &'a [u8]) -> Self {
        Self {
            file,
            bytes,
            position: 0,
        }
    }

    pub(super) fn file(&self) -> &'f str {
        self.file
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn file_len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// The next `len` bytes; `within` says to the reader of an error where the file ended.
    pub(super) fn take(&mut self, len: usize, within: &str) -> Result<&'a [u8], ModelError> {
        let taken = self
            .position
            .checked_add(len)
            .and_then(|end| self.bytes.get(self.position..end));
        let Some(taken) = taken else {
            return Err(self.error(format!("ends inside {within}")));
        };
        self.position += len;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, within: &str) -> Result<[u8; N], ModelError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, within)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, within: &str) -> Result<u32, ModelError> {
        self.array(within).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, within: &str) -> Result<u64, ModelError> {
        self.array(within).map(u64::from_le_bytes)
    }

    /// A 64-bit length that must still fit into the file when each item takes `item_bytes`.
    pub(super) fn checked_count(
        &self,
        count: u64,
        item_bytes: usize,
        of: &str,
    ) -> Result<usize, ModelError> {
        let left = self.bytes.len() - self.position;
        match usize::try_from(count) {
            Ok(count) if count <= left / item_bytes => Ok(count),
            _ => Err(self.error(format!(
                "claims {count} {of}, more than its {} bytes can hold",
                self.bytes.len()
            ))),
        }
    }

    pub(super) fn bytes(&mut self, within: &str) -> Result<&'a [u8], ModelError> {
        let len = self.u64(within)?;
        let len = self.checked_count(len, 1, &format!("bytes for {within}"))?;
        self.take(len, within)
    }

    pub(super) fn text(&mut self, within: &str) -> Result<&'a str, ModelError> {
        let bytes = self.bytes(within)?;
        std::str::from_utf8(bytes).map_err(|_| self.error(format!("{within} is not UTF-8")))
    }

    pub(super) fn error(&self, reason: impl Into<String>) -> ModelError {
        ModelError::malformed(self.file, reason)
    }
}

/// A foreign name, shortened for an error.
pub(super) fn shown(name: &str) -> String {
    match name.char_indices().nth(SHOWN_NAME_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
