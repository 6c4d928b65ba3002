//! Sequences whose blocks are being loaded. They stand aside, so that others go on, and come back into the
//! queue whatever the outcome: loaded blocks are put into the prefix cache, where admission finds them like any
//! others.

use crate::blocks::{BlockHash, BlockTable};

use super::{Scheduler, SeqId};

/// Places for a sequence's loaded blocks, behind those that are cached already.
#[derive(Debug)]
pub(crate) struct Shelf {
    id: SeqId,
    table: BlockTable,
    /// Place in the chain of the first loaded block.
    first: usize,
    /// Of the blocks that were asked for, how many were cached meanwhile.
    pub(crate) skip: usize,
}

impl Shelf {
    /// Blocks to be filled.
    pub(crate) fn blocks(&self) -> &[u32] {
        &self.table.as_slice()[self.first..]
    }
}

impl Scheduler {
    /// Blocks of a waiting sequence that are not cached here: the place of the first one, and their names.
    pub(crate) fn uncached(&self, id: SeqId) -> Option<(usize, &[BlockHash])> {
        let sequence = self.sequences.get(&id)?;
        let sharable = sequence.sharable();
        let cached = self.pool.cached_prefix(sharable).blocks;
        Some((cached, &sharable[cached..]))
    }

    /// Takes a waiting sequence out of the queue until [`Scheduler::bring_back`].
    pub(crate) fn set_aside(&mut self, id: SeqId) {
        if let Some(sequence) = self.sequences.get_mut(&id)
            && self.waiting.remove(&sequence.rank)
        {
            sequence.waits_for_blocks = true;
            self.loading += 1;
        }
    }

    /// Puts it back into the queue.
    pub(crate) fn bring_back(&mut self, id: SeqId) {
        if let Some(sequence) = self.sequences.get_mut(&id)
            && sequence.waits_for_blocks
        {
            sequence.waits_for_blocks = false;
            self.loading -= 1;
            self.waiting.insert(sequence.rank);
        }
    }

    /// Makes room for a sequence's blocks `names`, which begin at place `from`, as far as there is room. `None` if
    /// they are not of this sequence, or what comes before them is gone.
    pub(crate) fn make_room(
        &mut self,
        id: SeqId,
        from: usize,
        names: &[BlockHash],
    ) -> Option<Shelf> {
        let sequence = self.sequences.get(&id)?;
        let upto = from + names.len();
        let hashes = sequence.chain.hashes().get(..upto)?;
        if hashes.get(from..) != Some(names) {
            return None;
        }
        let cached = self.pool.cached_prefix(hashes).blocks;
        let skip = cached.checked_sub(from)?;
        let mut table = BlockTable::default();
        // Held while room is made: else the prefix could be evicted for what hangs on it.
        self.pool.take_cached(&mut table, &hashes[..cached]);
        let count = (upto - cached).min(self.pool.available());
        // Never more than are there.
        let _ = self.pool.allocate(&mut table, count);
        Some(Shelf {
            id,
            table,
            first: cached,
            skip,
        })
    }

    /// The first `filled` blocks of the shelf hold what they should: everybody may use them.
    pub(crate) fn shelve(&mut self, mut shelf: Shelf, filled: usize) {
        if let Some(sequence) = self.sequences.get(&shelf.id) {
            let filled = shelf.first..shelf.first + filled.min(shelf.blocks().len());
            self.pool
                .publish(&shelf.table, filled, &sequence.chain, &sequence.tokens);
        }
        self.pool.release(&mut shelf.table);
    }
}
