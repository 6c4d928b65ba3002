//! Blocks for drafts, on loan.
//!
//! Drafts write keys and values behind a sequence's last token. Whether they hold is known only when the step was
//! verified, and many things can end a step before that: an executor that fails, a sampler that panics, a client
//! that leaves. So whoever drafts holds a [`Loan`]; when it is dropped, however that comes about, the blocks behind
//! the sequence's own tokens go back to the pool before the next step is planned.

use std::sync::{Arc, Mutex, PoisonError};

use super::SeqId;

/// Room for a draft, until it is dropped.
#[derive(Debug)]
pub(crate) struct Loan {
    id: SeqId,
    /// Positions behind the sequence's last token that have a block.
    pub(crate) room: usize,
    ended: Ended,
}

/// Loans that have ended and whose blocks were not yet taken back.
#[derive(Debug, Clone, Default)]
pub(super) struct Ended(Arc<Mutex<Vec<SeqId>>>);

impl Ended {
    pub(super) fn loan(&self, id: SeqId, room: usize) -> Loan {
        Loan {
            id,
            room,
            ended: self.clone(),
        }
    }

    pub(super) fn take(&self) -> Vec<SeqId> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut ended = self.ended.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.push(self.id);
    }
}
