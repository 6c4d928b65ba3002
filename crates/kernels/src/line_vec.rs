//! A vector that begins at a cache line, so that what lies side by side in it takes as few lines as it can.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::prefetch::LINE;

/// Values of which any bytes make one.
///
/// # Safety
/// Every pattern of bits must be a valid value, and its alignment at most that of a line.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: numbers.
unsafe impl Plain for i8 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "it is read as what lies in it")] [u8; LINE]);

const _: () = assert!(align_of::<Line>() == LINE);

/// Values from the beginning of a cache line on.
pub(crate) struct LineVec<T> {
    lines: Vec<Line>,
    len: usize,
    values: PhantomData<T>,
}

impl<T> Default for LineVec<T> {
    fn default() -> Self {
        LineVec {
            lines: Vec::new(),
            len: 0,
            values: PhantomData,
        }
    }
}

impl<T: Plain> LineVec<T> {
    /// Gives it another length. What its values are then is not said; the memory is kept.
    pub(crate) fn resize(&mut self, len: usize) {
        let lines = (len * size_of::<T>()).div_ceil(LINE);
        self.lines.resize(lines, Line([0; LINE]));
        self.len = len;
    }
}

impl<T: Plain> Deref for LineVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the lines hold so many bytes, all of them written, and any bytes make values.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl<T: Plain> DerefMut for LineVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_line_and_keeps_what_was_written() {
        let mut values = LineVec::<f32>::default();
        assert!(values.is_empty());
        for len in [1, 16, 17, 1000] {
            values.resize(len);
            assert_eq!(values.len(), len);
            assert_eq!(values.as_ptr() as usize % LINE, 0);
            for (i, value) in values.iter_mut().enumerate() {
                *value = i as f32;
            }
            assert_eq!(values[len - 1], (len - 1) as f32);
        }
    }
}
