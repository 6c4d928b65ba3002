//! Writing JSON into memory.

use serde::Serialize;

/// Appends `value`. Our values have string keys and finite numbers, so that writing them into memory
/// has no way to fail.
pub(crate) fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok());
}
