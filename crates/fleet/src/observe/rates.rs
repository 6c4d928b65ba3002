//! What happened between two observations of one worker.
//!
//! Counters start again at zero when a worker's process does. A counter that fell, or another process
//! start time, is such a reset: what stands there now is then what happened since.

use std::time::Duration;

use super::observation::{Counters, Observation, SumCount};

/// The weight of what is an age old halves in this time: long enough to smooth over single requests,
/// short enough to follow a change of load.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Rates of one interval. `None` where nothing happened that could be divided by.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rates {
    /// Generated tokens per second.
    pub generation_tokens_per_second: Option<f64>,
    /// Prompt tokens per second, idle time included.
    pub prompt_tokens_per_second: Option<f64>,
    /// Prompt tokens computed per second of prefill: the engine's speed, whatever its load.
    pub prefill_tokens_per_second: Option<f64>,
    /// Share of looked-up tokens found in the prefix cache.
    pub prefix_hit_ratio: Option<f64>,
    /// Requests thrown out for want of KV cache.
    pub preemptions: Option<f64>,
    /// Engine steps per second.
    pub steps_per_second: Option<f64>,
    /// Mean time to first token.
    pub ttft: Option<Duration>,
    /// Mean time between tokens.
    pub itl: Option<Duration>,
    /// Mean time in the engine's queue.
    pub queue: Option<Duration>,
    /// Share of drafted tokens accepted.
    pub acceptance: Option<f64>,
    /// Whether the worker's process started anew in between.
    pub restarted: bool,
}

impl Rates {
    /// What a worker's counters tell of all the time before its first observation. Speeds and ratios only: for how long
    /// it has been counting nobody knows.
    pub(crate) fn since_its_start(now: &Observation) -> Self {
        let zero = Observation {
            counters: Counters::default(),
            ..now.clone()
        };
        Self::between(&zero, now, Duration::ZERO)
    }

    /// From one observation to the next, `elapsed` later.
    pub fn between(before: &Observation, now: &Observation, elapsed: Duration) -> Self {
        let restarted = is_reset(before, now);
        let zero = Counters::default();
        let (old, new) = (
            if restarted { &zero } else { &before.counters },
            &now.counters,
        );
        let grown = |old: Option<f64>, new: Option<f64>| Some((new? - old.unwrap_or(0.0)).max(0.0));
        let per_second = |grown: Option<f64>| grown.and_then(|n| divide(n, elapsed.as_secs_f64()));
        let mean = |old: Option<SumCount>, new: Option<SumCount>| {
            let (old, new) = (old.unwrap_or_default(), new?);
            let seconds = divide(new.sum - old.sum, new.count - old.count)?;
            Duration::try_from_secs_f64(seconds).ok()
        };
        let prefill_seconds = grown(old.prefill.map(|p| p.sum), new.prefill.map(|p| p.sum));
        let (old_spec, new_spec) = (old.spec.as_ref(), new.spec.as_ref());
        let accepted = grown(
            old_spec.map(|spec| spec.accepted_tokens),
            new_spec.map(|spec| spec.accepted_tokens),
        );
        let drafted = grown(
            old_spec.map(|spec| spec.draft_tokens),
            new_spec.map(|spec| spec.draft_tokens),
        );
        let ratio =
            |part: Option<f64>, whole: Option<f64>| divide(part?, whole?).map(|r| r.min(1.0));
        Self {
            generation_tokens_per_second: per_second(grown(
                old.generation_tokens,
                new.generation_tokens,
            )),
            prompt_tokens_per_second: per_second(grown(old.prompt_tokens, new.prompt_tokens)),
            prefill_tokens_per_second: grown(old.prefill_tokens, new.prefill_tokens)
                .zip(prefill_seconds)
                .and_then(|(tokens, seconds)| divide(tokens, seconds)),
            prefix_hit_ratio: ratio(
                grown(old.prefix_hits, new.prefix_hits),
                grown(old.prefix_queries, new.prefix_queries),
            )
            .or(now.prefix_hit_rate),
            preemptions: grown(old.preemptions, new.preemptions),
            steps_per_second: per_second(grown(old.steps, new.steps)),
            ttft: mean(old.ttft, new.ttft),
            itl: mean(old.itl, new.itl),
            queue: mean(old.queue, new.queue),
            acceptance: ratio(accepted, drafted).or(now.acceptance_rate),
            restarted,
        }
    }
}

fn is_reset(before: &Observation, now: &Observation) -> bool {
    let fell =
        |old: Option<f64>, new: Option<f64>| old.zip(new).is_some_and(|(old, new)| new < old);
    let (old, new) = (&before.counters, &now.counters);
    before
        .process_start
        .zip(now.process_start)
        .is_some_and(|(old, new)| old != new)
        || fell(old.prompt_tokens, new.prompt_tokens)
        || fell(old.generation_tokens, new.generation_tokens)
        || fell(old.steps, new.steps)
        || fell(old.ttft.map(|h| h.count), new.ttft.map(|h| h.count))
}

fn divide(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0 && part >= 0.0).then(|| part / whole)
}

/// Speeds of a worker, smoothed over intervals in which they could be measured.
///
/// `x ← x + (1 − 2^(−elapsed/half-life))·(measured − x)`; the first measurement is taken as it is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Smoothed {
    /// Prompt tokens computed per second of prefill.
    pub prefill_tokens_per_second: Option<f64>,
    /// Seconds between tokens.
    pub itl_seconds: Option<f64>,
    /// Share of looked-up tokens found in the prefix cache.
    pub prefix_hit_ratio: Option<f64>,
    /// Share of drafted tokens accepted.
    pub acceptance: Option<f64>,
}

impl Smoothed {
    /// With another interval taken in. A restarted worker keeps its speeds: the machine is the same.
    #[must_use]
    pub fn with(self, rates: &Rates, elapsed: Duration) -> Self {
        let gain = 1.0 - (-elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2();
        let blend = |old: Option<f64>, measured: Option<f64>| match (old, measured) {
            (Some(old), Some(measured)) => Some(old + gain * (measured - old)),
            (old, measured) => measured.or(old),
        };
        Self {
            prefill_tokens_per_second: blend(
                self.prefill_tokens_per_second,
                rates.prefill_tokens_per_second,
            ),
            itl_seconds: blend(self.itl_seconds, rates.itl.map(|itl| itl.as_secs_f64())),
            prefix_hit_ratio: blend(self.prefix_hit_ratio, rates.prefix_hit_ratio),
            acceptance: blend(self.acceptance, rates.acceptance),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn page(start: f64, generated: u32, prompts: u32, itl_sum: f64, itl_count: u32) -> Observation {
        let page = format!(
            "process_start_time_seconds {start}\n\
             vllm:generation_tokens_total {generated}\n\
             vllm:prompt_tokens_total {prompts}\n\
             vllm:prefix_cache_queries_total {prompts}\n\
             vllm:prefix_cache_hits_total {}\n\
             vllm:inter_token_latency_seconds_sum {itl_sum}\n\
             vllm:inter_token_latency_seconds_count {itl_count}\n",
            prompts / 4
        );
        Observation::from_page(&page).unwrap()
    }

    #[test]
    fn rates_are_growth_over_time() {
        let rates = Rates::between(
            &page(1.0, 100, 40, 1.0, 10),
            &page(1.0, 300, 80, 2.0, 30),
            2 * SECOND,
        );
        assert_eq!(rates.generation_tokens_per_second, Some(100.0));
        assert_eq!(rates.prefix_hit_ratio, Some(0.25));
        assert_eq!(rates.itl, Some(Duration::from_millis(50)));
        assert_eq!(rates.ttft, None);
        assert!(!rates.restarted);
    }

    #[test]
    fn a_first_page_tells_speeds_and_no_rates() {
        let rates = Rates::since_its_start(&page(1.0, 100, 40, 1.0, 10));
        assert_eq!(rates.itl, Some(Duration::from_millis(100)));
        assert_eq!(rates.prefix_hit_ratio, Some(0.25));
        assert_eq!(rates.generation_tokens_per_second, None);
        assert!(!rates.restarted);
    }

    #[test]
    fn a_counter_that_fell_counts_from_zero() {
        let rates = Rates::between(
            &page(1.0, 1000, 40, 9.0, 90),
            &page(1.0, 30, 8, 1.0, 10),
            SECOND,
        );
        assert!(rates.restarted);
        assert_eq!(rates.generation_tokens_per_second, Some(30.0));
        assert_eq!(rates.itl, Some(Duration::from_millis(100)));
    }

    #[test]
    fn another_process_is_a_reset_even_if_its_counters_are_higher() {
        let rates = Rates::between(&page(1.0, 10, 4, 0.0, 0), &page(2.0, 30, 8, 0.0, 0), SECOND);
        assert!(rates.restarted);
        assert_eq!(rates.generation_tokens_per_second, Some(30.0));
    }

    #[test]
    fn an_idle_interval_has_no_ratios() {
        let idle = page(1.0, 10, 4, 1.0, 10);
        let rates = Rates::between(&idle, &idle, SECOND);
        assert_eq!(rates.prefix_hit_ratio, None);
        assert_eq!(rates.itl, None);
        assert_eq!(rates.generation_tokens_per_second, Some(0.0));
    }

    #[test]
    fn smoothing_halves_the_distance_in_a_half_life() {
        let measured = |speed| Rates {
            prefill_tokens_per_second: Some(speed),
            ..Rates::default()
        };
        let first = Smoothed::default().with(&measured(100.0), SECOND);
        assert_eq!(first.prefill_tokens_per_second, Some(100.0));
        let second = first.with(&measured(200.0), HALF_LIFE);
        assert!((second.prefill_tokens_per_second.unwrap() - 150.0).abs() < 1e-9);
        assert_eq!(second.with(&Rates::default(), SECOND), second);
    }
}
