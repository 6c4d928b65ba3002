//! A decision is a value: built once, shown everywhere.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::policy::Policy;
use crate::worker::WorkerId;

/// Candidates shown in a decision. All workers are weighed; of a large fleet the best are kept, so that a log of
/// decisions stays bounded.
pub const MAX_SHOWN: usize = 16;

/// Room for the terms of the most talkative policy.
const MAX_TERMS: usize = 8;

/// Where a request goes, and why.
///
/// Serialised it reads like
/// `{"policy":"fit","chosen":2,"reason":"worker 2: holds 96 % of the prompt …","candidates":[…],"not_shown":0}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// Who decided.
    pub policy: Policy,
    /// The worker.
    pub chosen: WorkerId,
    /// One sentence for a human.
    pub reason: Reason,
    /// Best first.
    pub candidates: Vec<Candidate>,
    /// Workers weighed but left out above.
    pub not_shown: usize,
}

/// One worker as the policy weighed it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Which worker.
    pub worker: WorkerId,
    /// What the score is made of.
    pub terms: Terms,
    /// Lower is better, in the unit the policy's documentation names.
    pub score: f64,
    /// Why it could not be chosen, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded: Option<Exclusion>,
}

/// Why a worker was not in the running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    /// Unhealthy, draining or ejected.
    NoTraffic,
    /// It would have to evict or preempt running requests to hold this one.
    DoesNotFit,
    /// Too far beyond the others' load.
    Overloaded,
}

/// Named numbers, without allocation: a decision is made for every request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    items: [(&'static str, f64); MAX_TERMS],
    len: usize,
}

impl Terms {
    /// The same terms and one more; beyond the eighth they are dropped.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: f64) -> Self {
        if let Some(slot) = self.items.get_mut(self.len) {
            *slot = (name, value);
            self.len += 1;
        }
        self
    }

    /// In the order in which they were named.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.items.iter().take(self.len).copied()
    }

    /// One by its name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.iter()
            .find(|(term, _)| *term == name)
            .map(|(_, value)| value)
    }
}

impl Serialize for Terms {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// What tipped the balance. Serialised as its sentence.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// It was this worker's turn.
    Turn,
    /// It has the fewest requests.
    LeastLoaded {
        /// Requests on it.
        batch: u32,
    },
    /// It is the session's home.
    Home,
    /// The session's home was too busy; this is the next on its list.
    Overflow {
        /// Workers passed over.
        skipped: usize,
    },
    /// It holds most of the prompt, at a cost no other beats.
    Cached {
        /// Share of the prompt.
        share: f64,
        /// Expected seconds to the first token.
        seconds: f64,
    },
    /// Another holds more of the prompt but is too busy: computing the rest here costs less.
    Relief {
        /// Who holds more.
        holder: WorkerId,
        /// Seconds of cost saved.
        saved: f64,
    },
    /// Another holds more of the prompt but has no room for the rest of it.
    HolderFull {
        /// Who holds more.
        holder: WorkerId,
    },
    /// Nobody holds a useful part; this one answers soonest.
    Soonest {
        /// Expected seconds to the first token.
        seconds: f64,
    },
    /// The product of new tokens and batch is smallest here.
    SmallestProduct,
    /// No worker has room: the one that will have it first.
    NobodyFits,
}

impl Reason {
    /// One word each, for labels; [`Self::word`] is always one of them.
    pub const WORDS: [&'static str; 10] = [
        "turn",
        "least_loaded",
        "home",
        "overflow",
        "cached",
        "relief",
        "holder_full",
        "soonest",
        "smallest_product",
        "nobody_fits",
    ];

    /// Its place in [`Self::WORDS`].
    pub fn number(&self) -> usize {
        match self {
            Self::Turn => 0,
            Self::LeastLoaded { .. } => 1,
            Self::Home => 2,
            Self::Overflow { .. } => 3,
            Self::Cached { .. } => 4,
            Self::Relief { .. } => 5,
            Self::HolderFull { .. } => 6,
            Self::Soonest { .. } => 7,
            Self::SmallestProduct => 8,
            Self::NobodyFits => 9,
        }
    }

    /// One word for it.
    pub fn word(&self) -> &'static str {
        Self::WORDS.get(self.number()).copied().unwrap_or_default()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn => write!(f, "it was its turn"),
            Self::LeastLoaded { batch } => {
                write!(f, "it has the fewest requests ({batch}) for its weight")
            }
            Self::Home => write!(f, "it is the home of this session"),
            Self::Overflow { skipped } => {
                write!(
                    f,
                    "the session's home is too busy; it is number {} on its list",
                    skipped + 1
                )
            }
            Self::Cached { share, seconds } => write!(
                f,
                "it holds {:.0} % of the prompt and should answer within {seconds:.2} s",
                share * 100.0
            ),
            Self::Relief { holder, saved } => write!(
                f,
                "{holder} holds more of the prompt, but is so busy that computing it here saves {saved:.2} s"
            ),
            Self::HolderFull { holder } => {
                write!(
                    f,
                    "{holder} holds more of the prompt, but has no room for the rest of it"
                )
            }
            Self::Soonest { seconds } => {
                write!(
                    f,
                    "nobody holds a useful part of the prompt, and it should answer soonest ({seconds:.2} s)"
                )
            }
            Self::SmallestProduct => {
                write!(f, "new prompt tokens times batch size is smallest there")
            }
            Self::NobodyFits => write!(
                f,
                "no worker has room for the prompt now; it should have it first"
            ),
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} chose {}: {}", self.policy, self.chosen, self.reason)
    }
}

impl Decision {
    /// Orders the candidates (the chosen first, then by score, the excluded last) and keeps the best.
    pub(crate) fn new(
        policy: Policy,
        chosen: WorkerId,
        reason: Reason,
        mut candidates: Vec<Candidate>,
    ) -> Self {
        candidates.sort_by(|a, b| {
            let rank = |c: &Candidate| (c.worker != chosen, c.excluded.is_some());
            rank(a)
                .cmp(&rank(b))
                .then(a.score.total_cmp(&b.score))
                .then(a.worker.cmp(&b.worker))
        });
        let not_shown = candidates.len().saturating_sub(MAX_SHOWN);
        candidates.truncate(MAX_SHOWN);
        Self {
            policy,
            chosen,
            reason,
            candidates,
            not_shown,
        }
    }
}
