//! What others say of a worker: advice, until we know better.
//!
//! Another gateway that finds a worker dead or failing knows it sooner than we do, but it may be the one that is
//! cut off. So its word makes us look again at once, and until we have seen the worker well ourselves it counts as
//! suspected: as with an open breaker, others are preferred while there are others.

use std::time::Instant;

/// That somebody else finds a worker ill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hearsay {
    /// When they found out. Whoever saw it well after this knows better.
    pub since: Instant,
    /// How long their word counts if it is not renewed.
    pub until: Instant,
}

impl Hearsay {
    /// Whether it still counts against a worker that was last seen well at this time.
    pub fn stands(&self, last_alive: Option<Instant>, now: Instant) -> bool {
        now < self.until && last_alive.is_none_or(|alive| alive < self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn fresher_knowledge_of_our_own_outweighs_it_and_it_ends_by_itself() {
        let since = Instant::now();
        let second = Duration::from_secs(1);
        let said = Hearsay {
            since,
            until: since + 2 * second,
        };
        let now = since + second;
        assert!(said.stands(None, now));
        assert!(said.stands(Some(since - second), now));
        assert!(!said.stands(Some(since), now));
        assert!(!said.stands(Some(now), now));
        assert!(!said.stands(None, said.until));
    }
}
