//! An output slice whose disjoint parts are written by several threads.

use std::marker::PhantomData;

/// A mutable slice that may be shared between the chunks of a loop, each of which writes its own part.
pub(crate) struct SharedOut<'a, T> {
    start: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `part`, whose callers promise that parts held at the same time do not overlap.
unsafe impl<T: Send> Sync for SharedOut<'_, T> {}

impl<'a, T> SharedOut<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        SharedOut {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            lifetime: PhantomData,
        }
    }

    /// # Safety
    /// No other part held at the same time may overlap this one.
    #[allow(
        clippy::mut_from_ref,
        reason = "parts do not overlap, by the caller's promise"
    )]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(
            start <= self.len && len <= self.len - start,
            "part {start}+{len} outside of {}",
            self.len
        );
        std::slice::from_raw_parts_mut(self.start.add(start), len)
    }

    /// # Safety
    /// What is written through the pointer must lie inside the slice and be written by one thread only.
    pub(crate) unsafe fn pointer(&self, start: usize) -> *mut T {
        assert!(start <= self.len, "place {start} outside of {}", self.len);
        self.start.add(start)
    }
}
