//! What a run showed.

use std::time::Duration;

use serde::Serialize;

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Requests answered.
    pub finished: usize,
    /// Requests no worker could hold.
    pub refused: usize,
    /// From the request's arrival to its first token.
    pub ttft: Percentiles,
    /// From its arrival to its last token.
    pub end_to_end: Percentiles,
    /// Answered requests per second, from the first arrival to the last answer.
    pub requests_per_second: f64,
    /// Answered against arrived requests per second: below 1 the fleet falls behind, and every percentile only says
    /// how long it was allowed to.
    pub carried: f64,
    /// Share of all prompt tokens that came from a cache.
    pub hit_share: f64,
    /// Share of answers whose cached tokens were predicted to within one block.
    pub predicted_within_a_block: f64,
    /// Cached blocks lost to new ones.
    pub evictions: u64,
    /// Running requests that lost their blocks.
    pub preemptions: u64,
    /// Workers times the largest share of all prompt work: 1 is even, the number of workers is one doing it all.
    pub hot_spot: f64,
    /// Mean share of time the workers were busy.
    pub busy: f64,
}

impl Report {
    /// The mean of several runs, figure by figure; counts are rounded.
    pub fn mean(reports: &[Self]) -> Self {
        let runs = reports.len().max(1);
        let share =
            |figure: fn(&Self) -> f64| reports.iter().map(figure).sum::<f64>() / runs as f64;
        let count =
            |figure: fn(&Self) -> u64| reports.iter().map(figure).sum::<u64>() / runs as u64;
        let times = |figure: fn(&Self) -> &Percentiles| {
            let mean = |pick: fn(&Percentiles) -> f64| {
                reports
                    .iter()
                    .map(|report| pick(figure(report)))
                    .sum::<f64>()
                    / runs as f64
            };
            Percentiles {
                mean: mean(|p| p.mean),
                p50: mean(|p| p.p50),
                p95: mean(|p| p.p95),
                p99: mean(|p| p.p99),
            }
        };
        Self {
            finished: count(|r| r.finished as u64) as usize,
            refused: count(|r| r.refused as u64) as usize,
            ttft: times(|r| &r.ttft),
            end_to_end: times(|r| &r.end_to_end),
            requests_per_second: share(|r| r.requests_per_second),
            carried: share(|r| r.carried),
            hit_share: share(|r| r.hit_share),
            predicted_within_a_block: share(|r| r.predicted_within_a_block),
            evictions: count(|r| r.evictions),
            preemptions: count(|r| r.preemptions),
            hot_spot: share(|r| r.hot_spot),
            busy: share(|r| r.busy),
        }
    }
}

/// A distribution in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95 of 100 are below.
    pub p95: f64,
    /// 99 of 100 are below.
    pub p99: f64,
}

impl Percentiles {
    /// Of these times, nearest rank.
    pub fn of(times: &mut [Duration]) -> Self {
        times.sort_unstable();
        let rank = |share: f64| {
            let at = (share * times.len() as f64).ceil() as usize;
            times
                .get(at.saturating_sub(1))
                .map_or(0.0, Duration::as_secs_f64)
        };
        let total: Duration = times.iter().sum();
        Self {
            mean: total.as_secs_f64() / times.len().max(1) as f64,
            p50: rank(0.50),
            p95: rank(0.95),
            p99: rank(0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let mut times: Vec<Duration> = (1..=100).rev().map(Duration::from_secs).collect();
        let of_hundred = Percentiles::of(&mut times);
        assert_eq!(
            (of_hundred.p50, of_hundred.p95, of_hundred.p99),
            (50.0, 95.0, 99.0)
        );
        assert_eq!(of_hundred.mean, 50.5);
        assert_eq!(Percentiles::of(&mut []), Percentiles::default());
    }
}
