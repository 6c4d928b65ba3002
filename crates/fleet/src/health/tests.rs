use std::time::Duration;

use super::*;
use proptest::prelude::*;

const HALF_SECOND: Duration = Duration::from_millis(500);

fn up() -> (Health, Instant) {
    let now = Instant::now();
    let mut health = Health::new(HealthConfig::default());
    health.signal(Signal::Alive, now);
    (health, now)
}

fn page(running: u32, generated: u32) -> Observation {
    let page =
        format!("vllm:num_requests_running {running}\nvllm:generation_tokens_total {generated}\n");
    Observation::from_page(&page).unwrap()
}

#[test]
fn a_newcomer_gets_nothing_until_it_answers_and_then_a_growing_share() {
    let start = Instant::now();
    let mut health = Health::new(HealthConfig::default());
    assert_eq!(health.condition(start), Condition::Starting);
    health.signal(Signal::Alive, start);
    let weight =
        |health: &Health, seconds| match health.condition(start + Duration::from_secs(seconds)) {
            Condition::Healthy { weight } => weight,
            other => panic!("{other:?}"),
        };
    assert!((weight(&health, 0) - 0.2).abs() < 1e-9);
    assert!((weight(&health, 5) - 0.6).abs() < 1e-9);
    assert_eq!(weight(&health, 10), 1.0);
}

#[test]
fn a_refused_connection_asks_for_a_probe_and_a_second_one_is_the_end() {
    let (mut health, now) = up();
    assert!(health.signal(Signal::Unreachable, now));
    assert!(health.condition(now).is_healthy());
    health.signal(Signal::Unreachable, now);
    assert_eq!(
        health.condition(now),
        Condition::Down(DownReason::Unreachable)
    );
}

#[test]
fn one_lost_connection_among_answers_means_nothing() {
    let (mut health, mut now) = up();
    for _ in 0..100 {
        health.signal(Signal::Reset, now);
        health.signal(Signal::Alive, now);
        now += HALF_SECOND;
    }
    assert!(health.condition(now).is_healthy());
}

#[test]
fn a_returning_worker_proves_itself_and_warms_up_again() {
    let (mut health, mut now) = up();
    health.signal(Signal::Unreachable, now);
    health.signal(Signal::Unreachable, now);
    now += Duration::from_secs(60);
    health.signal(Signal::Alive, now);
    assert_eq!(
        health.condition(now),
        Condition::Down(DownReason::Unreachable)
    );
    health.signal(Signal::Alive, now);
    assert_eq!(health.condition(now), Condition::Healthy { weight: 0.2 });
}

#[test]
fn a_worker_that_accepts_and_stays_silent_is_out_after_two_probes() {
    let (mut health, now) = up();
    health.signal(Signal::Silent, now);
    assert!(health.condition(now).is_healthy());
    health.signal(Signal::Silent, now);
    assert_eq!(health.condition(now), Condition::Down(DownReason::Silent));
}

#[test]
fn a_wedged_engine_is_found_though_its_health_page_is_fine() {
    let (mut health, mut now) = up();
    for _ in 0..61 {
        now += HALF_SECOND;
        health.signal(Signal::Alive, now);
        health.observed(&page(3, 1000), now);
    }
    assert_eq!(health.condition(now), Condition::Wedged);
    health.observed(&page(3, 1001), now);
    assert!(health.condition(now).is_healthy());
}

#[test]
fn an_idle_engine_is_not_wedged() {
    let (mut health, mut now) = up();
    for _ in 0..1000 {
        now += HALF_SECOND;
        health.observed(&page(0, 1000), now);
    }
    assert!(health.condition(now).is_healthy());
    health.observed(&page(1, 1000), now);
    assert!(health.condition(now).is_healthy());
}

#[test]
fn a_stream_that_moves_proves_an_engine_whose_counters_do_not() {
    let (mut health, mut now) = up();
    for _ in 0..200 {
        now += HALF_SECOND;
        health.observed(&page(1, 7), now);
        health.moved(now);
    }
    assert!(health.condition(now).is_healthy());
}

#[test]
fn metrics_that_stop_coming_are_not_believed() {
    let (mut health, now) = up();
    health.observed(&page(0, 1), now);
    assert!(health.condition(now + Duration::from_secs(4)).is_healthy());
    assert_eq!(
        health.condition(now + Duration::from_secs(5)),
        Condition::Stale
    );
}

#[test]
fn a_worker_without_metrics_is_never_stale() {
    let (mut health, now) = up();
    health.has_no_metrics();
    assert!(
        health
            .condition(now + Duration::from_secs(3600))
            .is_healthy()
    );
}

#[test]
fn a_sleeping_engine_gets_no_work() {
    let (mut health, now) = up();
    let page = "vllm:engine_sleep_state{sleep_state=\"awake\"} 0\n\
                vllm:engine_sleep_state{sleep_state=\"weights_offloaded\"} 1\n";
    health.observed(&Observation::from_page(page).unwrap(), now);
    assert_eq!(health.condition(now), Condition::Asleep);
}

#[test]
fn a_drain_outranks_everything_and_keeps_its_beginning() {
    let (mut health, now) = up();
    health.drain(DrainReason::Operator, now);
    health.drain(DrainReason::Leaving, now + HALF_SECOND);
    health.signal(Signal::Unreachable, now);
    health.signal(Signal::Unreachable, now);
    assert_eq!(
        health.condition(now),
        Condition::Draining(DrainReason::Leaving)
    );
    assert_eq!(health.draining().unwrap().since, now);
    health.undrain(now);
    assert_eq!(
        health.condition(now),
        Condition::Down(DownReason::Unreachable)
    );
}

/// The worst case of the timetable: a worker dies right after a probe began to be answered. The next
/// probe comes an interval later and meets a refusal; it is repeated at once and meets the second.
#[test]
fn a_dead_worker_is_out_within_two_seconds() {
    let (mut health, death) = up();
    let next_probe = death + HALF_SECOND.mul_f64(1.1);
    let probe_again_at_once = health.signal(Signal::Unreachable, next_probe);
    assert!(probe_again_at_once);
    let connect_timeout = HALF_SECOND;
    let second = next_probe + connect_timeout;
    health.signal(Signal::Unreachable, second);
    assert_eq!(
        health.condition(second),
        Condition::Down(DownReason::Unreachable)
    );
    assert!(second - death < Duration::from_secs(2));
}

proptest! {
    #[test]
    fn two_failed_connections_in_a_row_always_put_it_out_and_two_answers_bring_it_back(
        signals in proptest::collection::vec(0_u8..5, 0..100),
    ) {
        let (mut health, mut now) = up();
        for signal in signals {
            now += HALF_SECOND;
            let signal = match signal {
                0 => Signal::Alive,
                1 => Signal::Unready,
                2 => Signal::Unreachable,
                3 => Signal::Reset,
                _ => Signal::Silent,
            };
            health.signal(signal, now);
            if let Condition::Healthy { weight } = health.condition(now) {
                prop_assert!(weight > 0.0 && weight <= 1.0);
            }
        }
        let mut dead = health.clone();
        dead.signal(Signal::Unreachable, now);
        dead.signal(Signal::Unreachable, now);
        prop_assert_eq!(dead.condition(now), Condition::Down(DownReason::Unreachable));
        dead.signal(Signal::Alive, now);
        dead.signal(Signal::Alive, now);
        prop_assert!(dead.condition(now).is_healthy());
    }
}
