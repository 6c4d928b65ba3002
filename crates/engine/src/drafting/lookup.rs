//! Drafts by lookup: what followed the last time a text read like this.
//!
//! Each sequence has an index of its own, which grows with it. What a sequence answered is learnt for
//! later ones, but only for those that may share its KV blocks too: the cache salt keeps tenants apart
//! here as there.

use foldhash::HashMap;
use speculation::ngram::{Found, SuffixIndex, TenantPool};
use speculation::{DrafterKind, Looked, Source, Strength};

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
    /// Until the text has gone on.
    offered: Option<Offered>,
}

#[derive(Debug)]
struct Offered {
    strength: Strength,
    tokens: Vec<u32>,
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
        // Of equals, what the sequence said itself.
        lookup.offered = Found::better(own, earlier).map(|found| Offered {
            strength: found.lookup().strength,
            tokens: up_to_an_end(found.tokens, sequence.ends),
        });
        lookup.offered.as_ref().map(|offered| Offer {
            source: Source::Ngram(offered.strength),
            length: offered.tokens.len(),
            behind: 0,
        })
    }

    fn draft(
        &mut self,
        wanted: &mut [Wanted<'_>],
        _stop: &StopRule<'_>,
    ) -> Result<DraftTime, String> {
        for Wanted { intent, .. } in wanted {
            let lookup = self.sequences.get(&intent.id);
            if let Some(offered) = lookup.and_then(|lookup| lookup.offered.as_ref()) {
                intent.draft = offered.tokens.clone();
                intent.draft.truncate(intent.depth);
            }
        }
        Ok(DraftTime::default())
    }

    fn judged(&mut self, id: SeqId, came: &[u32]) -> Option<Looked> {
        let offered = self.sequences.get_mut(&id)?.offered.take()?;
        Some(Looked::compare(offered.strength, &offered.tokens, came))
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

/// Behind a token that ends the answer nothing is ever accepted: a copied text is followed by whatever the prompt went on
/// with.
fn up_to_an_end(mut tokens: Vec<u32>, ends: &[u32]) -> Vec<u32> {
    if let Some(end) = tokens.iter().position(|token| ends.contains(token)) {
        tokens.truncate(end + 1);
    }
    tokens
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
    const END: u32 = 99;

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
            table: &[],
            names: &[],
            max_depth,
            drafters: Drafters::Auto,
            ends: &[END],
        })?;
        let offered = lookups.sequences[&id].offered.as_ref().unwrap();
        assert_eq!(offered.tokens.len(), offer.length);
        Some(offered.tokens.clone())
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
    fn what_follows_the_end_of_an_answer_is_not_offered() {
        let mut lookups = Lookups::default();
        let tokens = [1, 2, 3, END, 7, 8, 1, 2];
        assert_eq!(found(&mut lookups, A, None, &tokens, 6).unwrap(), [3, END]);
    }

    #[test]
    fn an_offer_is_held_once_against_what_came_though_nobody_drafted_it() {
        let mut lookups = Lookups::default();
        found(&mut lookups, A, None, &[1, 2, 3, 4, 5, 1, 2], 3);
        let looked = lookups.judged(A, &[3, 9]).unwrap();
        assert_eq!((looked.compared, looked.agreed), (2, 1));
        assert_eq!(looked.strength, Strength::Weak);
        assert_eq!(lookups.judged(A, &[3, 4]), None);
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
