//! Blocks that are not in a worker's memory, but could be loaded.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn announced(parent: Option<u64>, hashes: &[u64], tokens: &[u32], medium: Medium) -> PrefixIndex {
    let mut index = index(Source::Events, 100, usize::MAX);
    let event = Stored {
        parent,
        root: root(),
        hashes,
        tokens,
        block_tokens: 1,
        medium,
    };
    index.stored(W, event, AT(0)).unwrap();
    index
}

/// As vLLM's offloading tells it: hashes and nothing else.
fn by_name(hashes: &[u64], medium: Medium) -> Stored<'_> {
    Stored {
        parent: None,
        root: root(),
        hashes,
        tokens: &[],
        block_tokens: 0,
        medium,
    }
}

#[test]
fn a_loadable_block_is_worth_less_than_one_that_is_there_and_more_than_none() {
    let mut index = announced(None, &[1, 2, 3, 4], &[1, 2, 3, 4], Medium::Resident);
    let prompt = keys(&[1, 2, 3, 4, 5]);
    let all_there = index.matches(&prompt, AT(1)).worth(W);
    assert_eq!(all_there, 4000);
    index
        .stored(W, by_name(&[2, 3], Medium::Host), AT(1))
        .unwrap();
    assert_eq!(index.matches(&prompt, AT(1)).worth(W), all_there);
    index.removed(W, &[2, 3, 4], Medium::Resident, AT(2));
    let matches = index.matches(&prompt, AT(2));
    assert_eq!((matches.blocks(W), matches.loadable(W)), (1, 2));
    assert_eq!(matches.worth(W), 1000 + 2 * 900);
    index.removed(W, &[3], Medium::Host, AT(3));
    assert_eq!(index.matches(&prompt, AT(3)).loadable(W), 1);
    index.cleared(W, AT(4));
    assert_eq!(index.matches(&prompt, AT(4)).worth(W), 0);
}

#[test]
fn a_removal_from_host_memory_leaves_what_is_there_alone() {
    let mut index = announced(None, &[1, 2], &[1, 2], Medium::Resident);
    index.stored(W, by_name(&[1], Medium::Host), AT(1)).unwrap();
    index.removed(W, &[1], Medium::Host, AT(2));
    assert_eq!(index.matches(&keys(&[1, 2]), AT(2)).blocks(W), 2);
}

#[test]
fn the_word_of_a_tier_may_come_after_the_block_itself_went() {
    let mut index = announced(None, &[1, 2], &[1, 2], Medium::Resident);
    index.removed(W, &[2, 1], Medium::Resident, AT(1));
    index
        .stored(W, by_name(&[1, 2], Medium::Storage), AT(2))
        .unwrap();
    let matches = index.matches(&keys(&[1, 2]), AT(2));
    assert_eq!((matches.blocks(W), matches.loadable(W)), (0, 2));
    let known = index.knowledge(W).unwrap();
    assert_eq!((known.announced_blocks, known.loadable_blocks), (2, 2));
}

#[test]
fn what_is_shared_is_credited_to_all_who_share() {
    let mut index = announced(None, &[1, 2], &[1, 2], Medium::Shared);
    let other = WorkerId(1);
    let prompt = keys(&[1, 2]);
    assert_eq!(index.matches(&prompt, AT(1)).loadable(other), 0);
    let own = Stored {
        tokens: &[9],
        block_tokens: 1,
        ..by_name(&[3], Medium::Shared)
    };
    index.stored(other, own, AT(1)).unwrap();
    assert_eq!(index.matches(&prompt, AT(1)).loadable(other), 2);
    assert_eq!(index.matches(&prompt, AT(1)).loadable(W), 2);
    index.removed(W, &[2], Medium::Shared, AT(2));
    assert_eq!(index.matches(&prompt, AT(2)).loadable(other), 1);
    index.remove_worker(W);
    assert_eq!(index.matches(&prompt, AT(3)).loadable(other), 0);
    index.remove_worker(other);
    assert!(index.shared.is_empty());
}

#[test]
fn a_block_never_seen_before_is_placed_by_its_tokens_or_counted() {
    let mut index = announced(None, &[1, 2], &[1, 2], Medium::Shared);
    assert_eq!(index.matches(&keys(&[1, 2, 3]), AT(1)).loadable(W), 2);
    let unknown = index.stored(W, by_name(&[77], Medium::Host), AT(1));
    assert_eq!(unknown, Err(RoutingError::Orphan));
    assert_eq!(index.knowledge(W).unwrap().orphans, 1);
}

proptest! {
    #[test]
    fn names_and_tiers_never_lose_count(
        steps in prop::collection::vec((0..12u64, 0..4u8, any::<bool>()), 1..200),
    ) {
        let mut index = index(Source::Events, 4, usize::MAX);
        let path: Vec<u32> = (0..12).collect();
        let media = [Medium::Resident, Medium::Host, Medium::Storage, Medium::Shared];
        let mut naive: BTreeSet<(u64, u8)> = BTreeSet::new();
        for (hash, at, comes) in steps {
            let medium = media[usize::from(at)];
            let upto = hash as usize + 1;
            // Resident blocks come with all before them, as a prompt is computed.
            let hashes: Vec<u64> = if at == 0 { (0..=hash).collect() } else { vec![hash] };
            if comes {
                let event = Stored {
                    tokens: if at == 0 { &path[..upto] } else { &[] },
                    block_tokens: usize::from(at == 0),
                    ..by_name(&hashes, medium)
                };
                if index.stored(W, event, AT(0)).is_ok() {
                    naive.extend(hashes.iter().map(|hash| (*hash, at)));
                }
            } else {
                index.removed(W, &[hash], medium, AT(0));
                naive.remove(&(hash, at));
            }
            let known = index.knowledge(W).unwrap();
            let somewhere: BTreeSet<u64> = naive.iter().map(|(hash, _)| *hash).collect();
            let loadable: BTreeSet<u64> =
                naive.iter().filter(|(_, at)| *at > 0).map(|(hash, _)| *hash).collect();
            prop_assert_eq!(known.announced_blocks, somewhere.len() as u64);
            prop_assert_eq!(known.loadable_blocks, loadable.len() as u64);
            let matches = index.matches(&keys(&path), AT(0));
            let held = u64::from(matches.blocks(W));
            let run = (held..).take_while(|hash| loadable.contains(hash)).count();
            prop_assert_eq!(matches.loadable(W) as usize, run);
        }
    }
}
