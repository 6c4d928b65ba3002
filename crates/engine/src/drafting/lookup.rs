//! Drafts by lookup: what followed the last time a text read like this.
//!
//! Each sequence has an index of its own, which grows with it. What a sequence answered is learnt for
//! later ones, but only for those that may share its KV blocks too: the cache salt keeps tenants apart
//! here as there.

use std::collections::HashMap;

use speculation::ngram::{Found, SuffixIndex, TenantPool};

use crate::scheduler::SeqId;

/// The indexes of all sequences, and what earlier ones said.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    sequences: HashMap<SeqId, SuffixIndex>,
    earlier: TenantPool,
}

impl Lookups {
    /// What most likely follows `tokens`, the whole sequence so far: at most `most` tokens.
    pub(super) fn propose(
        &mut self,
        id: SeqId,
        salt: Option<&str>,
        tokens: &[u32],
        most: usize,
    ) -> Option<Found> {
        let index = self.sequences.entry(id).or_default();
        index.extend(tokens.get(index.len()..).unwrap_or_default());
        let own = index.propose(most);
        let earlier = self.earlier.propose(tenant(salt), tokens, most);
        match (own, earlier) {
            (Some(own), Some(earlier)) if earlier.matched > own.matched => Some(earlier),
            (own, earlier) => own.or(earlier),
        }
    }

    /// A sequence ended with this answer.
    pub(super) fn learn(&mut self, salt: Option<&str>, answer: &[u32]) {
        self.earlier.learn(tenant(salt), answer);
    }

    /// Forgets a sequence.
    pub(super) fn forget(&mut self, id: SeqId) {
        self.sequences.remove(&id);
    }

    /// Forgets all sequences; what was learnt from them stays.
    pub(super) fn forget_all(&mut self) {
        self.sequences.clear();
    }
}

/// A number that no two salts share.
fn tenant(salt: Option<&str>) -> u64 {
    let Some(salt) = salt else {
        return 0;
    };
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(salt.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SeqId = SeqId(1);
    const B: SeqId = SeqId(2);

    #[test]
    fn a_sequence_finds_what_it_said_itself() {
        let mut lookups = Lookups::default();
        let mut tokens = vec![1, 2, 3, 4, 5, 1, 2];
        let found = lookups.propose(A, None, &tokens, 2).unwrap();
        assert_eq!(found.tokens, [3, 4]);
        tokens.push(3);
        let found = lookups.propose(A, None, &tokens, 2).unwrap();
        assert_eq!(found.tokens, [4, 5]);
    }

    #[test]
    fn an_answer_helps_later_sequences_of_the_same_salt_only() {
        let mut lookups = Lookups::default();
        lookups.learn(Some("x"), &[7, 8, 9, 10, 11]);
        let context = [1, 7, 8, 9];
        let found = lookups.propose(A, Some("x"), &context, 4).unwrap();
        assert_eq!(found.tokens, [10, 11]);
        assert_eq!(lookups.propose(B, Some("y"), &context, 4), None);
        assert_eq!(lookups.propose(B, None, &context, 4), None);
    }
}
