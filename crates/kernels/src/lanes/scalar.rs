//! Lanes in plain Rust: runs everywhere and defines what the other tiers must compute.

use std::array::from_fn;

use half::{bf16, f16};

use super::{LANES, Lanes};

#[derive(Clone, Copy)]
pub(crate) struct Scalar([f32; LANES]);

#[inline(always)]
fn map(a: Scalar, f: impl Fn(f32) -> f32) -> Scalar {
    Scalar(from_fn(|i| f(a.0[i])))
}

#[inline(always)]
fn zip(a: Scalar, b: Scalar, f: impl Fn(f32, f32) -> f32) -> Scalar {
    Scalar(from_fn(|i| f(a.0[i], b.0[i])))
}

#[inline(always)]
fn fold(a: Scalar, f: impl Fn(f32, f32) -> f32) -> f32 {
    let eight: [f32; 8] = from_fn(|i| f(a.0[i], a.0[i + 8]));
    let four: [f32; 4] = from_fn(|i| f(eight[i], eight[i + 4]));
    f(f(four[0], four[2]), f(four[1], four[3]))
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// The four products of one lane. Written over i16, which compilers turn into vector code on their own.
#[inline(always)]
fn dot4(weights: [i16; 4], x: [i8; 4]) -> i32 {
    (0..4)
        .map(|i| i32::from(weights[i]) * i32::from(x[i]))
        .sum()
}

#[inline(always)]
fn signed_bytes(x: i32) -> [i8; 4] {
    x.to_le_bytes().map(|byte| byte as i8)
}

impl Lanes for Scalar {
    const SUMS: usize = 4;
    type Int = [i32; LANES];
    type Bytes = [u8; 4 * LANES];

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Scalar([value; LANES])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Scalar(from.cast::<[f32; LANES]>().read_unaligned())
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        let bits = from.cast::<[u16; LANES]>().read_unaligned();
        Scalar(bits.map(|bits| f16::from_bits(bits).to_f32()))
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self {
        Scalar(from.cast::<[i8; LANES]>().read_unaligned().map(f32::from))
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self {
        Scalar(from.cast::<[u8; LANES]>().read_unaligned().map(f32::from))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        to.cast::<[f32; LANES]>().write_unaligned(self.0);
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u16) {
        to.cast::<[u16; LANES]>()
            .write_unaligned(self.0.map(|value| f16::from_f32(value).to_bits()));
    }
    #[inline(always)]
    unsafe fn store_i8(self, to: *mut i8) -> i32 {
        let bytes = self.0.map(|value| value.round_ties_even() as i8);
        to.cast::<[i8; LANES]>().write_unaligned(bytes);
        bytes.into_iter().map(i32::from).sum()
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        zip(self, other, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        zip(self, other, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        zip(self, other, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        zip(self, other, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn fma(self, factor: Self, addend: Self) -> Self {
        Scalar(from_fn(|i| self.0[i].mul_add(factor.0[i], addend.0[i])))
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        zip(self, other, larger)
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        zip(self, other, smaller)
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        map(self, f32::abs)
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        map(self, f32::round_ties_even)
    }
    #[inline(always)]
    unsafe fn exp2_integral(self) -> Self {
        map(self, |power| {
            f32::from_bits(((power as i32).wrapping_add(127) as u32) << 23)
        })
    }
    #[inline(always)]
    unsafe fn zero_where_less(self, probe: Self, bound: Self) -> Self {
        Scalar(from_fn(|i| {
            if probe.0[i] < bound.0[i] {
                0.0
            } else {
                self.0[i]
            }
        }))
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        fold(self, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        fold(self, larger)
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self::Bytes {
        from.cast::<Self::Bytes>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn low_nibbles(bytes: Self::Bytes) -> Self::Bytes {
        bytes.map(|byte| byte & 15)
    }
    #[inline(always)]
    unsafe fn high_nibbles(bytes: Self::Bytes) -> Self::Bytes {
        bytes.map(|byte| byte >> 4)
    }
    #[inline(always)]
    unsafe fn with_high_pair<const FIELD: usize>(
        low: Self::Bytes,
        pairs: Self::Bytes,
    ) -> Self::Bytes {
        from_fn(|i| low[i] | ((pairs[i] >> (2 * FIELD)) & 3) << 4)
    }

    #[inline(always)]
    unsafe fn int_splat(value: i32) -> Self::Int {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn int_to_float(ints: Self::Int) -> Self {
        Scalar(ints.map(|int| int as f32))
    }
    #[inline(always)]
    unsafe fn dot_small(sums: Self::Int, weights: Self::Bytes, x: i32) -> Self::Int {
        let x = signed_bytes(x);
        from_fn(|i| sums[i] + dot4(from_fn(|j| i16::from(weights[4 * i + j])), x))
    }
    #[inline(always)]
    unsafe fn dot_offset_start(_offset: i32) -> Self::Int {
        [0; LANES]
    }
    #[inline(always)]
    unsafe fn dot_offset(sums: Self::Int, weights: Self::Bytes, x: i32) -> Self::Int {
        let x = signed_bytes(x);
        from_fn(|i| sums[i] + dot4(from_fn(|j| i16::from(weights[4 * i + j]) - 128), x))
    }
    #[inline(always)]
    unsafe fn dot_bf16(self, weights: Self::Bytes, x: u32) -> Self {
        let even = bf16::from_bits(x as u16).to_f32();
        let odd = bf16::from_bits((x >> 16) as u16).to_f32();
        Scalar(from_fn(|i| {
            let pair = u32::from_le_bytes(from_fn(|j| weights[4 * i + j]));
            let sum = f32::from_bits(pair << 16).mul_add(even, self.0[i]);
            f32::from_bits(pair & 0xffff_0000).mul_add(odd, sum)
        }))
    }
}
