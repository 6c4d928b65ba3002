//! Asking for memory before it is needed.
//!
//! All of it are hints: the addresses need not exist.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Asks for something that is going to be read soon, by whoever has other things to do until it is there.
#[inline(always)]
pub fn prefetch<T>(what: &T) {
    prefetch_near(std::ptr::from_ref(what).cast(), size_of::<T>());
}

/// Asks for the lines of `bytes` bytes from `at` on, into the nearest cache: for what is needed very soon.
#[inline(always)]
pub(crate) fn prefetch_near(at: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(LINE) {
        let line = at.wrapping_add(line);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: prefetching has no effect on memory and ignores addresses that are not mapped.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}

/// The same into the second-level cache, which can wait for more lines at a time: for what is needed a little later.
#[inline(always)]
pub(crate) fn prefetch_far(at: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(LINE) {
        let line = at.wrapping_add(line);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(line.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}
