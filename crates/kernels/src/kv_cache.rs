//! Paged keys and values.
//!
//! A block holds sixteen tokens of one layer and kv head: keys transposed, `[head_dim][16]`, so that lanes are tokens
//! when scores are computed, and values as `[16][head_dim]`, padded to whole lanes, so that lanes are dimensions when
//! they are summed. Layers are outermost: a layer's neighbouring blocks are neighbours in memory.

use crate::error::KvError;
use crate::lanes::LANES;
use crate::memory::Pages;

/// Tokens in a block.
pub const BLOCK_TOKENS: usize = 16;
/// Heads start at cache lines.
const HEAD_ALIGNMENT: usize = 64;

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Half precision, within its range of ±65,504.
    F16,
    /// Signed bytes with one f32 scale for each token's key and each token's value in each head.
    Int8,
}

/// The shape of a model's keys and values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvShape {
    /// Layers of the model.
    pub layers: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
    /// How they are stored.
    pub kv_type: KvType,
}

/// Where things lie within one head of one block, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadLayout {
    pub(crate) head_dim: usize,
    /// `head_dim` in whole lanes.
    pub(crate) padded_dim: usize,
    pub(crate) kv_type: KvType,
    pub(crate) values_at: usize,
    /// Sixteen f32 scales of the keys, then sixteen of the values; for int8 only.
    pub(crate) scales_at: usize,
    pub(crate) bytes: usize,
}

impl KvShape {
    /// Bytes of one block: keys and values of sixteen tokens in all layers.
    pub fn block_bytes(&self) -> usize {
        self.layers * self.kv_heads * self.head_layout().bytes
    }

    pub(crate) fn head_layout(&self) -> HeadLayout {
        let element = match self.kv_type {
            KvType::F16 => 2,
            KvType::Int8 => 1,
        };
        let padded_dim = self.head_dim.next_multiple_of(LANES);
        let values_at = self.head_dim * BLOCK_TOKENS * element;
        let scales_at = values_at + padded_dim * BLOCK_TOKENS * element;
        let scale_bytes = match self.kv_type {
            KvType::F16 => 0,
            KvType::Int8 => 2 * BLOCK_TOKENS * size_of::<f32>(),
        };
        HeadLayout {
            head_dim: self.head_dim,
            padded_dim,
            kv_type: self.kv_type,
            values_at,
            scales_at,
            bytes: (scales_at + scale_bytes).next_multiple_of(HEAD_ALIGNMENT),
        }
    }

    /// Bytes of a cache of so many blocks, if the shape makes sense and they fit an address space.
    fn cache_bytes(&self, blocks: usize) -> Option<usize> {
        let sizes = [self.layers, self.kv_heads, self.head_dim, blocks];
        // Generous for the widest head (two f32 per value and padding); rules out overflow in `head_layout`.
        let bound = sizes
            .iter()
            .try_fold(1_usize, |product, size| product.checked_mul(*size))?
            .checked_mul(4096)?;
        (bound > 0 && u32::try_from(blocks).is_ok()).then(|| self.block_bytes() * blocks)
    }
}

/// Blocks of keys and values; memory is zeroed and committed when it is first written.
pub struct KvCache {
    shape: KvShape,
    layout: HeadLayout,
    blocks: usize,
    /// `[layer][block][kv_head]`
    memory: Pages,
}

impl KvCache {
    /// A cache of `blocks` blocks.
    pub fn new(shape: KvShape, blocks: usize) -> Result<KvCache, KvError> {
        let bytes = shape.cache_bytes(blocks);
        let bytes = bytes.ok_or_else(|| KvError::Shape {
            shape: format!("{shape:?}"),
            blocks,
        })?;
        let memory = Pages::zeroed(bytes).ok_or(KvError::OutOfMemory { bytes })?;
        Ok(KvCache {
            layout: shape.head_layout(),
            shape,
            blocks,
            memory,
        })
    }

    /// The shape that it was made for.
    pub fn shape(&self) -> &KvShape {
        &self.shape
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Takes the memory of the first `blocks` blocks now. Steps that write to a block for the first time would else wait for
    /// it, all layers of the model at once: tens of milliseconds on a virtual machine.
    pub fn commit(&self, blocks: usize) {
        let bytes = blocks.min(self.blocks) * self.layer_block_bytes();
        for layer in 0..self.shape.layers {
            let start = self.head_at(layer, 0, 0);
            self.memory.commit(start..start + bytes);
        }
    }

    /// Appends the bytes of one block, all layers, to `out`; for sharing blocks between caches of one shape.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn export(&self, block: u32, out: &mut Vec<u8>) {
        assert!(
            (block as usize) < self.blocks,
            "block {block} of {}",
            self.blocks
        );
        for layer in 0..self.shape.layers {
            let start = self.head_at(layer, block, 0);
            out.extend_from_slice(&self.memory[start..start + self.layer_block_bytes()]);
        }
    }

    /// Overwrites one block, all layers, with bytes that [`KvCache::export`] gave.
    pub fn import(&mut self, block: u32, bytes: &[u8]) -> Result<(), KvError> {
        if block as usize >= self.blocks {
            return Err(KvError::NoSuchBlock {
                block,
                blocks: self.blocks,
            });
        }
        let expected = self.shape.block_bytes();
        if bytes.len() != expected {
            return Err(KvError::BlockBytes {
                found: bytes.len(),
                expected,
            });
        }
        for (layer, bytes) in bytes.chunks_exact(self.layer_block_bytes()).enumerate() {
            let start = self.head_at(layer, block, 0);
            self.memory[start..start + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    pub(crate) fn layout(&self) -> HeadLayout {
        self.layout
    }

    fn layer_block_bytes(&self) -> usize {
        self.shape.kv_heads * self.layout.bytes
    }

    /// Where a head's part of a block starts.
    fn head_at(&self, layer: usize, block: u32, head: usize) -> usize {
        ((layer * self.blocks + block as usize) * self.shape.kv_heads + head) * self.layout.bytes
    }

    /// Where the parts of a head lie in all blocks of a layer.
    ///
    /// # Panics
    /// If there is no such layer or head.
    pub(crate) fn head_blocks(&self, layer: usize, head: usize) -> HeadBlocks {
        assert!(
            layer < self.shape.layers && head < self.shape.kv_heads,
            "layer {layer}, head {head}"
        );
        let first = &self.memory[self.head_at(layer, 0, head)..];
        HeadBlocks {
            first: first.as_ptr(),
            stride: self.layer_block_bytes(),
            layout: self.layout,
        }
    }

    /// The memory of all blocks of a layer, for writing.
    ///
    /// # Panics
    /// If there is no such layer.
    pub(crate) fn layer_mut(&mut self, layer: usize) -> &mut [u8] {
        assert!(
            layer < self.shape.layers,
            "layer {layer} of {}",
            self.shape.layers
        );
        let bytes = self.blocks * self.layer_block_bytes();
        &mut self.memory[layer * bytes..(layer + 1) * bytes]
    }
}

/// The parts of one head in all blocks of a layer.
#[derive(Clone, Copy)]
pub(crate) struct HeadBlocks {
    first: *const u8,
    stride: usize,
    pub(crate) layout: HeadLayout,
}

impl HeadBlocks {
    /// The block's place if the cache has it; for prefetching only.
    #[inline(always)]
    pub(crate) fn hint(&self, block: u32) -> *const u8 {
        self.first.wrapping_add(block as usize * self.stride)
    }

    /// # Safety
    /// The cache must have the block.
    #[inline(always)]
    pub(crate) unsafe fn block(&self, block: u32) -> *const u8 {
        self.first.add(block as usize * self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(kv_type: KvType) -> KvShape {
        KvShape {
            layers: 3,
            kv_heads: 2,
            head_dim: 20,
            kv_type,
        }
    }

    #[test]
    fn exported_blocks_can_be_imported_elsewhere() {
        let mut a = KvCache::new(shape(KvType::Int8), 4).unwrap();
        let mut b = KvCache::new(shape(KvType::Int8), 7).unwrap();
        let bytes: Vec<u8> = (0..a.shape().block_bytes()).map(|i| i as u8).collect();
        a.import(2, &bytes).unwrap();
        let mut exported = Vec::new();
        a.export(2, &mut exported);
        assert_eq!(exported, bytes);
        b.import(6, &exported).unwrap();
        exported.clear();
        b.export(6, &mut exported);
        assert_eq!(exported, bytes);
    }

    #[test]
    fn committing_memory_changes_nothing_in_it() {
        let mut cache = KvCache::new(shape(KvType::F16), 300).unwrap();
        let bytes: Vec<u8> = (0..cache.shape().block_bytes()).map(|i| i as u8).collect();
        cache.import(2, &bytes).unwrap();
        cache.commit(100);
        cache.commit(1000);
        for (block, expected) in [(2, &bytes), (3, &vec![0; bytes.len()])] {
            let mut exported = Vec::new();
            cache.export(block, &mut exported);
            assert_eq!(exported, *expected);
        }
    }

    #[test]
    fn wrong_blocks_sizes_and_shapes_are_errors() {
        let mut cache = KvCache::new(shape(KvType::F16), 4).unwrap();
        assert!(matches!(
            cache.import(4, &[]),
            Err(KvError::NoSuchBlock { .. })
        ));
        assert!(matches!(
            cache.import(0, &[1, 2]),
            Err(KvError::BlockBytes { .. })
        ));
        assert!(matches!(
            KvCache::new(shape(KvType::F16), 0),
            Err(KvError::Shape { .. })
        ));
        assert!(matches!(
            KvCache::new(shape(KvType::F16), usize::MAX),
            Err(KvError::Shape { .. })
        ));
        let huge = KvShape {
            layers: 1 << 20,
            kv_heads: 1 << 10,
            head_dim: 1 << 16,
            kv_type: KvType::F16,
        };
        assert!(KvCache::new(huge, 1 << 20).is_err());
    }

    #[test]
    fn int8_takes_little_more_than_half_of_f16() {
        let bytes = |kv_type| {
            KvShape {
                layers: 1,
                kv_heads: 1,
                head_dim: 128,
                kv_type,
            }
            .block_bytes()
        };
        assert_eq!(bytes(KvType::F16), 2 * 2 * 128 * 16);
        assert!((bytes(KvType::Int8) as f64) < 0.54 * bytes(KvType::F16) as f64);
    }
}
