//! Asking for memory before it is needed.

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Asks for the lines of `bytes` bytes from `at` on. A hint: the address need not exist.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(LINE) {
        let line = at.wrapping_add(line);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: prefetching has no effect on memory and ignores addresses that are not mapped.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(line.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}
