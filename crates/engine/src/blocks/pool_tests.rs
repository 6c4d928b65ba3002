//! The pool against a naive model of it, driven by random histories.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

const BLOCKS: usize = 12;

#[derive(Debug, Clone)]
enum Step {
    /// A new sequence of so many tokens; its text is one of a few, so that prefixes overlap.
    Open {
        text: u32,
        salt: bool,
        tokens: usize,
    },
    /// A sequence (by index) gets more blocks.
    Grow {
        who: usize,
        blocks: usize,
    },
    /// A sequence has computed everything it has room for.
    Publish {
        who: usize,
    },
    Close {
        who: usize,
    },
    /// Blocks of a text come out of the store, as far as there is room; the last few turn out to be bad.
    Load {
        text: u32,
        salt: bool,
        tokens: usize,
        bad: usize,
    },
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3u32, any::<bool>(), 1..100usize)
            .prop_map(|(text, salt, tokens)| Step::Open { text, salt, tokens }),
        3 => (any::<usize>(), 0..4usize).prop_map(|(who, blocks)| Step::Grow { who, blocks }),
        4 => any::<usize>().prop_map(|who| Step::Publish { who }),
        4 => any::<usize>().prop_map(|who| Step::Close { who }),
        2 => (0..3u32, any::<bool>(), 1..100usize, 0..3usize)
            .prop_map(|(text, salt, tokens, bad)| Step::Load { text, salt, tokens, bad }),
        1 => Just(Step::Clear),
    ]
}

struct Sequence {
    tokens: Vec<u32>,
    chain: Chain,
    table: BlockTable,
    published: usize,
}

/// The pool and what it should look like.
struct World {
    pool: BlockPool,
    sequences: Vec<Sequence>,
    /// Which chain's keys and values each block really holds.
    contents: HashMap<u32, BlockHash>,
}

impl World {
    fn new() -> Self {
        Self {
            pool: BlockPool::new(BLOCKS, true, true).with_turnover(),
            sequences: Vec::new(),
            contents: HashMap::new(),
        }
    }

    fn held(&self) -> HashSet<u32> {
        self.sequences
            .iter()
            .flat_map(|s| s.table.as_slice().iter().copied())
            .collect()
    }

    fn apply(&mut self, step: Step) {
        let before = self.contents.clone();
        match step {
            Step::Open { text, salt, tokens } => self.open(text, salt, tokens),
            Step::Grow { who, blocks } => {
                let held = self.held();
                if let Some(index) = self.pick(who) {
                    let sequence = &mut self.sequences[index];
                    let before = sequence.table.len();
                    let fits = blocks <= self.pool.available();
                    assert_eq!(self.pool.allocate(&mut sequence.table, blocks), fits);
                    let got = &sequence.table.as_slice()[before..];
                    assert_eq!(got.len(), if fits { blocks } else { 0 });
                    for block in got {
                        assert!(!held.contains(block), "a live block was given away");
                        self.contents.remove(block);
                    }
                }
            }
            Step::Publish { who } => {
                if let Some(index) = self.pick(who) {
                    let s = &mut self.sequences[index];
                    let full = s.chain.hashes().len().min(s.table.len());
                    for i in s.published..full {
                        self.contents
                            .insert(s.table.as_slice()[i], s.chain.hashes()[i]);
                    }
                    self.pool.publish(
                        &s.table,
                        s.published..full.max(s.published),
                        &s.chain,
                        &s.tokens,
                    );
                    s.published = full.max(s.published);
                }
            }
            Step::Close { who } => {
                if let Some(index) = self.pick(who) {
                    let mut sequence = self.sequences.swap_remove(index);
                    self.pool.release(&mut sequence.table);
                }
            }
            Step::Load {
                text,
                salt,
                tokens,
                bad,
            } => self.load(text, salt, tokens, bad),
            Step::Clear => self.pool.clear_cache(),
        }
        let turnover = self.pool.take_turnover();
        for (name, block) in turnover.evicted {
            assert_eq!(
                before.get(&block),
                Some(&name),
                "other contents were offered"
            );
        }
        for (name, block) in turnover.named {
            assert_eq!(self.contents.get(&block), Some(&name));
        }
        self.check();
    }

    fn pick(&self, who: usize) -> Option<usize> {
        (!self.sequences.is_empty()).then(|| who % self.sequences.len())
    }

    fn open(&mut self, text: u32, salt: bool, tokens: usize) {
        let tokens: Vec<u32> = (0..tokens as u32).map(|i| text * 1000 + i).collect();
        let mut chain = Chain::new(salt.then(|| "tenant".into()));
        chain.extend(&tokens);
        let mut table = BlockTable::default();
        let found = self.pool.cached_prefix(chain.hashes());
        let before = self.pool.available();
        self.pool.take_cached(&mut table, chain.hashes());
        assert_eq!(table.len(), found.blocks);
        assert_eq!(self.pool.available(), before - found.idle);
        for (block, hash) in table.as_slice().iter().zip(chain.hashes()) {
            assert_eq!(
                self.contents.get(block),
                Some(hash),
                "a hit on other contents"
            );
        }
        self.sequences.push(Sequence {
            published: table.len(),
            tokens,
            chain,
            table,
        });
    }

    fn load(&mut self, text: u32, salt: bool, tokens: usize, bad: usize) {
        let tokens: Vec<u32> = (0..tokens as u32).map(|i| text * 1000 + i).collect();
        let mut chain = Chain::new(salt.then(|| "tenant".into()));
        chain.extend(&tokens);
        let mut table = BlockTable::default();
        self.pool.take_cached(&mut table, chain.hashes());
        let first = table.len();
        let room = (chain.hashes().len() - first).min(self.pool.available());
        assert!(self.pool.allocate(&mut table, room));
        for block in &table.as_slice()[first..] {
            self.contents.remove(block);
        }
        let good = first + room.saturating_sub(bad);
        for i in first..good {
            self.contents.insert(table.as_slice()[i], chain.hashes()[i]);
        }
        self.pool.publish(&table, first..good, &chain, &tokens);
        assert!(self.pool.cached_prefix(chain.hashes()).blocks >= good);
        self.pool.release(&mut table);
    }

    fn check(&self) {
        let mut holders: HashMap<u32, u32> = HashMap::new();
        for s in &self.sequences {
            let distinct: HashSet<_> = s.table.as_slice().iter().collect();
            assert_eq!(distinct.len(), s.table.len(), "a block twice in one table");
            for block in s.table.as_slice() {
                *holders.entry(*block).or_default() += 1;
            }
        }
        for (number, block) in self.pool.blocks.iter().enumerate() {
            let expected = holders.get(&(number as u32)).copied().unwrap_or(0);
            assert_eq!(block.holders, expected);
        }
        assert_eq!(self.pool.held(), holders.len());
        assert_eq!(self.pool.available(), BLOCKS - holders.len());
        for (name, block) in &self.pool.cached {
            assert_eq!(self.pool.blocks[*block as usize].name, Some(*name));
        }
        let named = self.pool.blocks.iter().filter(|b| b.name.is_some()).count();
        assert_eq!(named, self.pool.cached.len());
        for block in &self.pool.unused {
            assert_eq!(self.pool.blocks[*block as usize].name, None);
        }
    }
}

/// Replays the events as a router would, and compares with the cache.
fn replay(known: &mut HashSet<BlockHash>, events: Vec<KvEvent>) {
    for event in events {
        match event {
            KvEvent::Stored {
                hashes,
                parent,
                tokens,
                ..
            } => {
                assert_eq!(tokens.len(), hashes.len() * BLOCK_TOKENS);
                assert!(parent.is_none_or(|p| !hashes.contains(&p)));
                for hash in hashes {
                    assert!(known.insert(hash), "stored twice");
                }
            }
            KvEvent::Removed { hashes } => {
                for hash in hashes {
                    assert!(known.remove(&hash), "removed what was not there");
                }
            }
            KvEvent::Cleared => known.clear(),
            KvEvent::Kept { .. } | KvEvent::Lost { .. } => unreachable!("the pool knows no store"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_history_leaks_shares_or_evicts_a_live_block(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        let mut known = HashSet::new();
        for step in steps {
            world.apply(step);
            replay(&mut known, world.pool.take_events());
            prop_assert_eq!(&known, &world.pool.cached.keys().copied().collect::<HashSet<_>>());
        }
        for mut sequence in world.sequences.drain(..) {
            world.pool.release(&mut sequence.table);
        }
        prop_assert_eq!(world.pool.available(), BLOCKS);
    }
}

fn sequence(pool: &mut BlockPool, tokens: usize) -> Sequence {
    let tokens: Vec<u32> = (0..tokens as u32).collect();
    let mut chain = Chain::new(None);
    chain.extend(&tokens);
    let mut table = BlockTable::default();
    assert!(pool.allocate(&mut table, tokens.len().div_ceil(BLOCK_TOKENS)));
    pool.publish(&table, 0..chain.hashes().len(), &chain, &tokens);
    Sequence {
        tokens,
        chain,
        table,
        published: 0,
    }
}

#[test]
fn the_tail_of_a_chain_is_evicted_before_its_head() {
    let mut pool = BlockPool::new(4, true, false);
    let mut old = sequence(&mut pool, 64);
    pool.release(&mut old.table);
    for left in (0..4).rev() {
        let mut table = BlockTable::default();
        assert!(pool.allocate(&mut table, 4 - left));
        assert_eq!(pool.cached_prefix(old.chain.hashes()).blocks, left);
        pool.release(&mut table);
    }
}

#[test]
fn without_caching_nothing_outlives_its_holder() {
    let mut pool = BlockPool::new(4, false, true);
    let mut one = sequence(&mut pool, 64);
    assert_eq!(pool.cached_prefix(one.chain.hashes()).blocks, 0);
    pool.release(&mut one.table);
    assert_eq!(pool.available(), 4);
    assert!(pool.take_events().is_empty());
}

#[test]
fn an_event_tells_a_run_of_blocks_and_where_it_hangs() {
    let mut pool = BlockPool::new(4, true, true);
    let mut one = sequence(&mut pool, 40);
    let events = pool.take_events();
    assert_eq!(
        events,
        [KvEvent::Stored {
            hashes: one.chain.hashes().to_vec(),
            parent: None,
            tokens: one.tokens[..32].to_vec(),
            block_size: BLOCK_TOKENS,
            cache_salt: None,
        }]
    );
    pool.release(&mut one.table);
}
