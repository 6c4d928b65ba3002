//! Drafts by lookup: what followed the last time a text read like this.
//!
//! Each sequence has an index of its own, which grows with it. What a sequence answered is learnt for
//! later ones, but only for those that may share its KV blocks too: the cache salt keeps tenants apart
//! here as there.

use std::collections::HashMap;

use speculation::ngram::{Found, SuffixIndex, TenantPool};
use speculation::{DrafterKind, Source};

use super::drafter::{Decoding, DraftTime, Drafter, Offer, StopRule, Wanted};
use crate::scheduler::SeqId;

/// The indexes of all sequences, and what earlier ones said.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    sequences: HashMap<SeqId, Lookup>,
    earlier: TenantPool,
}

/// A sequence's own text, and what was found for its present end.
#[derive(Debug, Default)]
struct Lookup {
    index: SuffixIndex,
    found: Vec<u32>,
}

impl Drafter for Lookups {
    fn kind(&self) -> DrafterKind {
        DrafterKind::Ngram
    }

    fn offer(&mut self, sequence: &Decoding<'_>) -> Option<Offer> {
        let lookup = self.sequences.entry(sequence.id).or_default();
        let known = lookup.index.len();
        lookup
            .index
            .extend(sequence.tokens.get(known..).unwrap_or_default());
        let own = lookup.index.propose(sequence.max_depth);
        let tenant = tenant(sequence.salt);
        let earlier = self
            .earlier
            .propose(tenant, sequence.tokens, sequence.max_depth);
        let found = longer_match(own, earlier)?;
        let offer = Offer {
            source: Source::Ngram(found.lookup().strength),
            length: found.tokens.len(),
            behind: 0,
        };
        lookup.found = found.tokens;
        Some(offer)
    }

    fn draft(
        &mut self,
        wanted: &mut [Wanted<'_>],
        _stop: &StopRule<'_>,
    ) -> Result<DraftTime, String> {
        for Wanted { intent, .. } in wanted {
            if let Some(lookup) = self.sequences.get_mut(&intent.id) {
                intent.draft = std::mem::take(&mut lookup.found);
                intent.draft.truncate(intent.depth);
            }
        }
        Ok(DraftTime::default())
    }

    fn learn(&mut self, salt: Option<&str>, answer: &[u32]) {
        self.earlier.learn(tenant(salt), answer);
    }

    fn forget(&mut self, id: SeqId) {
        self.sequences.remove(&id);
    }

    fn forget_all(&mut self) {
        self.sequences.clear();
    }
}

/// Of equals, what the sequence said itself.
fn longer_match(own: Option<Found>, earlier: Option<Found>) -> Option<Found> {
    match (own, earlier) {
        (Some(own), Some(earlier)) if earlier.matched > own.matched => Some(earlier),
        (own, earlier) => own.or(earlier),
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
    use speculation::Drafters;

    use super::*;

    const A: SeqId = SeqId(1);
    const B: SeqId = SeqId(2);

    fn found(
        lookups: &mut Lookups,
        id: SeqId,
        salt: Option<&str>,
        tokens: &[u32],
        max_depth: usize,
    ) -> Option<Vec<u32>> {
        let offer = lookups.offer(&Decoding {
            id,
            salt,
            tokens,
            max_depth,
            drafters: Drafters::Auto,
        })?;
        let found = lookups.sequences[&id].found.clone();
        assert_eq!(found.len(), offer.length);
        Some(found)
    }

    #[test]
    fn a_sequence_finds_what_it_said_itself() {
        let mut lookups = Lookups::default();
        let mut tokens = vec![1, 2, 3, 4, 5, 1, 2];
        assert_eq!(found(&mut lookups, A, None, &tokens, 2).unwrap(), [3, 4]);
        tokens.push(3);
        assert_eq!(found(&mut lookups, A, None, &tokens, 2).unwrap(), [4, 5]);
    }

    #[test]
    fn an_answer_helps_later_sequences_of_the_same_salt_only() {
        let mut lookups = Lookups::default();
        lookups.learn(Some("x"), &[7, 8, 9, 10, 11]);
        let context = [1, 7, 8, 9];
        let same = found(&mut lookups, A, Some("x"), &context, 4);
        assert_eq!(same.unwrap(), [10, 11]);
        assert_eq!(found(&mut lookups, B, Some("y"), &context, 4), None);
        assert_eq!(found(&mut lookups, B, None, &context, 4), None);
    }
}
