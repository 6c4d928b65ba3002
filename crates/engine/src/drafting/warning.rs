//! When to say that drafts are hardly ever accepted.

use std::time::Duration;

use speculation::LOW_ACCEPTANCE;

/// A bad minute is no reason to change anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Saying it more often would only fill the log.
const SILENCE: Duration = Duration::from_secs(600);

/// How long acceptance has been low, and when it was said.
#[derive(Debug, Default)]
pub(super) struct LowAcceptance {
    since: Option<Duration>,
    said: Option<Duration>,
}

impl LowAcceptance {
    /// The acceptance, if it is time to warn of it.
    pub(super) fn is_due(&mut self, now: Duration, acceptance: Option<f64>) -> Option<f64> {
        let Some(low) = acceptance.filter(|&share| share < LOW_ACCEPTANCE) else {
            self.since = None;
            return None;
        };
        let since = *self.since.get_or_insert(now);
        let lasted = now.saturating_sub(since) >= PATIENCE;
        let silent = |said| now.saturating_sub(said) >= SILENCE;
        if !lasted || !self.said.is_none_or(silent) {
            return None;
        }
        self.said = Some(now);
        Some(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn only_lasting_trouble_is_told_and_not_again_and_again() {
        let mut warning = LowAcceptance::default();
        assert_eq!(warning.is_due(seconds(0), Some(0.1)), None);
        assert_eq!(warning.is_due(seconds(59), Some(0.1)), None);
        assert_eq!(warning.is_due(seconds(60), Some(0.1)), Some(0.1));
        assert_eq!(warning.is_due(seconds(600), Some(0.1)), None);
        assert_eq!(warning.is_due(seconds(660), Some(0.1)), Some(0.1));
    }

    #[test]
    fn better_times_start_the_clock_anew() {
        let mut warning = LowAcceptance::default();
        warning.is_due(seconds(0), Some(0.1));
        warning.is_due(seconds(50), Some(0.5));
        assert_eq!(warning.is_due(seconds(70), Some(0.1)), None);
        assert_eq!(warning.is_due(seconds(80), None), None);
    }
}
