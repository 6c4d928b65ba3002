//! The last bulletin of every gateway, and what follows from all of them.
//!
//! The board is a join: of two bulletins of one gateway the later counts, whatever order they come in and however
//! often. A gateway that says nothing new for [`SILENT_AFTER`] does not count any more; what it has used is
//! remembered for [`FORGOTTEN_AFTER`], so that one that was cut off is not counted twice when it is back.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use crate::bulletin::{Bulletin, GatewayId, Kind, Use};
use crate::keys::Name;

/// A gateway that has said nothing new for so long is not there: ten turns.
pub const SILENT_AFTER: Duration = Duration::from_secs(2);

/// And after so long it never was: a minute forgives all that counts against a rate.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The most gateways that are listened to.
pub const MAX_GATEWAYS: usize = 64;

/// That somebody finds a worker ill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hearsay {
    /// What is wrong with it.
    pub kind: Kind,
    /// When that was found out, by our clock. Whoever saw the worker well after this knows better.
    pub since: Instant,
}

/// What others have used of a tenant's limits since this was last asked.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Elsewhere {
    /// Requests; less than nothing where more was given back.
    pub requests: f64,
    /// Tokens.
    pub tokens: f64,
    /// Of requests, at least so much counts now by the books of a gateway that was here before us.
    pub requests_level: f64,
    /// The same for tokens.
    pub tokens_level: f64,
    /// The tenant's requests that run elsewhere now.
    pub running: u32,
}

/// What is known of one other gateway.
#[derive(Debug)]
struct Heard {
    bulletin: Bulletin,
    at: Instant,
    /// When each of its troubles began, from when it was first heard of.
    began: HashMap<(Name, u64), Instant>,
    /// How much of its use has been counted; `None` before anything has.
    counted: Option<HashMap<Name, (f64, f64)>>,
}

/// What all other gateways say.
#[derive(Debug, Default)]
pub struct Board {
    gateways: BTreeMap<GatewayId, Heard>,
}

impl Board {
    /// Takes in a bulletin. Whether it was news.
    pub fn hear(&mut self, bulletin: Bulletin, now: Instant) -> bool {
        let is_full = self.gateways.len() >= MAX_GATEWAYS;
        match self.gateways.get_mut(&bulletin.gateway) {
            Some(heard) if heard.bulletin.sequence >= bulletin.sequence => return false,
            Some(heard) => {
                heard.began = began(&bulletin, &heard.began, now);
                heard.bulletin = bulletin;
                heard.at = now;
            }
            None if is_full => return false,
            None => {
                let heard = Heard {
                    began: began(&bulletin, &HashMap::new(), now),
                    at: now,
                    counted: None,
                    bulletin,
                };
                self.gateways.insert(heard.bulletin.gateway, heard);
            }
        }
        true
    }

    /// Forgets gateways that were silent for long. Who they were.
    pub fn forget(&mut self, now: Instant) -> Vec<GatewayId> {
        let is_gone = |heard: &Heard| now.saturating_duration_since(heard.at) >= FORGOTTEN_AFTER;
        let gone = self.gateways.iter().filter(|(_, heard)| is_gone(heard));
        let gone: Vec<GatewayId> = gone.map(|(gateway, _)| *gateway).collect();
        self.gateways.retain(|_, heard| !is_gone(heard));
        gone
    }

    fn live(&self, now: Instant) -> impl Iterator<Item = &Heard> {
        let is_live = move |heard: &&Heard| now.saturating_duration_since(heard.at) < SILENT_AFTER;
        self.gateways.values().filter(is_live)
    }

    /// Other gateways that are there.
    pub fn others(&self, now: Instant) -> usize {
        self.live(now).count()
    }

    /// The workers that somebody finds ill. Of several who do, the last to find out has the word: the others are
    /// already answered by whoever has seen the worker well since.
    pub fn troubles(&self, now: Instant) -> HashMap<Name, Hearsay> {
        let mut troubles: HashMap<Name, Hearsay> = HashMap::new();
        for heard in self.live(now) {
            for trouble in &heard.bulletin.troubles {
                let key = (trouble.worker, trouble.episode);
                let hearsay = Hearsay {
                    kind: trouble.kind,
                    since: heard.began.get(&key).copied().unwrap_or(heard.at),
                };
                troubles
                    .entry(trouble.worker)
                    .and_modify(|known| {
                        if (hearsay.since, hearsay.kind) > (known.since, known.kind) {
                            *known = hearsay;
                        }
                    })
                    .or_insert(hearsay);
            }
        }
        troubles
    }

    /// What others have used since this was last asked. Every use is told once, also after a silence.
    pub fn uses(&mut self, now: Instant) -> HashMap<Name, Elsewhere> {
        let mut uses: HashMap<Name, Elsewhere> = HashMap::new();
        for heard in self.gateways.values_mut() {
            let is_live = now.saturating_duration_since(heard.at) < SILENT_AFTER;
            let is_new = heard.counted.is_none();
            let counted = heard.counted.get_or_insert_default();
            for used in &heard.bulletin.uses {
                let elsewhere = uses.entry(used.tenant).or_default();
                let total = (used.requests.total, used.tokens.total);
                let before = counted.insert(used.tenant, total);
                if is_new {
                    elsewhere.reach(used);
                } else {
                    let before = before.unwrap_or_default();
                    elsewhere.requests += total.0 - before.0;
                    elsewhere.tokens += total.1 - before.1;
                }
                if is_live {
                    elsewhere.running = elsewhere.running.saturating_add(used.running);
                }
            }
        }
        uses
    }
}

impl Elsewhere {
    fn reach(&mut self, used: &Use) {
        self.requests_level = self.requests_level.max(used.requests.level);
        self.tokens_level = self.tokens_level.max(used.tokens.level);
    }
}

/// When each trouble began; of those heard of before, as it was reckoned then.
fn began(
    bulletin: &Bulletin,
    before: &HashMap<(Name, u64), Instant>,
    now: Instant,
) -> HashMap<(Name, u64), Instant> {
    let troubles = bulletin.troubles.iter();
    troubles
        .map(|trouble| {
            let key = (trouble.worker, trouble.episode);
            let reckoned = now.checked_sub(trouble.age).unwrap_or(now);
            (key, before.get(&key).copied().unwrap_or(reckoned))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulletin::tests::any_bulletin;
    use crate::bulletin::{Amount, Trouble};
    use proptest::prelude::*;

    const WORKER: Name = Name([1; 16]);
    const TENANT: Name = Name([2; 16]);

    fn said(gateway: u128, sequence: u64) -> Bulletin {
        Bulletin {
            gateway: GatewayId(gateway),
            sequence,
            troubles: Vec::new(),
            uses: Vec::new(),
        }
    }

    fn ill(gateway: u128, sequence: u64, episode: u64, age: u64) -> Bulletin {
        let trouble = Trouble {
            worker: WORKER,
            kind: Kind::Down,
            episode,
            age: Duration::from_millis(age),
        };
        Bulletin {
            troubles: vec![trouble],
            ..said(gateway, sequence)
        }
    }

    fn using(gateway: u128, sequence: u64, total: f64, level: f64) -> Bulletin {
        let amount = Amount { total, level };
        let used = Use {
            tenant: TENANT,
            requests: amount,
            tokens: amount,
            running: 1,
        };
        Bulletin {
            uses: vec![used],
            ..said(gateway, sequence)
        }
    }

    #[test]
    fn a_trouble_began_when_it_was_first_heard_of_less_its_age() {
        let now = Instant::now() + Duration::from_secs(10);
        let mut board = Board::default();
        board.hear(ill(1, 1, 7, 300), now);
        let first = board.troubles(now)[&WORKER].since;
        assert_eq!(first, now - Duration::from_millis(300));
        // Later bulletins repeat it; however late they come, it began when it began.
        let later = now + Duration::from_millis(900);
        board.hear(ill(1, 2, 7, 500), later);
        assert_eq!(board.troubles(later)[&WORKER].since, first);
        board.hear(ill(1, 3, 8, 0), later);
        assert_eq!(board.troubles(later)[&WORKER].since, later);
        board.hear(said(1, 4), later);
        assert!(board.troubles(later).is_empty());
    }

    #[test]
    fn the_silent_do_not_count() {
        let now = Instant::now();
        let mut board = Board::default();
        board.hear(ill(1, 1, 1, 0), now);
        assert_eq!(board.others(now), 1);
        let later = now + SILENT_AFTER;
        // The same again, as Redis keeps it after the gateway's death, is nothing new.
        assert!(!board.hear(ill(1, 1, 1, 0), later));
        assert_eq!(board.others(later), 0);
        assert!(board.troubles(later).is_empty());
        assert_eq!(board.forget(later), []);
        assert_eq!(board.forget(now + FORGOTTEN_AFTER), [GatewayId(1)]);
    }

    #[test]
    fn a_newcomer_takes_over_the_level_and_then_counts_what_is_used() {
        let now = Instant::now();
        let mut board = Board::default();
        board.hear(using(1, 1, 900.0, 40.0), now);
        let first = board.uses(now)[&TENANT];
        assert_eq!((first.requests, first.requests_level), (0.0, 40.0));
        assert_eq!(first.running, 1);
        board.hear(using(1, 2, 905.0, 45.0), now);
        let next = board.uses(now)[&TENANT];
        assert_eq!((next.requests, next.requests_level), (5.0, 0.0));
        assert_eq!(board.uses(now)[&TENANT].requests, 0.0);
    }

    #[test]
    fn what_was_used_in_a_silence_is_counted_when_it_ends() {
        let now = Instant::now();
        let mut board = Board::default();
        board.hear(using(1, 1, 10.0, 10.0), now);
        board.uses(now);
        let later = now + Duration::from_secs(30);
        assert_eq!(board.uses(later)[&TENANT].running, 0);
        board.hear(using(1, 100, 60.0, 50.0), later);
        let after = board.uses(later)[&TENANT];
        assert_eq!((after.requests, after.requests_level), (50.0, 0.0));
    }

    #[test]
    fn more_gateways_than_the_bound_are_not_listened_to() {
        let now = Instant::now();
        let mut board = Board::default();
        for gateway in 0..MAX_GATEWAYS as u128 {
            assert!(board.hear(said(gateway, 1), now));
        }
        assert!(!board.hear(said(1 << 100, 1), now));
        assert!(board.hear(said(0, 2), now));
    }

    /// All of the board that does not depend on when it was heard.
    fn content(board: &Board) -> Vec<Bulletin> {
        let heard = board.gateways.values();
        heard.map(|heard| heard.bulletin.clone()).collect()
    }

    proptest! {
        /// Order and repetition change nothing: of two bulletins with one number the first is kept, so numbers
        /// are made unique, as gateways do.
        #[test]
        fn merging_is_commutative_and_idempotent(
            mut bulletins in proptest::collection::vec(any_bulletin(), 0..12),
            order in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            for (place, bulletin) in bulletins.iter_mut().enumerate() {
                bulletin.sequence = bulletin.sequence * 100 + place as u64;
            }
            let now = Instant::now() + Duration::from_secs(1);
            let mut straight = Board::default();
            for bulletin in &bulletins {
                straight.hear(bulletin.clone(), now);
            }
            let mut shuffled = Board::default();
            if !bulletins.is_empty() {
                for at in order {
                    shuffled.hear(bulletins[at.index(bulletins.len())].clone(), now);
                }
            }
            for bulletin in bulletins.iter().rev() {
                shuffled.hear(bulletin.clone(), now);
            }
            prop_assert_eq!(content(&straight), content(&shuffled));
            prop_assert_eq!(straight.others(now), shuffled.others(now));
        }

        /// However the asking falls between the hearing, all use is told once.
        #[test]
        fn every_use_is_told_once(
            steps in proptest::collection::vec((0..3_u128, 0..20_u32, any::<bool>(), any::<bool>()), 1..60),
        ) {
            let now = Instant::now();
            let mut board = Board::default();
            let mut totals = [0.0; 3];
            let (mut told, mut baseline, mut sequence) = (0.0, 0.0, 0);
            let mut is_known = [false; 3];
            for (gateway, more, is_lost, asks) in steps {
                let at = gateway as usize;
                totals[at] += f64::from(more);
                sequence += 1;
                if !is_lost || !is_known[at] {
                    board.hear(using(gateway, sequence, totals[at], 0.0), now);
                    if !is_known[at] {
                        // Asked at once, so that what came before is the baseline.
                        told += board.uses(now)[&TENANT].requests;
                        is_known[at] = true;
                        baseline += totals[at];
                    }
                }
                if asks {
                    told += board.uses(now).get(&TENANT).map_or(0.0, |used| used.requests);
                }
            }
            for gateway in 0..3_u128 {
                if is_known[gateway as usize] {
                    sequence += 1;
                    board.hear(using(gateway, sequence, totals[gateway as usize], 0.0), now);
                }
            }
            told += board.uses(now).get(&TENANT).map_or(0.0, |used| used.requests);
            let all: f64 = totals.iter().sum();
            prop_assert!((told + baseline - all).abs() < 1e-6, "{told} + {baseline} of {all}");
        }

        #[test]
        fn whatever_was_heard_is_over_after_the_silence(
            bulletins in proptest::collection::vec(any_bulletin(), 0..12),
        ) {
            let now = Instant::now();
            let mut board = Board::default();
            for bulletin in bulletins {
                board.hear(bulletin, now);
            }
            let later = now + SILENT_AFTER;
            prop_assert!(board.troubles(later).is_empty());
            prop_assert!(board.uses(later).values().all(|used| used.running == 0));
            board.forget(now + FORGOTTEN_AFTER);
            prop_assert!(board.gateways.is_empty());
        }
    }
}
