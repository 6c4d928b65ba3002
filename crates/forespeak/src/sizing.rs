//! How large an engine fits this machine and this model: a pure function of both.

use crate::size::ByteSize;

/// The part of free memory that keys and values take when nobody says how much: the rest stays for the
/// system, which caches the weights' file with it.
const MEMORY_SHARE: f64 = 0.5;

/// What keys and values of one model take, and what there is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KvNeeds {
    /// Bytes of a block, all layers.
    pub(crate) block_bytes: u64,
    /// Tokens in a block.
    pub(crate) block_tokens: usize,
    /// Longest sequence.
    pub(crate) max_model_len: usize,
    /// Most sequences at a time.
    pub(crate) max_num_seqs: usize,
}

/// Why there is no room for a KV cache.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizingError {
    /// Not a single block.
    #[error(
        "the KV cache needs at least {needed}, but {given} is there; give it more with \
         --kv-cache-memory"
    )]
    TooLittle {
        /// For one block.
        needed: ByteSize,
        /// What was given or found.
        given: ByteSize,
    },
}

/// Number of KV blocks: as many as were asked for, or as fit into a share of the free memory, and never
/// more than full sequences in all slots can use.
pub(crate) fn kv_blocks(
    needs: KvNeeds,
    asked: Option<ByteSize>,
    available: Option<ByteSize>,
) -> Result<usize, SizingError> {
    let blocks_of_one = needs.max_model_len.div_ceil(needs.block_tokens).max(1);
    let useful = blocks_of_one.saturating_mul(needs.max_num_seqs.max(1));
    let memory = match (asked, available) {
        (Some(asked), _) => asked,
        (None, Some(available)) => ByteSize((available.0 as f64 * MEMORY_SHARE) as u64),
        // A system that does not say how much is free gets room for one full sequence.
        (None, None) => ByteSize(needs.block_bytes.saturating_mul(blocks_of_one as u64)),
    };
    let fitting = usize::try_from(memory.0 / needs.block_bytes.max(1)).unwrap_or(usize::MAX);
    match fitting.min(useful) {
        0 => Err(SizingError::TooLittle {
            needed: ByteSize(needs.block_bytes),
            given: memory,
        }),
        blocks => Ok(blocks),
    }
}

/// Weights times tokens that one step may cost: about a quarter of a second on two fast cores. A step is
/// never interrupted, so this bounds how long a stream pauses while somebody's long prompt is read.
const STEP_PRODUCTS: usize = 64_000_000_000;

/// Below this many rows a step no longer reads prompts at the processor's full speed.
const FEWEST_STEP_TOKENS: usize = 64;

/// More rows make a step no faster for each of them.
const MOST_STEP_TOKENS: usize = 512;

/// Most tokens in one step of a model that multiplies each token with so many weights.
pub(crate) fn step_tokens(weights_a_token: usize) -> usize {
    (STEP_PRODUCTS / weights_a_token.max(1)).clamp(FEWEST_STEP_TOKENS, MOST_STEP_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: KvNeeds = KvNeeds {
        block_bytes: 1000,
        block_tokens: 16,
        max_model_len: 100,
        max_num_seqs: 3,
    };

    #[test]
    fn never_more_than_all_slots_can_use() {
        let plenty = Some(ByteSize(1 << 40));
        assert_eq!(kv_blocks(NEEDS, plenty, None), Ok(7 * 3));
        assert_eq!(kv_blocks(NEEDS, None, plenty), Ok(7 * 3));
    }

    #[test]
    fn half_of_what_is_free_unless_asked() {
        assert_eq!(kv_blocks(NEEDS, None, Some(ByteSize(10_000))), Ok(5));
        assert_eq!(
            kv_blocks(NEEDS, Some(ByteSize(8_000)), Some(ByteSize(10_000))),
            Ok(8)
        );
        assert_eq!(kv_blocks(NEEDS, None, None), Ok(7));
    }

    #[test]
    fn larger_models_take_shorter_steps() {
        assert_eq!(step_tokens(22_000_000), MOST_STEP_TOKENS);
        assert_eq!(step_tokens(200_000_000), 320);
        assert_eq!(step_tokens(7_000_000_000), FEWEST_STEP_TOKENS);
    }

    #[test]
    fn no_room_is_an_error_that_says_how_much_is_needed() {
        let error = kv_blocks(NEEDS, Some(ByteSize(999)), None).unwrap_err();
        assert!(error.to_string().contains("--kv-cache-memory"), "{error}");
    }
}
