//! The quantised blocks of GGUF files, taken apart into plain integers and put together again.

use half::f16;

/// Values in a block of the simple formats, and in a sub-block of Q4_K.
pub(crate) const BLOCK: usize = 32;
/// Values in a block of the K formats.
pub(crate) const SUPERBLOCK: usize = 256;

/// One block of Q8_0: value i is `scale * quants[i]`.
pub(crate) struct Q8_0 {
    pub(crate) scale: f16,
    pub(crate) quants: [i8; BLOCK],
}

/// One block of Q4_0: value i is `scale * (quants[i] - 8)`.
pub(crate) struct Q4_0 {
    pub(crate) scale: f16,
    pub(crate) quants: [u8; BLOCK],
}

/// One block of Q4_K: value i is `scale * scales[i / 32] * quants[i] - min * mins[i / 32]`.
pub(crate) struct Q4K {
    pub(crate) scale: f16,
    pub(crate) min: f16,
    pub(crate) scales: [u8; 8],
    pub(crate) mins: [u8; 8],
    pub(crate) quants: [u8; SUPERBLOCK],
}

/// One block of Q6_K: value i is `scale * scales[i / 16] * (quants[i] - 32)`.
pub(crate) struct Q6K {
    pub(crate) scale: f16,
    pub(crate) scales: [i8; 16],
    pub(crate) quants: [u8; SUPERBLOCK],
}

fn half_at(bytes: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]])
}

impl Q8_0 {
    /// `bytes` is one block of 34 bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Q8_0 {
        Q8_0 {
            scale: half_at(bytes, 0),
            quants: std::array::from_fn(|i| bytes[2 + i] as i8),
        }
    }

    pub(crate) fn encode(&self, bytes: &mut [u8]) {
        bytes[..2].copy_from_slice(&self.scale.to_le_bytes());
        for (byte, quant) in bytes[2..].iter_mut().zip(self.quants) {
            *byte = quant as u8;
        }
    }
}

impl Q4_0 {
    /// `bytes` is one block of 18 bytes: low nibbles are the first half, high nibbles the second.
    pub(crate) fn decode(bytes: &[u8]) -> Q4_0 {
        let nibbles = &bytes[2..18];
        let quant = |i: usize| {
            if i < 16 {
                nibbles[i] & 15
            } else {
                nibbles[i - 16] >> 4
            }
        };
        Q4_0 {
            scale: half_at(bytes, 0),
            quants: std::array::from_fn(quant),
        }
    }
}

impl Q4K {
    /// `bytes` is one block of 144 bytes. The twelve bytes of scales hold sub-blocks 0 to 3 in the low six bits of
    /// bytes 0 to 7, and sub-blocks 4 to 7 in the nibbles of bytes 8 to 11 with their high bits on top of bytes 0
    /// to 7. Each 32 bytes of nibbles hold two sub-blocks, low nibbles first.
    pub(crate) fn decode(bytes: &[u8]) -> Q4K {
        let packed = &bytes[4..16];
        let nibbles = &bytes[16..144];
        let scale = |j: usize| match j {
            0..4 => packed[j] & 63,
            _ => (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4,
        };
        let min = |j: usize| match j {
            0..4 => packed[j + 4] & 63,
            _ => (packed[j + 4] >> 4) | (packed[j] >> 6) << 4,
        };
        let quant = |i: usize| {
            let byte = nibbles[i / 64 * 32 + i % 32];
            if i % 64 < 32 { byte & 15 } else { byte >> 4 }
        };
        Q4K {
            scale: half_at(bytes, 0),
            min: half_at(bytes, 2),
            scales: std::array::from_fn(scale),
            mins: std::array::from_fn(min),
            quants: std::array::from_fn(quant),
        }
    }

    pub(crate) fn encode(&self, bytes: &mut [u8]) {
        bytes[..2].copy_from_slice(&self.scale.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.min.to_le_bytes());
        for j in 0..4 {
            let (scale, min) = (self.scales[j + 4], self.mins[j + 4]);
            bytes[4 + j] = self.scales[j] | (scale >> 4) << 6;
            bytes[8 + j] = self.mins[j] | (min >> 4) << 6;
            bytes[12 + j] = (scale & 15) | (min & 15) << 4;
        }
        for i in 0..SUPERBLOCK / 2 {
            let first = i / 32 * 64 + i % 32;
            bytes[16 + i] = self.quants[first] | self.quants[first + 32] << 4;
        }
    }
}

impl Q6K {
    /// `bytes` is one block of 210 bytes. Each half of 128 values has 64 bytes of low bits (low nibbles are values
    /// 0 to 63) and 32 bytes of high bits (pair p of byte i belongs to value 32 p + i).
    pub(crate) fn decode(bytes: &[u8]) -> Q6K {
        let quant = |i: usize| {
            let (half, within) = (i / 128, i % 128);
            let low = bytes[half * 64 + within % 64] >> (within / 64 * 4) & 15;
            let high = bytes[128 + half * 32 + within % 32] >> (within / 32 * 2) & 3;
            low | high << 4
        };
        Q6K {
            scale: half_at(bytes, 208),
            scales: std::array::from_fn(|i| bytes[192 + i] as i8),
            quants: std::array::from_fn(quant),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;

    #[test]
    fn q4_k_blocks_survive_a_round_trip() {
        let bytes: Vec<u8> = (0..Format::Q4K.block_bytes())
            .map(|i| (i * 37 + 11) as u8)
            .collect();
        let mut again = vec![0; bytes.len()];
        Q4K::decode(&bytes).encode(&mut again);
        assert_eq!(bytes, again);
    }
}
