//! Since when our own workers have been ill: episodes, so that the others know one from the next.

use std::collections::HashMap;
use std::time::Instant;

use crate::bulletin::{Kind, MAX_TROUBLES, Trouble};
use crate::keys::Name;

#[derive(Debug, Default)]
pub(crate) struct Diary {
    open: HashMap<(Name, Kind), (u64, Instant)>,
    next: u64,
}

impl Diary {
    /// Takes in who is ill now; what is to be told of it.
    pub(crate) fn write(&mut self, ill: &[(Name, Kind)], now: Instant) -> Vec<Trouble> {
        let ill = ill.get(..MAX_TROUBLES).unwrap_or(ill);
        self.open.retain(|key, _| ill.contains(key));
        ill.iter()
            .map(|&(worker, kind)| {
                let next = &mut self.next;
                let (episode, since) = *self.open.entry((worker, kind)).or_insert_with(|| {
                    *next += 1;
                    (*next, now)
                });
                Trouble {
                    worker,
                    kind,
                    episode,
                    age: now.saturating_duration_since(since),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_illness_keeps_its_number_until_it_ends() {
        let mut diary = Diary::default();
        let now = Instant::now();
        let ill = [(Name([1; 16]), Kind::Down)];
        let first = diary.write(&ill, now)[0];
        let later = now + Duration::from_millis(200);
        let again = diary.write(&ill, later)[0];
        assert_eq!((again.episode, again.age), (first.episode, later - now));
        assert!(diary.write(&[], later).is_empty());
        let next = diary.write(&ill, later)[0];
        assert_ne!(next.episode, first.episode);
        assert_eq!(next.age, Duration::ZERO);
        let other = diary.write(&[(Name([1; 16]), Kind::Failing)], later)[0];
        assert_ne!(other.episode, next.episode);
    }
}
