//! What the laws of depth promise, in simulated engines.
//!
//! `cargo run --release -p forespeak-speculation --example depth_laws` shows the same for more worlds.

use std::time::Duration;

use forespeak_speculation::simulate::{Machine, Run, Sight, Text, World};
use forespeak_speculation::{Controller, Costs, LawSpec};

const FIXED: [usize; 5] = [1, 2, 4, 8, 12];
const TEXTS: [(&str, Text); 6] = [
    ("prose", Text::PROSE),
    ("answers", Text::ANSWERS),
    ("copying", Text::COPYING),
    ("random", Text::RANDOM),
    ("noisy drafter", Text::NOISY_DRAFTER),
    ("copying without a model", Text::COPYING.without_model()),
];
const MIX: [Text; 4] = [Text::PROSE, Text::RANDOM, Text::COPYING, Text::ANSWERS];

fn threshold() -> LawSpec {
    LawSpec::Threshold(Duration::from_secs(10))
}

/// Against no speculation, and against the best fixed depth, over runs with other luck.
fn ratios(world: &World, seconds: f64) -> (f64, f64) {
    ratios_of(4, world, seconds)
}

/// The same over so many runs.
fn ratios_of(runs: u64, world: &World, seconds: f64) -> (f64, f64) {
    let rate = |law| -> f64 {
        let with = |seed| World {
            seed,
            ..world.clone()
        };
        let run = |seed| with(seed).run(law, seconds).tokens_per_second();
        (1..=runs).map(run).sum()
    };
    let off = rate(LawSpec::Fixed(0));
    let best = FIXED
        .iter()
        .map(|&depth| rate(LawSpec::Fixed(depth)))
        .fold(off, f64::max);
    let goodput = rate(LawSpec::Goodput);
    (goodput / off, goodput / best)
}

fn assert_bounded_loss(machine: Machine, seconds: f64) {
    for (name, text) in TEXTS {
        for streams in [1, 4, 16] {
            let world = World::steady(machine, text, streams);
            let (to_off, to_best) = ratios(&world, seconds);
            assert!(
                to_off >= 0.97 && to_best >= 0.95,
                "{name}, {streams} streams: {to_off:.3} of off, {to_best:.3} of the best fixed depth"
            );
        }
    }
}

#[test]
fn goodput_never_loses_much_on_a_quiet_cpu() {
    assert_bounded_loss(Machine::CPU, 60.0);
}

#[test]
fn goodput_never_loses_much_at_costs_measured_with_vllm() {
    assert_bounded_loss(Machine::VLLM_CPU, 30.0);
}

#[test]
fn goodput_never_loses_much_where_answers_take_a_tenth_of_a_second() {
    assert_bounded_loss(Machine::SMALL_MODEL, 6.0);
}

#[test]
fn goodput_never_loses_much_where_another_tenant_of_the_cache_comes_and_goes() {
    assert_bounded_loss_of_off(Machine::SMALL_MODEL_IN_SPELLS, 6.0);
}

/// Plain steps among drafts are slow there, and drafts held against them seem to gain.
#[test]
fn goodput_never_loses_much_where_drafts_slow_down_what_they_are_held_against() {
    let tempting = Text::EVEN_ODDS.guessed(0.8);
    for (text, at_least) in [(Text::EVEN_ODDS, 0.98), (tempting, 0.97)] {
        for streams in [2, 4, 8, 16] {
            let world = World::steady(Machine::TIGHT_CACHE, text, streams);
            let mean = mean_ratio_to_off(&world, 3.0);
            assert!(mean >= at_least, "{streams} streams: {mean:.3} of off");
        }
    }
}

/// What is learnt at the beginning is most of so short a run.
#[test]
fn random_text_costs_next_to_nothing_from_the_first_second_on() {
    for streams in [1, 4, 16] {
        let world = World::steady(Machine::SMALL_MODEL, Text::RANDOM, streams);
        let mean = mean_ratio_to_off(&world, 2.0);
        assert!(mean >= 0.98, "{streams} streams: {mean:.3} of off");
    }
}

/// One row more costs as much as eight, drafts of the model first take a tenth of a second of reading, and both must
/// not keep lookups from being seen to pay.
#[test]
fn copying_is_found_to_pay_at_sixteen_streams() {
    let world = World::steady(Machine::SMALL_MODEL, Text::COPYING, 16);
    let mean = mean_ratio_to_off(&world, 3.0);
    assert!(mean >= 1.1, "{mean:.3} of off");
}

/// One row more than eight costs as much as eight more: what each depth costs must be tried, the shallower ones too.
#[test]
fn copies_are_not_drafted_beyond_where_a_group_of_rows_ends() {
    let run = |seed| {
        let world = World::steady(Machine::SMALL_MODEL, Text::COPYING.without_model(), 1);
        World { seed, ..world }.run(LawSpec::Goodput, 4.0)
    };
    let drafts = |sight: &Sight| !sight.probe && sight.at > 2.0 && sight.depth > 0.0;
    let sights = (1..=12).flat_map(|seed| run(seed).sights);
    let depths: Vec<f64> = sights.filter(drafts).map(|sight| sight.depth).collect();
    let beyond = depths.iter().filter(|&&depth| depth > 7.0).count();
    let mean = depths.iter().sum::<f64>() / depths.len() as f64;
    assert!(
        mean > 5.0 && 10 * beyond < depths.len(),
        "{mean} on average, {beyond} of {} beyond",
        depths.len()
    );
}

/// Guesses fail in runs, and a run of them must not turn drafts off where they pay on the whole.
#[test]
fn hard_stretches_do_not_turn_drafts_off() {
    for machine in [Machine::CPU, Machine::VLLM_CPU, Machine::SMALL_MODEL] {
        let world = World::steady(machine, Text::UNEVEN_PROSE, 1);
        // So short a run is mostly what its first dozen of guesses was.
        let (_, to_best) = ratios_of(24, &world, 3_000.0 * machine.step);
        assert!(to_best >= 0.95, "{to_best:.3} of the best fixed depth");
    }
}

/// Over runs with other luck.
fn mean_ratio_to_off(world: &World, seconds: f64) -> f64 {
    let seeds = 1..=24;
    let ratio = |seed| {
        let world = World {
            seed,
            ..world.clone()
        };
        let rate = |law| world.run(law, seconds).tokens_per_second();
        rate(LawSpec::Goodput) / rate(LawSpec::Fixed(0))
    };
    seeds.clone().map(ratio).sum::<f64>() / seeds.count() as f64
}

fn assert_bounded_loss_of_off(machine: Machine, seconds: f64) {
    for (name, text) in TEXTS {
        for streams in [1, 4, 16] {
            let world = World::steady(machine, text, streams);
            let mean = mean_ratio_to_off(&world, seconds);
            assert!(mean >= 0.97, "{name}, {streams} streams: {mean:.3} of off");
        }
    }
}

#[test]
fn goodput_never_loses_much_where_every_row_costs() {
    assert_bounded_loss(Machine::STEEP, 60.0);
}

#[test]
fn goodput_loses_little_though_steps_are_uneven_and_now_and_then_ten_times_slower() {
    assert_bounded_loss(Machine::BUSY_CPU, 120.0);
}

#[test]
fn goodput_beats_every_fixed_depth_and_the_threshold_on_a_shifting_mix() {
    let machines = [
        (Machine::CPU, 20.0),
        (Machine::BUSY_CPU, 20.0),
        (Machine::VLLM_CPU, 20.0),
        (Machine::SMALL_MODEL, 1.0),
    ];
    for (machine, shift) in machines {
        for streams in [1, 4, 16] {
            let world = World::shifting(machine, &MIX, shift, streams);
            let rate = |law| world.run(law, 4.0 * shift).tokens_per_second();
            let goodput = rate(LawSpec::Goodput);
            for law in [0, 1, 2, 4, 8, 12]
                .map(LawSpec::Fixed)
                .into_iter()
                .chain([threshold()])
            {
                let other = rate(law);
                assert!(
                    goodput > other,
                    "{streams} streams: {goodput} against {other} of {law}"
                );
            }
        }
    }
}

#[test]
fn every_stream_gets_the_depth_of_its_own_text() {
    for machine in [Machine::CPU, Machine::BUSY_CPU] {
        for streams in [4, 16] {
            let world = World::mixed(machine, &MIX, streams);
            let (_, to_best) = ratios(&world, 60.0);
            assert!(
                to_best > 1.1,
                "{streams} streams: {to_best} of the best single depth"
            );
        }
    }
}

/// Mean depths two to four seconds after a shift at `start`, and when all is settled.
fn soon_and_settled(run: &Run, start: f64, shift: f64) -> (f64, f64) {
    let soon = run.depth_between(start + 2.0, start + 4.0);
    let settled = run.depth_between(start + 0.5 * shift, start + shift);
    (soon, settled)
}

/// Next to the best depth lie others that are as good within the margin, so it may differ by a part of it or by so many.
fn is_settled((soon, settled): (f64, f64), part: f64, depths: f64) -> bool {
    (soon - settled).abs() <= (part * settled).max(depths)
}

#[test]
fn depth_settles_within_two_seconds_of_a_shift() {
    const SHIFT: f64 = 20.0;
    const SHIFTS: usize = 7;
    let texts = [Text::PROSE, Text::RANDOM, Text::ANSWERS, Text::RANDOM].map(Text::without_lookups);
    // Which part of the shifts may be unlucky. Answers at four streams pay so little that it matters little when they are
    // drafted for: over a hundred runs, one shift in seven takes longer, of one stream one in twenty.
    for (machine, streams, part) in [
        (Machine::CPU, 1, 10),
        (Machine::CPU, 4, 5),
        (Machine::VLLM_CPU, 1, 10),
    ] {
        let run = |seed| {
            let world = World::shifting(machine, &texts, SHIFT, streams);
            World { seed, ..world }.run(LawSpec::Goodput, (SHIFTS + 1) as f64 * SHIFT)
        };
        let runs: Vec<Run> = (1..=20).map(run).collect();
        let mut unlucky = 0;
        for shift in 1..=SHIFTS {
            let depths = |run| soon_and_settled(run, shift as f64 * SHIFT, SHIFT);
            let all: Vec<(f64, f64)> = runs.iter().map(depths).collect();
            let mean = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).sum::<f64>() / 20.0;
            let (soon, settled) = (mean(|d| d.0), mean(|d| d.1));
            assert!(
                is_settled((soon, settled), 0.3, 1.0),
                "shift {shift}, {streams} streams: {soon} two seconds after it, {settled} later"
            );
            unlucky += all.iter().filter(|d| !is_settled(**d, 0.35, 1.25)).count();
        }
        let all = runs.len() * SHIFTS;
        assert!(
            part * unlucky <= all,
            "{streams} streams: {unlucky} of {all}"
        );
    }
}

#[test]
fn depth_does_not_hunt_in_a_steady_world() {
    // About twenty answers begin in a minute, each with a depth of its own.
    let most = 30;
    for machine in [Machine::CPU, Machine::BUSY_CPU, Machine::STEEP] {
        for (name, text) in TEXTS {
            let mut text = text.without_lookups();
            text.model = text.model.or(Text::PROSE.model);
            let run = World::steady(machine, text, 1).run(LawSpec::Goodput, 120.0);
            let settled: Vec<_> = run.sights.iter().filter(|s| s.at > 60.0).copied().collect();
            let changes = Run {
                sights: settled,
                ..Run::default()
            }
            .changes();
            assert!(changes <= most, "{name}: {changes} changes in a minute");
        }
    }
}

#[test]
fn speculation_comes_back_after_a_long_time_off() {
    let world = World::shifting(
        Machine::CPU,
        &[
            Text::RANDOM.without_lookups(),
            Text::PROSE.without_lookups(),
        ],
        60.0,
        1,
    );
    let run = world.run(LawSpec::Goodput, 65.0);
    assert!(run.depth_between(30.0, 60.0) < 0.2);
    assert!(run.depth_between(62.0, 65.0) > 2.0);
}

/// The baseline knows nothing of costs, so what it loses has no bound but that of its depths. This much it promises.
#[test]
fn threshold_settles_goes_off_where_nothing_is_accepted_and_does_not_hunt() {
    let run = |text, seconds| {
        let world = World::steady(Machine::CPU, text, 1);
        (
            world.run(threshold(), seconds),
            world.run(LawSpec::Fixed(0), seconds),
        )
    };
    let (copying, _) = run(Text::COPYING, 100.0);
    assert!(
        copying.depth_between(60.0, 100.0) > 7.9,
        "four intervals from 4 to 8"
    );
    assert!(copying.changes() <= 8, "{} changes", copying.changes());
    let (random, off) = run(Text::RANDOM, 100.0);
    assert_eq!(random.depth_between(11.0, 100.0), 0.0, "one interval");
    assert!(random.changes() <= 1, "{} changes", random.changes());
    let behind = random.rate_between(20.0, 100.0) / off.rate_between(20.0, 100.0);
    assert!(behind > 0.95, "probes take {behind:.3}");
    let world = World::shifting(Machine::CPU, &[Text::RANDOM, Text::COPYING], 50.0, 1);
    let back = world.run(threshold(), 100.0);
    assert!(
        back.depth_between(75.0, 100.0) > 2.0,
        "back within two intervals and a half"
    );
}

#[test]
fn the_law_can_change_while_it_runs_and_what_was_learnt_stays() {
    let world = World::steady(Machine::CPU, Text::PROSE, 1);
    let mut controller = Controller::new("fixed:3".parse().unwrap(), Costs::default());
    world.run_with(&mut controller, 5.0);
    let drafts = controller
        .evidence()
        .acceptance
        .totals(forespeak_speculation::Source::Model)
        .drafts;
    controller.set_law(LawSpec::Fixed(0));
    let run = world.run_with(&mut controller, 1.0);
    assert_eq!(run.depth_between(0.0, 1.0), 0.0);
    let after = controller
        .evidence()
        .acceptance
        .totals(forespeak_speculation::Source::Model)
        .drafts;
    assert!(drafts > 100 && after == drafts);
}

#[test]
fn low_acceptance_is_said_with_advice() {
    let mut controller = Controller::new(LawSpec::Fixed(4), Costs::default());
    let world = World::steady(Machine::CPU, Text::RANDOM, 1);
    world.run_with(&mut controller, 10.0);
    assert_eq!(controller.low_acceptance(Duration::from_secs(10)), None);
    world.run_with(&mut controller, 60.0);
    let low = controller.low_acceptance(Duration::from_secs(70)).unwrap();
    assert!(low.acceptance < forespeak_speculation::LOW_ACCEPTANCE);
    assert!(low.to_string().contains("--drafter ngram"));
}
