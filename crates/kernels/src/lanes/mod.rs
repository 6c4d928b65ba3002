//! Sixteen f32 lanes: the vocabulary that kernels are written in.
//!
//! Every kernel is a generic function over [`Lanes`], compiled once per tier. All operations are defined exactly
//! (fused multiply-add, round to nearest even, sums in one fixed tree), so that the tiers agree to the bit and the
//! scalar one can serve as the oracle. The one exception is [`Lanes::dot_bf16`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod exp;
mod partial;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use exp::exp;
pub(crate) use partial::{load_up_to, store_up_to};
pub(crate) use scalar::Scalar;

/// How many f32 values one [`Lanes`] value holds.
pub(crate) const LANES: usize = 16;

/// Sixteen f32 values.
///
/// # Safety
/// Every method may be called only where the tier's CPU features are present, from code that was compiled with
/// them; pointers must be valid for the sixteen elements (or 64 bytes) read or written, at any alignment.
pub(crate) trait Lanes: Copy {
    /// How many such values the tier can hold as running sums without spilling them.
    const SUMS: usize;
    /// Sixteen i32 values.
    type Int: Copy;
    /// 64 bytes, four to each lane.
    type Bytes: Copy;

    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn load_f16(from: *const u16) -> Self;
    unsafe fn load_i8(from: *const i8) -> Self;
    unsafe fn load_u8(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn store_f16(self, to: *mut u16);
    /// Rounds to the nearest integer (ties to even) and narrows; values must lie within -127..=127. Gives the sum of
    /// what is stored.
    unsafe fn store_i8(self, to: *mut i8) -> i32;

    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// `self * factor + addend`, rounded once.
    unsafe fn fma(self, factor: Self, addend: Self) -> Self;
    /// The larger one; `other` where either is not a number.
    unsafe fn max(self, other: Self) -> Self;
    /// The smaller one; `other` where either is not a number.
    unsafe fn min(self, other: Self) -> Self;
    unsafe fn abs(self) -> Self;
    /// To the nearest integer, ties to even.
    unsafe fn round(self) -> Self;
    /// 2^self for integral values within -126..=127.
    unsafe fn exp2_integral(self) -> Self;
    /// `self`, but zero in the lanes where `probe < bound`.
    unsafe fn zero_where_less(self, probe: Self, bound: Self) -> Self;
    /// The sum of all lanes: halves folded onto each other, 16 to 8 to 4 to 2 to 1.
    unsafe fn sum(self) -> f32;
    /// The largest lane.
    unsafe fn largest(self) -> f32;

    unsafe fn bytes(from: *const u8) -> Self::Bytes;
    /// The low four bits of every byte.
    unsafe fn low_nibbles(bytes: Self::Bytes) -> Self::Bytes;
    /// The high four bits of every byte.
    unsafe fn high_nibbles(bytes: Self::Bytes) -> Self::Bytes;
    /// `low | field << 4`, where `field` is the `FIELD`-th pair of bits of every byte of `pairs`.
    unsafe fn with_high_pair<const FIELD: usize>(
        low: Self::Bytes,
        pairs: Self::Bytes,
    ) -> Self::Bytes;

    unsafe fn int_splat(value: i32) -> Self::Int;
    unsafe fn int_to_float(ints: Self::Int) -> Self;
    /// Adds to every lane the products of its four bytes (each below 64) with the four i8 in `x`.
    unsafe fn dot_small(sums: Self::Int, weights: Self::Bytes, x: i32) -> Self::Int;
    /// What [`Lanes::dot_offset`] has to start from, given minus 128 times the sum of all x it will see.
    unsafe fn dot_offset_start(offset: i32) -> Self::Int;
    /// Like [`Lanes::dot_small`] for weights stored with an offset of 128: after a start by
    /// [`Lanes::dot_offset_start`] the result is the sum of `(weight - 128) * x`.
    unsafe fn dot_offset(sums: Self::Int, weights: Self::Bytes, x: i32) -> Self::Int;
    /// Adds to every lane the products of its two bf16 with the pair in `x`: the even one, then the odd one.
    /// Hardware that has this as one instruction flushes denormals and may round the sum of both differently.
    unsafe fn dot_bf16(self, weights: Self::Bytes, x: u32) -> Self;
}
