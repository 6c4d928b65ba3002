//! What a request of 100,000 tokens (about 400 kB of text) costs the router, as ratios to a reference in the
//! same run: the plain way, a table from block to set of workers that is walked block by block.
//!
//! ```text
//! cargo bench -p forespeak-routing --bench lookup
//! ```
#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use forespeak_routing::index::{IndexConfig, PrefixIndex, Source};
use forespeak_routing::keys::{BlockKey, KeySeed, Root, TokenChain};
use forespeak_routing::{Draw, Matches, Policy, Priority, RequestView, WorkerId, WorkerView};

const SEED: KeySeed = KeySeed(1);
const PROMPT_TOKENS: usize = 100_000;
const PROMPTS: u32 = 64;
const ROUNDS: usize = 15;

fn main() {
    println!(
        "{:>8} {:>34} {:>12} {:>14}",
        "workers", "what", "time", "of reference"
    );
    for workers in [8, 64, 1_000] {
        measure(workers);
    }
}

fn measure(workers: u16) {
    let prompts: Vec<Vec<u32>> = (0..PROMPTS).map(prompt).collect();
    let chains: Vec<Vec<BlockKey>> = prompts.iter().map(|tokens| keys(tokens)).collect();
    let mut index = PrefixIndex::new(IndexConfig::new(SEED));
    for worker in 0..workers {
        index.set_worker(WorkerId(worker), Source::Expectation, Some(u32::MAX));
        // Everybody holds the shared system prompt: the worst case for sets of holders.
        index.expect(WorkerId(worker), &chains[0][..128], Duration::ZERO);
    }
    let mut plain: HashMap<BlockKey, Vec<u64>> = HashMap::new();
    let words = usize::from(workers).div_ceil(64);
    for (at, chain) in (0u16..).zip(&chains) {
        let worker = at % workers;
        index.expect(WorkerId(worker), chain, Duration::ZERO);
        for (depth, key) in chain.iter().enumerate() {
            let set = plain.entry(*key).or_insert_with(|| vec![0; words]);
            if depth < 128 {
                set.fill(u64::MAX);
            }
            set[usize::from(worker) / 64] |= 1 << (worker % 64);
        }
    }

    let reference = median(|round| {
        black_box(walk(&plain, &chains[round % chains.len()], words));
    });
    let report = |what: &str, time: Duration| {
        let ratio = time.as_secs_f64() / reference.as_secs_f64();
        println!(
            "{workers:>8} {what:>34} {:>9.1} µs {ratio:>13.3}x",
            time.as_secs_f64() * 1e6
        );
    };
    report("reference: walk block by block", reference);
    report(
        "name all blocks (once per prompt)",
        median(|round| drop(black_box(keys(&prompts[round % prompts.len()])))),
    );
    let matches = |round: usize| index.matches(&chains[round % chains.len()], Duration::ZERO);
    report(
        "look up who holds what",
        median(|round| drop(black_box(matches(round)))),
    );

    let views: Vec<_> = (0..workers)
        .map(|id| WorkerView::idle(WorkerId(id), 300_000))
        .collect();
    let held = matches(0);
    report(
        "decide with fit",
        median(|round| {
            black_box(decide(&held, &views, round));
        }),
    );
    let mut now = 0;
    let expect = median(|round| {
        now += 1;
        let at = round % chains.len();
        index.expect(
            WorkerId(at as u16 % workers),
            &chains[at],
            Duration::from_millis(now),
        );
    });
    report("note where it was sent", expect);
}

fn prompt(number: u32) -> Vec<u32> {
    let shared = 128 * 16;
    (0..PROMPT_TOKENS as u32)
        .map(|at| if at < shared { at } else { at ^ (number << 17) })
        .collect()
}

fn keys(tokens: &[u32]) -> Vec<BlockKey> {
    let mut chain = TokenChain::new(Root::new(SEED, "tenant", None), 16);
    chain.extend(tokens);
    chain.keys().to_vec()
}

fn decide(matches: &Matches, workers: &[WorkerView], round: usize) -> Option<WorkerId> {
    let request = RequestView {
        prompt_tokens: PROMPT_TOKENS as u64,
        expected_output_tokens: 200,
        matches,
        block_tokens: 16,
        priority: Priority::Normal,
        session: 1,
    };
    let draw = Draw {
        turn: round as u64,
        random: round as u64,
    };
    Policy::Fit
        .decide(&request, workers, draw)
        .map(|decision| decision.chosen)
}

/// How many leading blocks somebody holds, with the set of those who hold all so far.
fn walk(plain: &HashMap<BlockKey, Vec<u64>>, keys: &[BlockKey], words: usize) -> usize {
    let mut alive = vec![u64::MAX; words];
    for (depth, key) in keys.iter().enumerate() {
        let Some(set) = plain.get(key) else {
            return depth;
        };
        for (alive, holds) in alive.iter_mut().zip(set) {
            *alive &= holds;
        }
        if alive.iter().all(|word| *word == 0) {
            return depth;
        }
    }
    keys.len()
}

fn median(mut work: impl FnMut(usize)) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|round| {
            let begin = Instant::now();
            work(round);
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[ROUNDS / 2]
}
