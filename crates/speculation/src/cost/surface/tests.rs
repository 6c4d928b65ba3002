use super::*;
use crate::simulate::Noise;
use proptest::prelude::*;

const PRIOR: Prior = Prior {
    batch_slope: 0.1,
    drafted_slope: 0.1,
};

fn shape(sequences: usize, drafted: usize, context: usize) -> StepShape {
    StepShape {
        sequences,
        drafted,
        context,
    }
}

fn truth(batch: usize, drafted: usize) -> f64 {
    // Rows are free up to four, then cost; sequences cost a little each.
    let rows = (batch + drafted) as f64;
    0.010 + 0.0008 * (rows - 4.0).max(0.0) + 0.0002 * batch as f64
}

fn learn(surface: &mut Surface, noise: &mut Noise, steps: usize, depths: &[usize], slow: f64) {
    for step in 0..steps {
        let batch = [1, 4, 8][step / 20 % 3];
        let drafted = batch * depths[(noise.uniform() * depths.len() as f64) as usize];
        let mut seconds = truth(batch, drafted) * slow * (0.1 * noise.normal()).exp();
        if noise.uniform() < 0.03 {
            seconds *= 10.0;
        }
        let now = Duration::from_millis(20 * step as u64);
        surface.observe(now, &shape(batch, drafted, 0), seconds);
    }
}

#[test]
fn noisy_steps_with_outliers_give_good_ratios() {
    let mut surface = Surface::new(PRIOR);
    learn(&mut surface, &mut Noise::new(1), 1_500, &[0, 1, 2, 4], 1.0);
    for batch in [1, 4, 8] {
        for depth in 1..=5 {
            let drafted = depth * batch;
            let found = surface.at(&shape(batch, drafted, 0)) / surface.at(&shape(batch, 0, 0));
            let true_ratio = truth(batch, drafted) / truth(batch, 0);
            assert!(
                (found / true_ratio - 1.0).abs() < 0.12,
                "batch {batch}, depth {depth}: {found} for {true_ratio}"
            );
        }
    }
}

#[test]
fn a_slow_minute_changes_times_and_not_ratios() {
    let mut surface = Surface::new(PRIOR);
    let mut noise = Noise::new(2);
    learn(&mut surface, &mut noise, 1_200, &[0, 2, 4], 1.0);
    let before = surface.at(&shape(4, 8, 0)) / surface.at(&shape(4, 0, 0));
    // Only depth 2 runs while everything takes twice as long.
    for step in 0..200 {
        let seconds = 2.0 * truth(4, 8) * (0.1 * noise.normal()).exp();
        surface.observe(
            Duration::from_millis(24_000 + 20 * step),
            &shape(4, 8, 0),
            seconds,
        );
    }
    let after = surface.at(&shape(4, 8, 0)) / surface.at(&shape(4, 0, 0));
    assert!((surface.at(&shape(4, 8, 0)) / truth(4, 8) - 2.0).abs() < 0.25);
    assert!(
        (after / before - 1.0).abs() < 0.1,
        "{before} became {after}"
    );
}

#[test]
fn a_growing_context_is_not_blamed_on_the_depth() {
    let mut surface = Surface::new(PRIOR);
    let mut noise = Noise::new(9);
    let seconds =
        |drafted: usize, context: usize| 0.010 + 0.0005 * drafted as f64 + 2e-6 * context as f64;
    for step in 0..3_000usize {
        let drafted = [0, 4][step % 2];
        let context = (step * 7) % 6_000;
        let took = seconds(drafted, context) * (0.05 * noise.normal()).exp();
        surface.observe(
            Duration::from_millis(10 * step as u64),
            &shape(1, drafted, context),
            took,
        );
    }
    for (drafted, context) in [(0, 500), (4, 500), (0, 5_500), (4, 5_500)] {
        let found = surface.at(&shape(1, drafted, context));
        let exact = seconds(drafted, context);
        assert!(
            (found / exact - 1.0).abs() < 0.15,
            "{drafted} {context}: {found} for {exact}"
        );
    }
}

/// Steps of a nanosecond, steps of an hour (a stopped process), contexts that jump.
fn wild_step() -> impl Strategy<Value = (usize, usize, usize, f64)> {
    (1usize..40, 0usize..64, 0usize..200_000, -9.0f64..4.0).prop_map(
        |(batch, drafted, context, exponent)| (batch, drafted, context, 10f64.powf(exponent)),
    )
}

proptest! {
    #[test]
    fn no_measurement_can_poison_the_costs(
        steps in proptest::collection::vec((wild_step(), 1usize..60), 1..12),
    ) {
        let mut surface = Surface::new(PRIOR);
        let mut now = Duration::ZERO;
        for ((batch, drafted, context, seconds), times) in steps {
            for _ in 0..times {
                now += Duration::from_millis(10);
                surface.observe(now, &shape(batch, drafted, context), seconds);
                let cost = surface.at(&shape(batch, drafted, context));
                prop_assert!(cost.is_finite() && cost > 0.0, "{cost}");
            }
        }
    }
}

#[test]
fn cells_are_bounded_and_nothing_measured_is_still_answered() {
    let mut surface = Surface::new(PRIOR);
    assert!(surface.at(&shape(3, 7, 100)) > surface.at(&shape(3, 0, 100)));
    for step in 0..2_000usize {
        let now = Duration::from_millis(step as u64);
        surface.observe(now, &shape(1 + step % 100, step % 64, 10), 0.01);
    }
    assert!(surface.cells.len() <= MAX_CELLS);
}

#[test]
fn buckets_are_ordered_and_fine_enough() {
    for x in 1..2_000usize {
        assert!(bucket(x) >= x && bucket(x) as f64 <= x as f64 * 1.26, "{x}");
        assert!(bucket(x) <= bucket(x + 1));
        assert_eq!(bucket(bucket(x)), bucket(x));
    }
}

#[test]
fn a_machine_that_goes_up_and_down_for_long_without_drafts_changes_no_ratio() {
    let mut surface = Surface::measured_in_plain_steps(PRIOR);
    let mut noise = Noise::new(5);
    learn(&mut surface, &mut noise, 1_200, &[0, 2, 4], 1.0);
    let before = surface.at(&shape(4, 8, 0)) / surface.at(&shape(4, 0, 0));
    for step in 0..30_000u64 {
        let slow = [1.0, 1.6, 1.2, 2.0][(step / 500 % 4) as usize];
        let seconds = slow * truth(4, 0) * (0.15 * noise.normal()).exp();
        let now = Duration::from_millis(24_000 + step);
        surface.observe(now, &shape(4, 0, 0), seconds);
    }
    let after = surface.at(&shape(4, 8, 0)) / surface.at(&shape(4, 0, 0));
    assert!(
        (after / before - 1.0).abs() < 0.1,
        "{before} became {after}"
    );
}

#[test]
fn drafts_are_held_against_plain_steps_as_they_are_without_drafts() {
    const SOON_BEHIND: [f64; 5] = [1.16, 1.09, 1.08, 1.05, 1.02];
    let mut surface = Surface::measured_in_plain_steps(PRIOR);
    let mut noise = Noise::new(5);
    let (mut step, mut since) = (0, SOON_BEHIND.len());
    let mut run = |surface: &mut Surface, steps: usize, drafts: &dyn Fn(usize) -> bool| {
        for index in 0..steps {
            let drafted = if drafts(index) { 4 } else { 0 };
            since = if drafted > 0 { 0 } else { since + 1 };
            let soon = SOON_BEHIND.get(since.wrapping_sub(1)).copied();
            let slower = if drafted > 0 {
                1.8
            } else {
                soon.unwrap_or(1.0)
            };
            let seconds = 0.001 * slower * (0.03 * noise.normal()).exp();
            step += 1;
            surface.observe(Duration::from_millis(step), &shape(4, drafted, 0), seconds);
        }
    };
    run(&mut surface, 600, &|index| index % 40 == 39);
    // From now on plain steps are never in a run.
    run(&mut surface, 1_200, &|index| index % 20 != 0);
    let found = surface.at(&shape(4, 4, 0)) / surface.at(&shape(4, 0, 0));
    assert!((found / 1.8 - 1.0).abs() < 0.06, "{found}");
}

/// One depth is drafted for long while the machine is now a little slower, now a little faster: what is known of others must not come
/// to seem dearer or cheaper by that.
#[test]
fn what_nobody_has_seen_for_long_keeps_its_distance() {
    let mut surface = Surface::measured_in_plain_steps(PRIOR);
    let mut noise = Noise::new(11);
    let cost = |drafted: usize| 0.0008 * [1.0, 1.06, 1.26, 1.3][drafted];
    let mut tempo = 0.0f64;
    let mut step = 0;
    let mut run = |surface: &mut Surface, steps: usize, drafted: &dyn Fn(usize) -> usize| {
        for index in 0..steps {
            let drafted = drafted(index);
            if index % 25 == 0 {
                tempo = 0.08 * noise.normal();
            }
            let seconds = cost(drafted) * (tempo + 0.08 * noise.normal()).exp();
            step += 1;
            surface.observe(Duration::from_millis(step), &shape(1, drafted, 0), seconds);
        }
    };
    run(&mut surface, 240, &|index| index % 4);
    run(&mut surface, 4_000, &|index| usize::from(index % 100 != 0));
    for drafted in [2, 3] {
        let found = surface.at(&shape(1, drafted, 0)) / surface.at(&shape(1, 1, 0));
        let truth = cost(drafted) / cost(1);
        assert!(
            (found / truth - 1.0).abs() < 0.06,
            "{drafted}: {found} for {truth}"
        );
    }
}
