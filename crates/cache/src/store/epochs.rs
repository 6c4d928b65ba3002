//! Invalidation without looking for what is invalid.
//!
//! A scope (all, a tenant, a model, a context tag) has an epoch; invalidating it raises the epoch. An entry
//! carries the epochs of its scopes from when its question was *asked*, and is good while they are the same: so
//! an answer that was under way while its context was invalidated is not kept either.
//!
//! Epochs live in a fixed number of slots that scopes are hashed to, so that a million context tags take no more
//! room than one. Two scopes that share a slot are invalidated together, which costs time and nothing else.
//! Epochs are times, so gateways need not agree on a counter: the highest wins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::secret::Keys;

/// Slots: with 100 tags invalidated, one entry in ten is lost with them.
pub(crate) const SLOTS: u16 = 1024;

/// The slot of everything. The others are hashed to.
const ALL: u16 = 0;

/// An epoch further ahead of our clock is not believed: it would hide all later ones.
const MAX_AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

/// What is invalidated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Every entry.
    All,
    /// All of a tenant.
    Tenant(&'a str),
    /// All of a model, whoever asked it.
    Model(&'a str),
    /// All of a tenant's with this context tag.
    Context {
        /// Whose.
        tenant: &'a str,
        /// The tag.
        tag: &'a str,
    },
}

/// Where the epochs of an entry's scopes are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots([u16; 4]);

/// The epochs of an entry's scopes at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamp(pub(crate) [u64; 4]);

pub(crate) struct Epochs {
    key: [u8; 32],
    slots: Box<[AtomicU64]>,
}

impl Epochs {
    pub(crate) fn new(keys: &Keys) -> Self {
        Self {
            key: keys.scope,
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn slot(&self, scope: Scope<'_>) -> u16 {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        match scope {
            Scope::All => return ALL,
            Scope::Tenant(name) => hasher.update(b"tenant").update(name.as_bytes()),
            Scope::Model(name) => hasher.update(b"model").update(name.as_bytes()),
            Scope::Context { tenant, tag } => hasher
                .update(b"context")
                .update(&(tenant.len() as u64).to_le_bytes())
                .update(tenant.as_bytes())
                .update(tag.as_bytes()),
        };
        let [first, second, ..] = *hasher.finalize().as_bytes();
        1 + u16::from_le_bytes([first, second]) % (SLOTS - 1)
    }

    pub(crate) fn slots(&self, tenant: &str, model: &str, context: Option<&str>) -> Slots {
        let context = context.map_or(ALL, |tag| self.slot(Scope::Context { tenant, tag }));
        Slots([
            ALL,
            self.slot(Scope::Tenant(tenant)),
            self.slot(Scope::Model(model)),
            context,
        ])
    }

    pub(crate) fn stamp(&self, slots: Slots) -> Stamp {
        Stamp(slots.0.map(|slot| self.get(slot)))
    }

    pub(crate) fn get(&self, slot: u16) -> u64 {
        let slot = self.slots.get(usize::from(slot));
        slot.map_or(0, |epoch| epoch.load(Ordering::Acquire))
    }

    /// Invalidates a slot; its new epoch.
    pub(crate) fn advance(&self, slot: u16) -> u64 {
        let epoch = unix_milliseconds().max(self.get(slot) + 1);
        self.raise(slot, epoch);
        epoch
    }

    /// Takes over an epoch from elsewhere, if it is later and can be believed.
    pub(crate) fn raise(&self, slot: u16, epoch: u64) {
        let latest = unix_milliseconds().saturating_add(MAX_AHEAD.as_millis() as u64);
        if let Some(current) = self.slots.get(usize::from(slot))
            && epoch <= latest
        {
            current.fetch_max(epoch, Ordering::AcqRel);
        }
    }

    /// All slots that were ever invalidated.
    pub(crate) fn known(&self) -> impl Iterator<Item = (u16, u64)> {
        (0..SLOTS)
            .map(|slot| (slot, self.get(slot)))
            .filter(|(_, epoch)| *epoch > 0)
    }
}

pub(crate) fn unix_milliseconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn epochs() -> Epochs {
        Epochs::new(&Secret::from_text("s").keys())
    }

    #[test]
    fn invalidating_a_scope_changes_the_stamps_within_it() {
        let epochs = epochs();
        let slots = epochs.slots("t", "m", Some("c"));
        let tag = Scope::Context {
            tenant: "t",
            tag: "c",
        };
        for scope in [Scope::All, Scope::Tenant("t"), Scope::Model("m"), tag] {
            let before = epochs.stamp(slots);
            let other = epochs.stamp(epochs.slots("u", "n", Some("c")));
            epochs.advance(epochs.slot(scope));
            assert_ne!(epochs.stamp(slots), before, "{scope:?}");
            let is_apart = epochs.stamp(epochs.slots("u", "n", Some("c"))) == other;
            assert_eq!(is_apart, scope != Scope::All, "{scope:?}");
        }
    }

    #[test]
    fn the_highest_epoch_wins_unless_it_is_absurd() {
        let epochs = epochs();
        let first = epochs.advance(3);
        assert!(epochs.advance(3) > first);
        let second = epochs.get(3);
        epochs.raise(3, first);
        epochs.raise(3, u64::MAX);
        epochs.raise(SLOTS, second);
        assert_eq!(epochs.get(3), second);
        assert_eq!(epochs.known().collect::<Vec<_>>(), [(3, second)]);
    }
}
