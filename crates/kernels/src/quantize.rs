//! f32 values into the encodings of files.

use half::{bf16, f16};

use crate::blocks::{BLOCK, Q4K, Q8_0, SUPERBLOCK};
use crate::format::Format;

/// Encodes one row. Formats without an encoder were refused before (see [`crate::Matrix::quantize`]).
pub(crate) fn encode_row(format: Format, values: &[f32], out: &mut [u8]) {
    let blocks = values.chunks_exact(format.block_len());
    for (values, out) in blocks.zip(out.chunks_exact_mut(format.block_bytes())) {
        match format {
            Format::F32 => out.copy_from_slice(&values[0].to_le_bytes()),
            Format::F16 => out.copy_from_slice(&f16::from_f32(values[0]).to_le_bytes()),
            Format::Bf16 => out.copy_from_slice(&bf16::from_f32(values[0]).to_le_bytes()),
            Format::Q8_0 => q8_0(values).encode(out),
            Format::Q4K => q4_k(values).encode(out),
            Format::Q4_0 | Format::Q6K => debug_assert!(false, "no encoder for {format}"),
        }
    }
}

/// Bit for bit what gguf-py writes: the largest value becomes 127, halves are rounded away from zero.
fn q8_0(values: &[f32]) -> Q8_0 {
    let largest = values
        .iter()
        .fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    Q8_0 {
        scale: f16::from_f32(scale),
        quants: std::array::from_fn(|i| (values[i] * inverse).round() as i8),
    }
}

/// The largest quant of a sub-block of Q4_K.
const LARGEST_NIBBLE: f32 = 15.0;
/// The largest of its scales and minima.
const LARGEST_SCALE: f32 = 63.0;
/// How many ranges the search tries for each sub-block.
const TRIES: usize = 21;
/// By how much the tried ranges differ, in quants. The true range is the eleventh; wider ones round less, narrower
/// ones clip.
const TRY_STEP: f32 = 0.1;
const FIRST_TRY: f32 = -1.0;

/// A line `scale * quant - min` through the values of a sub-block.
#[derive(Clone, Copy, Default)]
struct Line {
    scale: f32,
    min: f32,
}

impl Line {
    fn quant(self, value: f32) -> f32 {
        if self.scale == 0.0 {
            0.0
        } else {
            ((value + self.min) / self.scale)
                .round_ties_even()
                .clamp(0.0, LARGEST_NIBBLE)
        }
    }

    fn value(self, quant: f32) -> f32 {
        self.scale * quant - self.min
    }
}

fn q4_k(values: &[f32]) -> Q4K {
    let mut lines = [Line::default(); SUPERBLOCK / BLOCK];
    for (line, values) in lines.iter_mut().zip(values.chunks_exact(BLOCK)) {
        *line = best_line(values);
    }
    let largest =
        |part: fn(&Line) -> f32| lines.iter().map(part).fold(0.0, f32::max) / LARGEST_SCALE;
    let (scale, min) = (
        f16::from_f32(largest(|line| line.scale)),
        f16::from_f32(largest(|line| line.min)),
    );
    let in_steps = |value: f32, step: f16| match step.to_f32() {
        0.0 => 0,
        step => (value / step).round_ties_even().clamp(0.0, LARGEST_SCALE) as u8,
    };
    let mut block = Q4K {
        scale,
        min,
        scales: [0; 8],
        mins: [0; 8],
        quants: [0; SUPERBLOCK],
    };
    for (j, line) in lines.iter().enumerate() {
        block.scales[j] = in_steps(line.scale, scale);
        block.mins[j] = in_steps(line.min, min);
        // Rounding the line's own numbers moved it a little: choose the quants anew for where it is now.
        let line = Line {
            scale: scale.to_f32() * f32::from(block.scales[j]),
            min: min.to_f32() * f32::from(block.mins[j]),
        };
        let range = j * BLOCK..(j + 1) * BLOCK;
        for (quant, value) in block.quants[range.clone()].iter_mut().zip(&values[range]) {
            *quant = line.quant(*value) as u8;
        }
    }
    block
}

/// Tries several ranges, fits a line to the quants that each gives, and keeps the one with the least error. Large
/// values weigh more: they decide more of a product than those near zero.
fn best_line(values: &[f32]) -> Line {
    let low = values.iter().copied().fold(0.0, f32::min);
    let high = values.iter().copied().fold(f32::MIN, f32::max);
    if high - low < f32::MIN_POSITIVE {
        return Line {
            scale: 0.0,
            min: -low,
        };
    }
    let mean_square = values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32;
    let weight = |value: f32| mean_square.sqrt() + value.abs();
    let error = |line: Line| -> f32 {
        values
            .iter()
            .map(|&value| weight(value) * (line.value(line.quant(value)) - value).powi(2))
            .sum()
    };
    let mut best = Line {
        scale: (high - low) / LARGEST_NIBBLE,
        min: -low,
    };
    let mut least = error(best);
    for attempt in 0..TRIES {
        let range = LARGEST_NIBBLE + FIRST_TRY + TRY_STEP * attempt as f32;
        let start = Line {
            scale: (high - low) / range,
            min: -low,
        };
        let line = fit(values, weight, start);
        let error = error(line);
        if error < least {
            (best, least) = (line, error);
        }
    }
    best
}

/// The line with the least weighted square error for the quants that `start` gives.
fn fit(values: &[f32], weight: impl Fn(f32) -> f32, start: Line) -> Line {
    let (mut w, mut wq, mut wqq, mut wv, mut wqv) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &value in values {
        let (weight, quant) = (weight(value), start.quant(value));
        w += weight;
        wq += weight * quant;
        wqq += weight * quant * quant;
        wv += weight * value;
        wqv += weight * quant * value;
    }
    let determinant = w * wqq - wq * wq;
    if determinant <= 0.0 {
        return start;
    }
    let scale = (w * wqv - wq * wv) / determinant;
    let min = (wq * wqv - wqq * wv) / determinant;
    match (scale > 0.0, min >= 0.0) {
        (true, true) => Line { scale, min },
        // The file stores minima without a sign: the best line through the origin then.
        (_, false) if wqv > 0.0 && wqq > 0.0 => Line {
            scale: wqv / wqq,
            min: 0.0,
        },
        _ => start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dequantize::dequantize;

    fn wavy(len: usize) -> Vec<f32> {
        (0..len)
            .map(|i| (i as f32 * 0.37).sin() * (1.0 + (i as f32 * 0.011).cos()) * 0.1)
            .collect()
    }

    fn square_error(values: &[f32], encoded: &[u8]) -> f64 {
        let mut decoded = vec![0.0; values.len()];
        dequantize(Format::Q4K, encoded, &mut decoded);
        values
            .iter()
            .zip(decoded)
            .map(|(a, b)| f64::from(a - b).powi(2))
            .sum()
    }

    /// Q4_K without the search: every sub-block's own range.
    fn naive_q4_k(values: &[f32], out: &mut [u8]) {
        let lines: Vec<Line> = values
            .chunks_exact(BLOCK)
            .map(|values| {
                let low = values.iter().copied().fold(0.0, f32::min);
                let high = values.iter().copied().fold(f32::MIN, f32::max);
                Line {
                    scale: (high - low) / LARGEST_NIBBLE,
                    min: -low,
                }
            })
            .collect();
        let step = |part: fn(&Line) -> f32| {
            f16::from_f32(lines.iter().map(part).fold(0.0, f32::max) / 63.0)
        };
        let (scale, min) = (step(|line| line.scale), step(|line| line.min));
        let mut block = Q4K {
            scale,
            min,
            scales: [0; 8],
            mins: [0; 8],
            quants: [0; SUPERBLOCK],
        };
        for (j, line) in lines.iter().enumerate() {
            block.scales[j] = (line.scale / scale.to_f32()).round().min(63.0) as u8;
            block.mins[j] = (line.min / min.to_f32()).round().min(63.0) as u8;
            let range = j * BLOCK..(j + 1) * BLOCK;
            for (quant, value) in block.quants[range.clone()].iter_mut().zip(&values[range]) {
                *quant = line.quant(*value) as u8;
            }
        }
        block.encode(out);
    }

    #[test]
    fn the_search_for_q4_k_beats_plain_ranges_by_a_sixth() {
        let (mut searched, mut naive) = (0.0, 0.0);
        let mut state = 1_u32;
        for _ in 0..64 {
            // Sums of uniforms look like the normal distribution that weights have.
            let values: Vec<f32> = (0..SUPERBLOCK)
                .map(|_| {
                    (0..6)
                        .map(|_| {
                            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
                        })
                        .sum()
                })
                .collect();
            let mut encoded = vec![0; Format::Q4K.block_bytes()];
            encode_row(Format::Q4K, &values, &mut encoded);
            searched += square_error(&values, &encoded);
            naive_q4_k(&values, &mut encoded);
            naive += square_error(&values, &encoded);
        }
        println!(
            "square error of q4_k: {searched:.4} searched, {naive:.4} naive, ratio {:.3}",
            searched / naive
        );
        assert!(searched < 0.84 * naive, "{searched} against {naive}");
    }

    #[test]
    fn constant_and_zero_blocks_are_kept() {
        for constant in [0.0_f32, 0.5, -0.25, 1e-20] {
            let values = vec![constant; SUPERBLOCK];
            let mut encoded = vec![0; Format::Q4K.block_bytes()];
            encode_row(Format::Q4K, &values, &mut encoded);
            let error = square_error(&values, &encoded);
            assert!(
                error <= 1e-3 * f64::from(constant).powi(2) + 1e-12,
                "{constant}: {error}"
            );
        }
    }

    #[test]
    fn q8_0_keeps_values_within_half_a_step() {
        let values = wavy(64);
        let mut encoded = vec![0; 68];
        encode_row(Format::Q8_0, &values, &mut encoded);
        let mut decoded = vec![0.0; 64];
        dequantize(Format::Q8_0, &encoded, &mut decoded);
        for (values, decoded) in values.chunks(32).zip(decoded.chunks(32)) {
            let largest = values.iter().fold(0.0_f32, |a, b| a.max(b.abs()));
            for (a, b) in values.iter().zip(decoded) {
                assert!((a - b).abs() <= largest / 127.0 * 0.51 + largest * 6e-4);
            }
        }
    }
}
