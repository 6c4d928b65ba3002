//! What workers tell of their blocks, and what is made of it where it cannot be.

use super::*;

#[test]
fn an_engine_block_may_span_several_of_ours() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    let event = Stored {
        parent: None,
        root: root(),
        hashes: &[7, 8],
        tokens: &[1, 2, 3, 4],
        block_tokens: 2,
        medium: Medium::Resident,
    };
    index.stored(W, event, AT(0)).unwrap();
    assert_eq!(index.matches(&keys(&[1, 2, 3, 4]), AT(0)).blocks(W), 4);
    index.removed(W, &[8], Medium::Resident, AT(0));
    assert_eq!(index.matches(&keys(&[1, 2, 3, 4]), AT(0)).blocks(W), 2);
    check(&index);
}

#[test]
fn events_that_contradict_themselves_are_refused() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    let event = |tokens, block_tokens| Stored {
        parent: None,
        root: root(),
        hashes: &[7],
        tokens,
        block_tokens,
        medium: Medium::Resident,
    };
    assert!(matches!(
        index.stored(W, event(&[1, 2, 3], 2), AT(0)),
        Err(RoutingError::MalformedEvent { .. })
    ));
    assert!(matches!(
        index.stored(W, event(&[], 0), AT(0)),
        Err(RoutingError::MalformedEvent { .. })
    ));
    let mut coarse = PrefixIndex::new(IndexConfig {
        block_tokens: 16,
        ..IndexConfig::new(SEED)
    });
    coarse.set_worker(W, Source::Events, None);
    assert!(matches!(
        coarse.stored(W, event(&[1, 2], 2), AT(0)),
        Err(RoutingError::BlockSize {
            engine: 2,
            index: 16
        })
    ));
    assert_eq!(
        coarse.stored(WorkerId(9), event(&[0; 16], 16), AT(0)),
        Err(RoutingError::UnknownWorker)
    );
}

#[test]
fn a_worker_that_announces_without_end_is_not_believed() {
    let mut index = index(Source::Events, 10, DEFAULT_BYTE_CAP);
    let tokens: Vec<u32> = (0..70_000).collect();
    let hashes: Vec<u64> = (0..70_000).collect();
    let event = Stored {
        parent: None,
        root: root(),
        hashes: &hashes,
        tokens: &tokens,
        block_tokens: 1,
        medium: Medium::Resident,
    };
    assert!(matches!(
        index.stored(W, event, AT(0)),
        Err(RoutingError::TooManyBlocks { .. })
    ));
    assert_eq!(index.stats().blocks, 0);
}

#[test]
fn a_missed_event_is_counted_and_said() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    assert_eq!(
        store(&mut index, &[1, 2], 1, AT(3)),
        Err(RoutingError::Orphan)
    );
    index.removed(W, &[99], Medium::Resident, AT(4));
    let knowledge = index.knowledge(W).unwrap();
    assert_eq!((knowledge.orphans, knowledge.unknown_removals), (1, 1));
    assert_eq!(knowledge.last_event, Some(AT(4)));
}
