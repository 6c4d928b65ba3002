//! Data-parallel ranks of one worker, each with a cache of its own.

use super::*;

/// Tells a rank of a worker with four of them.
fn store_in_rank(index: &mut PrefixIndex, rank: u16, path: &[u32]) {
    let hashes: Vec<_> = (1..=path.len())
        .map(|end| engine_hash(&path[..end]))
        .collect();
    let event = Stored {
        parent: None,
        root: root(),
        hashes: &hashes,
        tokens: path,
        block_tokens: 1,
        medium: Medium::Resident,
    };
    index
        .stored(CacheId { worker: W, rank }, event, AT(0))
        .unwrap();
}

#[test]
fn a_hit_on_one_rank_is_no_hit_for_a_request_that_lands_on_another() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    index.set_ranks(W, 4, Source::Events, Some(1_000));
    let path: Vec<u32> = (0..12).collect();
    store_in_rank(&mut index, 1, &path[..8]);
    store_in_rank(&mut index, 2, &path);
    check(&index);
    let mut matches = index.matches(&keys(&path), AT(1));
    assert_eq!(matches.blocks(W), (8 + 12) / 4, "what is found on average");
    assert_eq!(matches.best_rank(W), Some(2));
    matches.count_on(W, 1);
    assert_eq!(matches.blocks(W), 8);
    matches.count_on(W, 3);
    assert_eq!(matches.blocks(W), 0);
    assert_eq!(matches.best_rank(WorkerId(1)), None);
    assert_eq!(index.knowledge(W).unwrap().announced_blocks, 20);
}

#[test]
fn ranks_of_one_worker_lose_their_blocks_apart() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    index.set_ranks(W, 2, Source::Events, Some(1_000));
    let path = [1, 2, 3, 4];
    let zero = CacheId::from(W);
    let one = CacheId { worker: W, rank: 1 };
    let found = |index: &PrefixIndex, rank| {
        let mut matches = index.matches(&keys(&path), AT(1));
        matches.count_on(W, rank);
        matches.blocks(W)
    };
    store_in_rank(&mut index, 0, &path);
    store_in_rank(&mut index, 1, &path);
    index.removed(one, &[engine_hash(&path)], Medium::Resident, AT(1));
    assert_eq!((found(&index, 0), found(&index, 1)), (4, 3));
    index.cleared(zero, AT(1));
    assert_eq!((found(&index, 0), found(&index, 1)), (0, 3));
    check(&index);
    index.restarted(W, AT(1));
    assert_eq!(index.stats().blocks, 0);
    index.set_ranks(W, 1, Source::Events, Some(1_000));
    store_in_rank(&mut index, 0, &path);
    assert_eq!(index.matches(&keys(&path), AT(1)).blocks(W), 4);
    check(&index);
}
