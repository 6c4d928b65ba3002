//! Lanes at the end of a row, where fewer than sixteen values are left.

use super::{LANES, Lanes};

/// Loads the first `len` lanes and fills the others with zero.
///
/// # Safety
/// As for [`Lanes`]; `from` must be valid for `len` values, of which at most sixteen are read.
#[inline(always)]
pub(crate) unsafe fn load_up_to<L: Lanes>(from: *const f32, len: usize) -> L {
    if len >= LANES {
        return L::load(from);
    }
    let mut buffer = [0.0; LANES];
    std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), len);
    L::load(buffer.as_ptr())
}

/// Stores the first `len` lanes.
///
/// # Safety
/// As for [`Lanes`]; `to` must be valid for `len` values, of which at most sixteen are written.
#[inline(always)]
pub(crate) unsafe fn store_up_to<L: Lanes>(lanes: L, to: *mut f32, len: usize) {
    if len >= LANES {
        lanes.store(to);
        return;
    }
    let mut buffer = [0.0; LANES];
    lanes.store(buffer.as_mut_ptr());
    std::ptr::copy_nonoverlapping(buffer.as_ptr(), to, len);
}
