//! The figures of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::record::{Outcome, Record};

/// A distribution, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half are below.
    pub median: f64,
    /// 90 of 100 are below.
    pub p90: f64,
    /// 95 of 100 are below.
    pub p95: f64,
    /// 99 of 100 are below.
    pub p99: f64,
    /// None is above.
    pub max: f64,
}

impl Spread {
    /// Of these seconds, nearest rank.
    pub fn of(seconds: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = seconds.into_iter().map(|second| second * 1e3).collect();
        sorted.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let at = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Self {
            mean: sorted.iter().fold(0.0, |sum, value| sum + value) / sorted.len().max(1) as f64,
            median: rank(0.50),
            p90: rank(0.90),
            p95: rank(0.95),
            p99: rank(0.99),
            max: rank(1.0),
        }
    }
}

/// What a run showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Complete answers.
    pub completed: usize,
    /// Everything else but what we left on purpose.
    pub failed: usize,
    /// Requests by how they ended.
    pub outcomes: BTreeMap<Outcome, usize>,
    /// Seconds from the first request to the last answer.
    pub duration: f64,
    /// Prompt tokens of complete answers.
    pub input_tokens: u64,
    /// Of those, tokens from a cache.
    pub cached_tokens: u64,
    /// Tokens of complete answers.
    pub output_tokens: u64,
    /// Complete answers per second.
    pub requests_per_second: f64,
    /// Their tokens per second.
    pub output_tokens_per_second: f64,
    /// Share of prompt tokens from a cache.
    pub cached_share: f64,
    /// Tokens per chunk with text.
    pub tokens_per_chunk: f64,
    /// From sending to the first text.
    pub ttft_ms: Spread,
    /// From when it was due to the first text.
    pub ttft_from_due_ms: Spread,
    /// Time per token after the first.
    pub tpot_ms: Spread,
    /// Between chunks with text.
    pub itl_ms: Spread,
    /// From sending to the end.
    pub e2e_ms: Spread,
    /// From when it was due to the end.
    pub e2e_from_due_ms: Spread,
}

impl Summary {
    /// Of these records of a run that lasted so long. Latencies are those of complete answers.
    pub fn of(records: &[Record], lasted: Duration) -> Self {
        let mut outcomes = BTreeMap::new();
        for record in records {
            *outcomes.entry(record.outcome).or_default() += 1;
        }
        let count = |outcome| outcomes.get(&outcome).copied().unwrap_or(0);
        let (completed, left) = (count(Outcome::Ok), count(Outcome::Cancelled));
        let complete = || {
            records
                .iter()
                .filter(|record| record.outcome == Outcome::Ok)
        };
        let sum = |figure: fn(&Record) -> u64| complete().map(figure).sum::<u64>();
        let [input_tokens, cached_tokens, output_tokens, chunks] = [
            sum(|record| record.prompt_tokens),
            sum(|record| record.cached_tokens),
            sum(|record| record.output_tokens),
            sum(|record| record.chunks() as u64),
        ];
        let seconds = lasted.as_secs_f64().max(f64::EPSILON);
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let spread = |figure: fn(&Record) -> Option<Duration>| {
            Spread::of(complete().filter_map(figure).map(|time| time.as_secs_f64()))
        };
        Self {
            completed,
            failed: records.len() - completed - left,
            duration: lasted.as_secs_f64(),
            input_tokens,
            cached_tokens,
            output_tokens,
            requests_per_second: completed as f64 / seconds,
            output_tokens_per_second: output_tokens as f64 / seconds,
            cached_share: share(cached_tokens, input_tokens),
            tokens_per_chunk: share(output_tokens, chunks),
            ttft_ms: spread(|record| record.ttft),
            ttft_from_due_ms: spread(|record| Some(record.ttft? + record.lateness())),
            tpot_ms: spread(Record::time_per_token),
            itl_ms: Spread::of(
                complete()
                    .flat_map(|record| &record.gaps)
                    .map(|gap| f64::from(*gap)),
            ),
            e2e_ms: spread(|record| Some(record.end_to_end)),
            e2e_from_due_ms: spread(|record| Some(record.end_to_end + record.lateness())),
            outcomes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(outcome: Outcome, late_ms: u64) -> Record {
        Record {
            index: 0,
            session: 0,
            due: Duration::from_millis(100),
            sent: Duration::from_millis(100 + late_ms),
            ttft: Some(Duration::from_millis(20)),
            end_to_end: Duration::from_millis(110),
            gaps: vec![0.03, 0.06],
            outcome,
            status: Some(200),
            prompt_tokens: 100,
            output_tokens: 10,
            cached_tokens: 25,
            error: None,
        }
    }

    #[test]
    fn what_was_late_counts_from_when_it_was_due() {
        let records = [record(Outcome::Ok, 0), record(Outcome::Ok, 40)];
        let summary = Summary::of(&records, Duration::from_secs(2));
        assert!((summary.ttft_ms.p99 - 20.0).abs() < 1e-9);
        assert!((summary.ttft_from_due_ms.p99 - 60.0).abs() < 1e-9);
        assert!((summary.e2e_from_due_ms.median - 110.0).abs() < 1e-9);
        assert!((summary.tpot_ms.mean - 10.0).abs() < 1e-9);
        assert!((summary.itl_ms.max - 60.0).abs() < 1e-3);
        assert!((summary.cached_share - 0.25).abs() < 1e-9);
        assert!((summary.tokens_per_chunk - 20.0 / 6.0).abs() < 1e-9);
    }

    #[test]
    fn only_complete_answers_have_latencies_and_leaving_is_no_failure() {
        let mut slow = record(Outcome::ErrorEvent, 0);
        slow.end_to_end = Duration::from_secs(100);
        let records = [record(Outcome::Ok, 0), slow, record(Outcome::Cancelled, 0)];
        let summary = Summary::of(&records, Duration::from_secs(1));
        assert_eq!((summary.completed, summary.failed), (1, 1));
        assert!(summary.e2e_ms.max < 200.0);
        assert_eq!(summary.outcomes[&Outcome::Cancelled], 1);
    }
}
