//! Lanes in one AVX-512 register. Byte products use VNNI, bf16 products the BF16 extension.

use std::arch::x86_64::*;

use super::Lanes;

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

#[inline(always)]
unsafe fn halves(v: __m512) -> (__m256, __m256) {
    (_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v))
}

impl Lanes for Avx512 {
    const SUMS: usize = 16;
    type Int = __m512i;
    type Bytes = __m512i;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Avx512(_mm512_set1_ps(value))
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Avx512(_mm512_loadu_ps(from))
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        Avx512(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast())))
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self {
        Avx512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(
            from.cast(),
        ))))
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self {
        Avx512(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(
            from.cast(),
        ))))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        _mm512_storeu_ps(to, self.0);
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u16) {
        _mm256_storeu_si256(
            to.cast(),
            _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0),
        );
    }
    #[inline(always)]
    unsafe fn store_i8(self, to: *mut i8) -> i32 {
        let bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(self.0));
        _mm_storeu_si128(to.cast(), bytes);
        super::avx2::sum_of_bytes(bytes)
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Avx512(_mm512_add_ps(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Avx512(_mm512_sub_ps(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Avx512(_mm512_mul_ps(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        Avx512(_mm512_div_ps(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn fma(self, factor: Self, addend: Self) -> Self {
        Avx512(_mm512_fmadd_ps(self.0, factor.0, addend.0))
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        Avx512(_mm512_max_ps(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        Avx512(_mm512_min_ps(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        Avx512(_mm512_abs_ps(self.0))
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        Avx512(_mm512_roundscale_ps::<_MM_FROUND_TO_NEAREST_INT>(self.0))
    }
    #[inline(always)]
    unsafe fn exp2_integral(self) -> Self {
        let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(self.0), _mm512_set1_epi32(127));
        Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent)))
    }
    #[inline(always)]
    unsafe fn zero_where_less(self, probe: Self, bound: Self) -> Self {
        let keep = !_mm512_cmp_ps_mask::<_CMP_LT_OQ>(probe.0, bound.0);
        Avx512(_mm512_maskz_mov_ps(keep, self.0))
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        let (low, high) = halves(self.0);
        super::avx2::sum_eight(_mm256_add_ps(low, high))
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        let (low, high) = halves(self.0);
        super::avx2::largest_of_eight(_mm256_max_ps(low, high))
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self::Bytes {
        _mm512_loadu_si512(from.cast())
    }
    #[inline(always)]
    unsafe fn low_nibbles(bytes: Self::Bytes) -> Self::Bytes {
        _mm512_and_si512(bytes, _mm512_set1_epi8(15))
    }
    #[inline(always)]
    unsafe fn high_nibbles(bytes: Self::Bytes) -> Self::Bytes {
        _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), _mm512_set1_epi8(15))
    }
    #[inline(always)]
    unsafe fn with_high_pair<const FIELD: usize>(
        low: Self::Bytes,
        pairs: Self::Bytes,
    ) -> Self::Bytes {
        let moved = match FIELD {
            0 => _mm512_slli_epi16::<4>(pairs),
            1 => _mm512_slli_epi16::<2>(pairs),
            2 => pairs,
            _ => _mm512_srli_epi16::<2>(pairs),
        };
        // 0xF8 is the truth table of `low | (moved & mask)`.
        _mm512_ternarylogic_epi32::<0xF8>(low, moved, _mm512_set1_epi8(0x30))
    }

    #[inline(always)]
    unsafe fn int_splat(value: i32) -> Self::Int {
        _mm512_set1_epi32(value)
    }
    #[inline(always)]
    unsafe fn int_to_float(ints: Self::Int) -> Self {
        Avx512(_mm512_cvtepi32_ps(ints))
    }
    #[inline(always)]
    unsafe fn dot_small(sums: Self::Int, weights: Self::Bytes, x: i32) -> Self::Int {
        _mm512_dpbusd_epi32(sums, weights, _mm512_set1_epi32(x))
    }
    #[inline(always)]
    unsafe fn dot_offset_start(offset: i32) -> Self::Int {
        _mm512_set1_epi32(offset)
    }
    #[inline(always)]
    unsafe fn dot_offset(sums: Self::Int, weights: Self::Bytes, x: i32) -> Self::Int {
        _mm512_dpbusd_epi32(sums, weights, _mm512_set1_epi32(x))
    }
    #[inline(always)]
    unsafe fn dot_bf16(self, weights: Self::Bytes, x: u32) -> Self {
        let pair = _mm512_set1_epi32(x as i32);
        Avx512(_mm512_dpbf16_ps(
            self.0,
            std::mem::transmute::<__m512i, __m512bh>(weights),
            std::mem::transmute::<__m512i, __m512bh>(pair),
        ))
    }
}
