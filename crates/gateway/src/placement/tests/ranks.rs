//! A worker of several data-parallel ranks, each of which tells what its own cache holds.

use std::sync::Arc;

use bytes::Bytes;
use fleet::WorkerId;
use protocol::kv_events::{BlockStored, ExtraKey, KvEvent};
use routing::keys::KeySeed;

use super::exact::{mock, pool_over, tokenizer};
use super::*;
use crate::placement::events::take_in;

const SEED: KeySeed = KeySeed(5);
const SALT: &str = "salt";
const BLOCK: usize = 16;
const BLOCKS: usize = 4;

fn prompt() -> Vec<u32> {
    (0..(BLOCK * BLOCKS) as u32).map(|id| id % 50).collect()
}

fn ask_for(tokens: &[u32]) -> Ask {
    let text = format!("{tokens:?}");
    Ask {
        salt: Arc::from(SALT),
        prompt: PromptSpans::Completion {
            prompt: 0..text.len(),
            add_special_tokens: false,
        },
        body: Bytes::from(text),
        ..ask("t", 1)
    }
}

fn held(tokens: Vec<u32>) -> KvEvent {
    KvEvent::Stored(BlockStored {
        block_hashes: (1..=BLOCKS as u64).collect(),
        token_ids: tokens,
        block_size: BLOCK as u32,
        extra_keys: vec![vec![ExtraKey::Text(SALT.to_owned())]],
        ..BlockStored::default()
    })
}

#[tokio::test]
async fn a_prompt_goes_to_the_rank_that_holds_it_unless_that_has_more_than_its_share() {
    let mocks = [mock(tokenizer()).await];
    let pool = pool_over(&mocks, 2, |config| config.shared_seed = Some(SEED));
    let is_seen = |worker: &WorkerReport| worker.kv_capacity_tokens.is_some();
    until(|| pool.report().workers.iter().all(is_seen)).await;
    let worker = WorkerId(pool.report().workers[0].number);
    take_in(&pool.shared, SEED, (worker, 1), &held(prompt()));
    // A rank that the worker does not have says nothing of use.
    take_in(&pool.shared, SEED, (worker, 7), &held(prompt()));

    let asked = ask_for(&prompt());
    let mut placements = Vec::new();
    let unnamed = loop {
        let placement = pool.place(&asked, &[]).await.unwrap();
        match placement.rank() {
            None => break placement,
            Some(rank) => {
                assert_eq!(rank, 1);
                assert_eq!(placement.predicted_cached(), (BLOCK * (BLOCKS - 1)) as u64);
                placements.push(placement);
            }
        }
        assert!(placements.len() < 100, "one rank gets everything");
    };
    assert!(placements.len() >= 2);
    assert_eq!(
        unnamed.predicted_cached(),
        (BLOCK * BLOCKS / 2) as u64,
        "what is found on average"
    );
    placements.clear();
    drop(unnamed);
    assert_eq!(pool.place(&asked, &[]).await.unwrap().rank(), Some(1));
    let new: Vec<u32> = prompt().into_iter().rev().collect();
    assert_eq!(pool.place(&ask_for(&new), &[]).await.unwrap().rank(), None);
}
