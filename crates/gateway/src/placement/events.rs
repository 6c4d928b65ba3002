//! The prefix index hears what workers say about their caches, and somebody watches that they do.
//!
//! A worker that is configured to send KV events and does not is worse than one without: its cache would
//! look empty for ever. So silence is noticed, told in the log and by a metric, and until it ends the index
//! goes by what was sent there.

use std::sync::Arc;
use std::time::Duration;

use fleet::{KvChange, KvUpdate, Worker, WorkerId};
use protocol::kv_events::{Adapter, BlockStored, ExtraKey, KvEvent};
use routing::index::{CacheId, Medium, Source, Stored};
use routing::keys::{KeySeed, Root};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::books::{Books, Now};
use super::shared::Shared;

/// How often silence is looked for.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// How long a subscriber may be without connection: longer than a restart of ours or a lost packet takes.
const DISCONNECTED_FOR: Duration = Duration::from_secs(5);

/// Prompts with new blocks after which a worker must have announced something.
const SILENT_PROMPTS: u32 = 8;

/// Prompts in a row announced without the cache salts that we sent: the worker's version does not tell
/// them, and nothing it says can be found again.
const UNSALTED_PROMPTS: u32 = 8;

/// And the time for it: a long prefill announces nothing before its first step ends.
const SILENT_FOR: Duration = Duration::from_secs(30);

/// Takes in what workers say, for as long as anybody speaks.
pub(super) async fn follow(
    shared: Arc<Shared>,
    seed: KeySeed,
    mut updates: mpsc::Receiver<KvUpdate>,
) {
    while let Some(update) = updates.recv().await {
        let (worker, rank) = (update.worker, update.rank);
        match update.change {
            // One event at a time: between two of them requests are placed.
            KvChange::Batch(batch) => {
                for event in &batch.events {
                    take_in(&shared, seed, (worker, rank), event);
                }
            }
            KvChange::Forget(_) => {
                let now = shared.now().since_start;
                let books = &mut shared.desk().books;
                if let Some(cache) = books.cache(worker, rank) {
                    books.index.cleared(cache, now);
                }
            }
            KvChange::Gone => shared.desk().gone(worker),
        }
    }
}

pub(super) fn take_in(
    shared: &Shared,
    seed: KeySeed,
    (worker, rank): (WorkerId, u32),
    event: &KvEvent,
) {
    let now = shared.now().since_start;
    let mut desk = shared.desk();
    let Some(cache) = desk.books.cache(worker, rank) else {
        return;
    };
    if let Some(account) = desk.books.account_mut(worker) {
        account.unannounced = 0;
        match event {
            KvEvent::Stored(stored) if names(stored).next().is_some() => account.unsalted = 0,
            // Only the blocks themselves are announced with their salt.
            KvEvent::Stored(stored)
                if stored.parent_block_hash.is_none()
                    && stored.medium == protocol::kv_events::Medium::Resident =>
            {
                account.unsalted += 1;
            }
            _ => {}
        }
    }
    let index = &mut desk.books.index;
    match event {
        KvEvent::Stored(stored) => {
            let Some(medium) = medium(stored.medium) else {
                return;
            };
            let event = Stored {
                parent: stored.parent_block_hash,
                root: root(seed, stored),
                hashes: &stored.block_hashes,
                tokens: &stored.token_ids,
                block_tokens: stored.block_size as usize,
                medium,
            };
            // What cannot be placed is counted by the index, and shown by the metrics.
            let _counted = index.stored(cache, event, now);
        }
        KvEvent::Removed {
            block_hashes,
            medium: from,
        } => {
            if let Some(medium) = medium(*from) {
                index.removed(cache, block_hashes, medium, now);
            }
        }
        KvEvent::Cleared => index.cleared(cache, now),
    }
}

/// `None` for a place that this version does not know: nobody can say what its blocks are worth.
fn medium(told: protocol::kv_events::Medium) -> Option<Medium> {
    use protocol::kv_events::Medium as Told;
    match told {
        Told::Resident => Some(Medium::Resident),
        Told::Host => Some(Medium::Host),
        Told::Storage => Some(Medium::Storage),
        Told::Shared => Some(Medium::Shared),
        Told::Unknown => None,
    }
}

/// Salt and adapter of a prompt's first block. Among what tells blocks apart vLLM has both without saying which is which,
/// the adapter first; beside it stands which adapter it was, so whatever is left is the salt.
fn root(seed: KeySeed, stored: &BlockStored) -> Root {
    let mut names = names(stored).peekable();
    match &stored.adapter {
        Adapter::None => Root::new(seed, names.next().unwrap_or_default(), None),
        Adapter::Named(adapter) => {
            names.next_if(|name| name == adapter);
            Root::new(seed, names.next().unwrap_or_default(), Some(adapter))
        }
        // Nobody asks for an adapter by number: what it computed is kept apart, and found by nobody.
        Adapter::Numbered(number) => {
            let nameless = format!("\0{number}");
            Root::new(seed, names.next().unwrap_or_default(), Some(&nameless))
        }
    }
}

/// What the first of these blocks is told apart by besides its tokens.
fn names(stored: &BlockStored) -> impl Iterator<Item = &str> {
    let keys = stored.extra_keys.first().into_iter().flatten();
    keys.filter_map(|key| match key {
        ExtraKey::Text(name) => Some(name.as_str()),
        ExtraKey::Placed(..) | ExtraKey::Unknown => None,
    })
}

/// Watches that events come, for as long as it is polled.
pub(super) async fn watch(shared: Arc<Shared>) {
    let knows_tokens = shared.reader.knows_tokens();
    let mut ticks = interval(WATCH_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (now, fleet) = (shared.now(), shared.registry().snapshot());
        let changed = {
            let mut desk = shared.desk();
            desk.books.catch_up(&fleet, now);
            desk.books.look_for_silence(knows_tokens, now)
        };
        for (worker, flaw) in changed {
            let (pool, worker) = (&*shared.pool, worker.name());
            match flaw {
                Some(why) => tracing::warn!(
                    pool,
                    worker,
                    why,
                    "no use of kv events: routing to this worker goes by what was sent there"
                ),
                None => tracing::info!(pool, worker, "kv events are coming in"),
            }
        }
    }
}

impl Books {
    /// The cache that a rank's events are about. A worker without ranks may itself be one of several elsewhere, and tell
    /// its number among them.
    fn cache(&self, worker: WorkerId, told_rank: u32) -> Option<CacheId> {
        let ranks = self.account(worker)?.worker.spec().ranks();
        let rank = if ranks == 1 { 0 } else { told_rank };
        let rank = u16::try_from(rank).ok().filter(|rank| *rank < ranks)?;
        Some(CacheId { worker, rank })
    }

    /// Decides for every worker what its cache is known by; returns those for which that has changed, and
    /// what is wrong with their events.
    fn look_for_silence(
        &mut self,
        knows_tokens: bool,
        now: Now,
    ) -> Vec<(Arc<Worker>, Option<&'static str>)> {
        let mut changed = Vec::new();
        let (accounts, index) = self.accounts_and_index();
        for account in accounts {
            let worker = &account.worker;
            if worker.spec().events.is_none() || !worker.condition(now.instant).is_healthy() {
                continue;
            }
            let since = |then: Duration| now.since_start.saturating_sub(then);
            let connected = worker.events.read().connected > 0;
            if connected {
                account.events_heard = now.since_start;
            }
            let last_event = index
                .knowledge(worker.id())
                .and_then(|known| known.last_event);
            let silent = account.unannounced >= SILENT_PROMPTS
                && last_event.is_none_or(|last| since(last) > SILENT_FOR);
            let flaw = if !knows_tokens {
                Some("the model's tokenizer is not known here: name it in the configuration")
            } else if since(account.events_heard) > DISCONNECTED_FOR {
                Some("nobody answers at their endpoint: check the worker's --kv-events-config")
            } else if silent {
                Some("none come although prompts are sent: check the worker's --kv-events-config")
            } else if account.sent_salted && account.unsalted >= UNSALTED_PROMPTS {
                Some("they do not tell cache salts: use a newer version of the worker")
            } else {
                None
            };
            let source = match (flaw, connected) {
                (Some(_), _) => Source::Expectation,
                (None, true) => Source::Events,
                (None, false) => account.source,
            };
            if account.events_missing != flaw.is_some() || account.source != source {
                account.events_missing = flaw.is_some();
                changed.push((Arc::clone(worker), flaw));
            }
            if account.source != source {
                account.source = source;
                account.introduce_to(index);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: KeySeed = KeySeed(3);

    fn stored(adapter: Adapter, keys: &[&str]) -> BlockStored {
        let text = |key: &&str| ExtraKey::Text((*key).to_owned());
        BlockStored {
            extra_keys: vec![keys.iter().map(text).collect()],
            adapter,
            ..BlockStored::default()
        }
    }

    fn named(adapter: &str) -> Adapter {
        Adapter::Named(adapter.to_owned())
    }

    #[test]
    fn an_adapters_blocks_are_found_by_its_requests_with_a_salt_and_without() {
        for (adapter, keys, salt, asked) in [
            (Adapter::None, vec![], "", None),
            (Adapter::None, vec!["salt"], "salt", None),
            (named("sql"), vec!["sql"], "", Some("sql")),
            (named("sql"), vec!["sql", "salt"], "salt", Some("sql")),
            // A version that tells the adapter apart in a way we do not know.
            (named("sql"), vec!["salt"], "salt", Some("sql")),
            (named("sql"), vec![], "", Some("sql")),
        ] {
            let told = root(SEED, &stored(adapter.clone(), &keys));
            let wanted = Root::new(SEED, salt, asked);
            assert!(told == wanted, "{adapter:?} {keys:?}");
        }
    }

    #[test]
    fn an_adapter_known_by_number_only_is_nobodys() {
        let told = root(SEED, &stored(Adapter::Numbered(1), &[]));
        for asked in [None, Some("1"), Some("sql")] {
            assert!(told != Root::new(SEED, "", asked));
        }
        assert!(told != root(SEED, &stored(Adapter::Numbered(2), &[])));
    }
}
