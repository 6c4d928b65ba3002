//! Faults that routers in the field have had, each made impossible here and named.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use forespeak_routing::admission::{Demand, WorkerLedger};
use forespeak_routing::calibration::Calibration;
use forespeak_routing::index::{IndexConfig, Medium, PrefixIndex, Source, Stored};
use forespeak_routing::keys::{KeySeed, Root, TokenChain};
use forespeak_routing::{
    Draw, Matches, Policy, Priority, RequestView, RoutingError, WorkerId, WorkerView,
};

const SEED: KeySeed = KeySeed(11);
const CACHE_AWARE: [Policy; 3] = [Policy::Prefix, Policy::Lmetric, Policy::Fit];

fn fleet(workers: u16) -> Vec<WorkerView> {
    (0..workers)
        .map(|id| WorkerView::idle(WorkerId(id), 300_000))
        .collect()
}

fn request(prompt_tokens: u64, matches: &Matches) -> RequestView<'_> {
    RequestView {
        prompt_tokens,
        expected_output_tokens: 200,
        matches,
        block_tokens: 16,
        priority: Priority::Normal,
        session: 0,
    }
}

fn draw(turn: u64) -> Draw {
    Draw {
        turn,
        random: turn.wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

fn chain(tokens: impl IntoIterator<Item = u32>) -> TokenChain {
    let mut chain = TokenChain::new(Root::new(SEED, "tenant", None), 16);
    chain.extend(&tokens.into_iter().collect::<Vec<_>>());
    chain
}

fn index(workers: u16) -> PrefixIndex {
    let mut index = PrefixIndex::new(IndexConfig::new(SEED));
    for worker in 0..workers {
        index.set_worker(WorkerId(worker), Source::Expectation, Some(18_750));
    }
    index
}

/// How many of `count` decisions went to each worker.
fn tally(count: u64, mut choose: impl FnMut(u64) -> WorkerId) -> BTreeMap<WorkerId, u64> {
    let mut tally = BTreeMap::new();
    for turn in 0..count {
        *tally.entry(choose(turn)).or_default() += 1;
    }
    tally
}

#[test]
fn cold_misses_do_not_all_land_on_the_first_replica() {
    let workers = fleet(8);
    let nothing = Matches::default();
    for policy in CACHE_AWARE {
        let tally = tally(8_000, |turn| {
            policy
                .decide(&request(1_000, &nothing), &workers, draw(turn))
                .unwrap()
                .chosen
        });
        for (worker, count) in &tally {
            assert!(
                (800..1_200).contains(count),
                "{policy} sent {count} of 8000 cold prompts to {worker}"
            );
        }
        assert_eq!(tally.len(), 8);
    }
}

#[test]
fn the_worker_with_the_smallest_index_does_not_attract_everything() {
    let mut index = index(8);
    for worker in 0..7 {
        for prompt in 0..50 {
            let seen = chain((0..3_200).map(|token| token + worker * 1_000_000 + prompt * 10_000));
            index.expect(WorkerId(worker as u16), seen.keys(), Duration::ZERO);
        }
    }
    let workers = fleet(8);
    for policy in CACHE_AWARE {
        let tally = tally(800, |turn| {
            let cold = chain((0..800).map(|token| token + 90_000_000 + turn as u32 * 1_000));
            let matches = index.matches(cold.keys(), Duration::ZERO);
            policy
                .decide(&request(800, &matches), &workers, draw(turn))
                .unwrap()
                .chosen
        });
        let newcomer = tally[&WorkerId(7)];
        assert!(
            (60..150).contains(&newcomer),
            "{policy} gave the empty worker {newcomer} of 800"
        );
    }
}

#[test]
fn affinity_is_not_lost_because_another_worker_is_overloaded() {
    let mut workers = fleet(8);
    workers[5].running = 200;
    workers[5].waiting = 60;
    workers[5].ledger.prefill_backlog_tokens = 400_000;
    let matches = Matches::from_pairs([(WorkerId(2), 900)]);
    for policy in CACHE_AWARE {
        let decision = policy
            .decide(&request(15_000, &matches), &workers, draw(1))
            .unwrap();
        assert_eq!(decision.chosen, WorkerId(2), "{decision}");
    }
}

#[test]
fn affinity_yields_to_load_and_comes_back() {
    let mut workers = fleet(4);
    let matches = Matches::from_pairs([(WorkerId(2), 900)]);
    let chosen = |workers: &[WorkerView]| {
        Policy::Fit
            .decide(&request(15_000, &matches), workers, draw(1))
            .unwrap()
            .chosen
    };
    workers[2].running = 2;
    workers[2].ledger.prefill_backlog_tokens = 4_000;
    assert_eq!(chosen(&workers), WorkerId(2), "within the window");
    workers[2].running = 40;
    workers[2].ledger.prefill_backlog_tokens = 40_000;
    assert_ne!(
        chosen(&workers),
        WorkerId(2),
        "waiting would cost more than computing it anew"
    );
    workers[2].running = 1;
    workers[2].ledger.prefill_backlog_tokens = 0;
    assert_eq!(chosen(&workers), WorkerId(2), "and back");
}

#[test]
fn a_chat_is_routed_on_all_its_messages_not_on_the_first() {
    let mut index = index(4);
    let system = || 0..1_600u32;
    for worker in 0..4u16 {
        let chat =
            chain(system().chain((0..4_000).map(|token| token + u32::from(worker) * 100_000)));
        index.expect(WorkerId(worker), chat.keys(), Duration::ZERO);
    }
    let workers = fleet(4);
    for policy in CACHE_AWARE {
        for worker in 0..4u16 {
            let next_turn = chain(
                system()
                    .chain((0..4_000).map(|token| token + u32::from(worker) * 100_000))
                    .chain(7..300),
            );
            let matches = index.matches(next_turn.keys(), Duration::ZERO);
            let tokens = next_turn.tokens() as u64;
            let decision = policy
                .decide(&request(tokens, &matches), &workers, draw(3))
                .unwrap();
            assert_eq!(decision.chosen, WorkerId(worker), "{decision}");
        }
    }
}

#[test]
fn index_memory_is_bounded_however_much_is_routed() {
    let byte_cap = 2 << 20;
    let mut index = PrefixIndex::new(IndexConfig {
        byte_cap,
        ..IndexConfig::new(SEED)
    });
    for worker in 0..8 {
        index.set_worker(WorkerId(worker), Source::Expectation, Some(u32::MAX));
    }
    for prompt in 0..3_000u32 {
        let seen = chain((0..1_600).map(|token| token + prompt * 2_000));
        index.expect(
            WorkerId((prompt % 8) as u16),
            seen.keys(),
            Duration::from_millis(u64::from(prompt)),
        );
        assert!(index.stats().bytes <= byte_cap);
    }
    assert!(index.stats().forgotten_for_space > 0);
    assert!(index.stats().blocks > 1_000, "bounded, not empty");
}

#[test]
fn removing_a_worker_costs_its_own_blocks_not_the_whole_index() {
    let mut index = index(9);
    let build = Instant::now();
    for prompt in 0..200u32 {
        let seen = chain((0..32_000).map(|token| token + prompt * 50_000));
        index.expect(WorkerId((prompt % 8) as u16), seen.keys(), Duration::ZERO);
    }
    let build = build.elapsed();
    let own = chain(4_000_000_000..4_000_000_160);
    let removals = Instant::now();
    for _ in 0..1_000 {
        index.set_worker(WorkerId(8), Source::Expectation, None);
        index.expect(WorkerId(8), own.keys(), Duration::ZERO);
        index.remove_worker(WorkerId(8));
    }
    let removals = removals.elapsed();
    assert!(
        removals < build,
        "1000 removals took {removals:?}, building the index took {build:?}"
    );
}

#[test]
fn missing_events_are_told_and_not_silently_scored_as_zero() {
    let mut index = PrefixIndex::new(IndexConfig::new(SEED));
    index.set_worker(WorkerId(0), Source::Events, None);
    let orphan = Stored {
        parent: Some(1),
        root: Root::new(SEED, "tenant", None),
        hashes: &[2],
        tokens: &[0; 16],
        block_tokens: 16,
        medium: Medium::Resident,
    };
    let now = Duration::from_secs(1);
    assert_eq!(
        index.stored(WorkerId(0), orphan, now),
        Err(RoutingError::Orphan)
    );
    assert_eq!(index.knowledge(WorkerId(0)).unwrap().orphans, 1);
    assert_eq!(
        index.stored(WorkerId(1), orphan, now),
        Err(RoutingError::UnknownWorker)
    );

    // Without a single event, what was routed still counts while it may still be confirmed.
    let prompt = chain(0..1_600);
    index.expect(WorkerId(0), prompt.keys(), now);
    assert_eq!(index.matches(prompt.keys(), now).blocks(WorkerId(0)), 100);
}

#[test]
fn a_cache_that_is_not_there_loses_its_pull() {
    let mut calibration = Calibration::default();
    (0..20).for_each(|_| calibration.observe(14_400, 0, 16));
    assert!(calibration.is_suspect());

    let mut workers = fleet(2);
    workers[0].hit_trust = calibration.trust();
    workers[0].running = 1;
    let matches = Matches::from_pairs([(WorkerId(0), 900)]);
    let decision = Policy::Fit
        .decide(&request(15_000, &matches), &workers, draw(1))
        .unwrap();
    assert_eq!(decision.chosen, WorkerId(1), "{decision}");
}

#[test]
fn a_burst_between_two_scrapes_does_not_herd() {
    for policy in [
        Policy::LeastLoaded,
        Policy::Prefix,
        Policy::Lmetric,
        Policy::Fit,
    ] {
        let mut workers = fleet(8);
        // One looks emptier than the others, and no scrape will correct that during the burst.
        for worker in &mut workers[1..] {
            worker.running = 3;
        }
        let mut ledgers: Vec<WorkerLedger> = (0..8).map(|_| WorkerLedger::default()).collect();
        let nothing = Matches::default();
        let now = Duration::from_secs(1);
        let tally = tally(80, |turn| {
            for (worker, ledger) in workers.iter_mut().zip(&ledgers) {
                worker.ledger = ledger.view(now, worker.prefill_rate());
            }
            let chosen = policy
                .decide(&request(2_000, &nothing), &workers, draw(turn))
                .unwrap()
                .chosen;
            let demand = Demand {
                uncached_prompt_tokens: 2_000,
                kv_tokens: 2_200,
            };
            ledgers[usize::from(chosen.0)].reserve(demand, now);
            chosen
        });
        let most = tally.values().max().unwrap();
        assert!(*most <= 14, "{policy} sent {most} of 80 to one worker");
        assert_eq!(tally.len(), 8);
    }
}

#[test]
fn an_aborted_request_gives_its_reservation_back() {
    let now = Duration::from_secs(1);
    let mut ledger = WorkerLedger::default();
    let demand = Demand {
        uncached_prompt_tokens: 500,
        kv_tokens: 700,
    };
    let tickets: Vec<_> = (0..3).map(|_| ledger.reserve(demand, now)).collect();
    ledger.first_token(tickets[1], now);
    ledger.scraped(now);
    for ticket in tickets.iter().chain(&tickets) {
        ledger.settle(*ticket, now);
    }
    assert!(ledger.is_empty());
    assert_eq!(ledger.kv_tokens(), 0);
    // The next page shows none of them.
    let next = now + Duration::from_millis(500);
    ledger.scraped(next);
    assert_eq!(ledger.view(next, 10_000.0), Default::default());
}

#[test]
fn a_worker_that_may_get_no_traffic_gets_none_and_no_workers_is_no_panic() {
    let mut workers = fleet(3);
    workers[1].weight = 0.0;
    let matches = Matches::from_pairs([(WorkerId(1), 60)]);
    for policy in Policy::ALL {
        let chosen: BTreeSet<_> = (0..60)
            .filter_map(|turn| policy.decide(&request(1_000, &matches), &workers, draw(turn)))
            .map(|decision| decision.chosen)
            .collect();
        assert!(!chosen.contains(&WorkerId(1)), "{policy}");
        assert!(
            policy
                .decide(&request(1_000, &matches), &[], draw(0))
                .is_none()
        );
    }
    workers.iter_mut().for_each(|worker| worker.weight = 0.0);
    for policy in Policy::ALL {
        assert!(
            policy
                .decide(&request(1_000, &matches), &workers, draw(0))
                .is_none()
        );
    }
}

#[test]
fn when_nobody_has_room_somebody_is_still_chosen_and_the_reason_says_so() {
    let mut workers = fleet(2);
    workers.iter_mut().for_each(|worker| worker.kv_usage = 1.0);
    let nothing = Matches::default();
    let decision = Policy::Fit
        .decide(&request(1_000, &nothing), &workers, draw(0))
        .unwrap();
    assert!(
        decision.to_string().contains("no worker has room"),
        "{decision}"
    );
}

/// All Rust sources below a folder, one after the other.
fn sources(folder: &std::path::Path, out: &mut String) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, out)?;
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            out.push_str(&std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[test]
fn every_test_that_the_docs_name_for_these_bugs_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = std::fs::read_to_string(root.join("docs/lessons.md")).unwrap();
    let mut code = String::new();
    sources(&root.join("crates"), &mut code).unwrap();
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'))
        .collect();
    assert!(rows.len() >= 15, "{} rows", rows.len());
    for row in rows {
        let tests = row.rsplit('|').nth(1).unwrap();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test in {row}");
        for name in names {
            assert!(
                code.contains(&format!("fn {name}(")),
                "there is no test {name}"
            );
        }
    }
}
