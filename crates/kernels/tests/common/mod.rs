//! Inputs that several tests share.
#![allow(dead_code, reason = "every test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a failure to set up is a failed test")]

use forespeak_kernels::{Compute, Format, Matrix, Tier};

/// A small generator with a printed seed: tests need reproducible noise, not good randomness.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Noise {
        Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Uniform within -1..1.
    pub(crate) fn value(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(crate) fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.value()).collect()
    }
}

/// Encoded rows with random quants and sensible scales.
pub(crate) fn random_rows(
    format: Format,
    rows: usize,
    cols: usize,
    noise: &mut Noise,
) -> Vec<Vec<u8>> {
    let half_near_one = |noise: &mut Noise| (0x2000 + noise.bits() % 0x800) as u16;
    (0..rows)
        .map(|_| {
            let mut row: Vec<u8> = (0..format.row_bytes(cols).unwrap())
                .map(|_| noise.bits() as u8)
                .collect();
            for block in row.chunks_exact_mut(format.block_bytes()) {
                let scales: &[usize] = match format {
                    Format::F32 => {
                        block.copy_from_slice(&noise.value().to_le_bytes());
                        continue;
                    }
                    Format::Bf16 => {
                        block.copy_from_slice(&noise.value().to_le_bytes()[2..]);
                        continue;
                    }
                    Format::F16 | Format::Q8_0 | Format::Q4_0 => &[0],
                    Format::Q4K => &[0, 2],
                    Format::Q6K => &[208],
                };
                for at in scales {
                    block[*at..at + 2].copy_from_slice(&half_near_one(noise).to_le_bytes());
                }
            }
            row
        })
        .collect()
}

pub(crate) fn pack(compute: &Compute, format: Format, rows: &[Vec<u8>], cols: usize) -> Matrix {
    Matrix::pack(compute, format, rows.len(), cols, |row| &rows[row]).unwrap()
}

/// The tiers that this machine has.
pub(crate) fn tiers() -> Vec<Tier> {
    Tier::ALL
        .into_iter()
        .filter(|tier| *tier <= Tier::detect())
        .collect()
}
