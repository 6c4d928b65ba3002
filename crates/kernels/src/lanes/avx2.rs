//! Lanes in two AVX2 registers.

use std::arch::x86_64::*;

use super::Lanes;

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256, __m256);

#[derive(Clone, Copy)]
pub(crate) struct Pair(__m256i, __m256i);

#[inline(always)]
pub(super) unsafe fn sum_eight(v: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// The sum of sixteen i8. Hardware adds unsigned bytes, so they get an offset that is taken off the sum.
#[inline(always)]
pub(super) unsafe fn sum_of_bytes(bytes: __m128i) -> i32 {
    let offset = _mm_xor_si128(bytes, _mm_set1_epi8(i8::MIN));
    let two = _mm_sad_epu8(offset, _mm_setzero_si128());
    let sum = _mm_add_epi32(two, _mm_unpackhi_epi64(two, two));
    _mm_cvtsi128_si32(sum) - 16 * 128
}

#[inline(always)]
pub(super) unsafe fn largest_of_eight(v: __m256) -> f32 {
    let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
}

#[inline(always)]
unsafe fn low_nibbles(v: __m256i) -> __m256i {
    _mm256_and_si256(v, _mm256_set1_epi8(15))
}

/// The `FIELD`-th pair of bits of every byte, moved to bits 4 and 5.
#[inline(always)]
unsafe fn pair_as_high_bits<const FIELD: usize>(v: __m256i) -> __m256i {
    let moved = match FIELD {
        0 => _mm256_slli_epi16::<4>(v),
        1 => _mm256_slli_epi16::<2>(v),
        2 => v,
        _ => _mm256_srli_epi16::<2>(v),
    };
    _mm256_and_si256(moved, _mm256_set1_epi8(0x30))
}

/// Four unsigned-by-signed byte products per lane; exact while no pair of products leaves i16.
#[inline(always)]
unsafe fn dot_four(sums: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(unsigned, signed);
    _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

/// Products with signed weights: |w| * (x with w's sign), where |w| <= 128 and |x| <= 127 keep pairs within i16.
#[inline(always)]
unsafe fn dot_four_offset(sums: __m256i, weights: __m256i, x: __m256i) -> __m256i {
    let signed = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
    dot_four(sums, _mm256_abs_epi8(signed), _mm256_sign_epi8(x, signed))
}

#[inline(always)]
unsafe fn fma_bf16(sums: __m256, weights: __m256i, even: __m256, odd: __m256) -> __m256 {
    let even_weights = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(weights));
    let odd_weights = _mm256_castsi256_ps(_mm256_and_si256(
        weights,
        _mm256_set1_epi32(0xffff_0000_u32 as i32),
    ));
    _mm256_fmadd_ps(odd_weights, odd, _mm256_fmadd_ps(even_weights, even, sums))
}

#[inline(always)]
unsafe fn power_of_two(v: __m256) -> __m256 {
    let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(v), _mm256_set1_epi32(127));
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
}

impl Lanes for Avx2 {
    const SUMS: usize = 4;
    type Int = Pair;
    type Bytes = Pair;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        let v = _mm256_set1_ps(value);
        Avx2(v, v)
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Avx2(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8)))
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        let (low, high) = (
            _mm_loadu_si128(from.cast()),
            _mm_loadu_si128(from.add(8).cast()),
        );
        Avx2(_mm256_cvtph_ps(low), _mm256_cvtph_ps(high))
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self {
        let (low, high) = (
            _mm_loadl_epi64(from.cast()),
            _mm_loadl_epi64(from.add(8).cast()),
        );
        Avx2(
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high)),
        )
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self {
        let (low, high) = (
            _mm_loadl_epi64(from.cast()),
            _mm_loadl_epi64(from.add(8).cast()),
        );
        Avx2(
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(low)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(high)),
        )
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        _mm256_storeu_ps(to, self.0);
        _mm256_storeu_ps(to.add(8), self.1);
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u16) {
        _mm_storeu_si128(
            to.cast(),
            _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0),
        );
        _mm_storeu_si128(
            to.add(8).cast(),
            _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.1),
        );
    }
    #[inline(always)]
    unsafe fn store_i8(self, to: *mut i8) -> i32 {
        let words = _mm256_packs_epi32(_mm256_cvtps_epi32(self.0), _mm256_cvtps_epi32(self.1));
        // Packing works within 128-bit halves; this puts the four quarters back in order.
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
        let bytes = _mm_packs_epi16(
            _mm256_castsi256_si128(words),
            _mm256_extracti128_si256::<1>(words),
        );
        _mm_storeu_si128(to.cast(), bytes);
        sum_of_bytes(bytes)
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Avx2(
            _mm256_add_ps(self.0, other.0),
            _mm256_add_ps(self.1, other.1),
        )
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Avx2(
            _mm256_sub_ps(self.0, other.0),
            _mm256_sub_ps(self.1, other.1),
        )
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Avx2(
            _mm256_mul_ps(self.0, other.0),
            _mm256_mul_ps(self.1, other.1),
        )
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        Avx2(
            _mm256_div_ps(self.0, other.0),
            _mm256_div_ps(self.1, other.1),
        )
    }
    #[inline(always)]
    unsafe fn fma(self, factor: Self, addend: Self) -> Self {
        Avx2(
            _mm256_fmadd_ps(self.0, factor.0, addend.0),
            _mm256_fmadd_ps(self.1, factor.1, addend.1),
        )
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        Avx2(
            _mm256_max_ps(self.0, other.0),
            _mm256_max_ps(self.1, other.1),
        )
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        Avx2(
            _mm256_min_ps(self.0, other.0),
            _mm256_min_ps(self.1, other.1),
        )
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        let sign = _mm256_set1_ps(-0.0);
        Avx2(
            _mm256_andnot_ps(sign, self.0),
            _mm256_andnot_ps(sign, self.1),
        )
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        Avx2(
            _mm256_round_ps::<NEAREST>(self.0),
            _mm256_round_ps::<NEAREST>(self.1),
        )
    }
    #[inline(always)]
    unsafe fn exp2_integral(self) -> Self {
        Avx2(power_of_two(self.0), power_of_two(self.1))
    }
    #[inline(always)]
    unsafe fn zero_where_less(self, probe: Self, bound: Self) -> Self {
        Avx2(
            _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(probe.0, bound.0), self.0),
            _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(probe.1, bound.1), self.1),
        )
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        sum_eight(_mm256_add_ps(self.0, self.1))
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        largest_of_eight(_mm256_max_ps(self.0, self.1))
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self::Bytes {
        Pair(
            _mm256_loadu_si256(from.cast()),
            _mm256_loadu_si256(from.add(32).cast()),
        )
    }
    #[inline(always)]
    unsafe fn low_nibbles(bytes: Self::Bytes) -> Self::Bytes {
        Pair(low_nibbles(bytes.0), low_nibbles(bytes.1))
    }
    #[inline(always)]
    unsafe fn high_nibbles(bytes: Self::Bytes) -> Self::Bytes {
        Pair(
            low_nibbles(_mm256_srli_epi16::<4>(bytes.0)),
            low_nibbles(_mm256_srli_epi16::<4>(bytes.1)),
        )
    }
    #[inline(always)]
    unsafe fn with_high_pair<const FIELD: usize>(
        low: Self::Bytes,
        pairs: Self::Bytes,
    ) -> Self::Bytes {
        Pair(
            _mm256_or_si256(low.0, pair_as_high_bits::<FIELD>(pairs.0)),
            _mm256_or_si256(low.1, pair_as_high_bits::<FIELD>(pairs.1)),
        )
    }

    #[inline(always)]
    unsafe fn int_splat(value: i32) -> Self::Int {
        let v = _mm256_set1_epi32(value);
        Pair(v, v)
    }
    #[inline(always)]
    unsafe fn int_to_float(ints: Self::Int) -> Self {
        Avx2(_mm256_cvtepi32_ps(ints.0), _mm256_cvtepi32_ps(ints.1))
    }
    #[inline(always)]
    unsafe fn dot_small(sums: Self::Int, weights: Self::Bytes, x: i32) -> Self::Int {
        let x = _mm256_set1_epi32(x);
        Pair(
            dot_four(sums.0, weights.0, x),
            dot_four(sums.1, weights.1, x),
        )
    }
    #[inline(always)]
    unsafe fn dot_offset_start(_offset: i32) -> Self::Int {
        Self::int_splat(0)
    }
    #[inline(always)]
    unsafe fn dot_offset(sums: Self::Int, weights: Self::Bytes, x: i32) -> Self::Int {
        let x = _mm256_set1_epi32(x);
        Pair(
            dot_four_offset(sums.0, weights.0, x),
            dot_four_offset(sums.1, weights.1, x),
        )
    }
    #[inline(always)]
    unsafe fn dot_bf16(self, weights: Self::Bytes, x: u32) -> Self {
        let even = _mm256_set1_ps(f32::from_bits(x << 16));
        let odd = _mm256_set1_ps(f32::from_bits(x & 0xffff_0000));
        Avx2(
            fma_bf16(self.0, weights.0, even, odd),
            fma_bf16(self.1, weights.1, even, odd),
        )
    }
}
