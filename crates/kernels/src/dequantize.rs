//! Weights back to f32, bit for bit as gguf-py computes them.

use half::{bf16, f16};

use crate::blocks::{Q4_0, Q4K, Q6K, Q8_0};
use crate::format::Format;

/// Decodes `out.len()` values.
///
/// # Panics
/// If `bytes` is not exactly the encoding of `out.len()` values.
pub fn dequantize(format: Format, bytes: &[u8], out: &mut [f32]) {
    let expected = format.row_bytes(out.len());
    assert!(
        expected == Some(bytes.len()),
        "{} bytes of {format} do not hold {} values",
        bytes.len(),
        out.len()
    );
    let blocks = bytes.chunks_exact(format.block_bytes());
    for (block, values) in blocks.zip(out.chunks_exact_mut(format.block_len())) {
        decode_block(format, block, values);
    }
}

fn decode_block(format: Format, block: &[u8], values: &mut [f32]) {
    match format {
        Format::F32 => values[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
        Format::F16 => values[0] = f16::from_le_bytes([block[0], block[1]]).to_f32(),
        Format::Bf16 => values[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32(),
        Format::Q8_0 => {
            let block = Q8_0::decode(block);
            let scale = block.scale.to_f32();
            for (value, quant) in values.iter_mut().zip(block.quants) {
                *value = f32::from(quant) * scale;
            }
        }
        Format::Q4_0 => {
            let block = Q4_0::decode(block);
            let scale = block.scale.to_f32();
            for (value, quant) in values.iter_mut().zip(block.quants) {
                *value = scale * (f32::from(quant) - 8.0);
            }
        }
        Format::Q4K => {
            let block = Q4K::decode(block);
            let (scale, min) = (block.scale.to_f32(), block.min.to_f32());
            for (i, (value, quant)) in values.iter_mut().zip(block.quants).enumerate() {
                let scale = scale * f32::from(block.scales[i / 32]);
                *value = scale * f32::from(quant) - min * f32::from(block.mins[i / 32]);
            }
        }
        Format::Q6K => {
            let block = Q6K::decode(block);
            let scale = block.scale.to_f32();
            for (i, (value, quant)) in values.iter_mut().zip(block.quants).enumerate() {
                *value = scale * f32::from(block.scales[i / 16]) * (f32::from(quant) - 32.0);
            }
        }
    }
}
