//! Prompts that went out, until the other gateways are told.

use std::sync::Arc;

use fleet::Worker;
use routing::index::Source;
use routing::keys::BlockKey;

use super::Pool;
use super::reading::Prompt;

/// Prompts that wait; more are not told. Some hundreds a turn say enough of where a load goes.
const MAX_WAITING: usize = replicas::MAX_PREFIXES;

#[derive(Default)]
pub(super) struct Sent(Vec<(Arc<Worker>, Arc<Prompt>)>);

impl Sent {
    pub(super) fn note(&mut self, worker: &Arc<Worker>, prompt: &Arc<Prompt>) {
        if self.0.len() < MAX_WAITING && !prompt.keys.is_empty() {
            self.0.push((Arc::clone(worker), Arc::clone(prompt)));
        }
    }
}

impl Pool {
    /// Where prompts went since this was last asked: workers, and the keys of the prompts' first blocks.
    pub(crate) fn take_sent(&self) -> Vec<(Arc<Worker>, Vec<u64>)> {
        let waiting = {
            let mut desk = self.shared.desk();
            let sent = desk.books.sent.as_mut();
            sent.map(|sent| std::mem::take(&mut sent.0))
        };
        let waiting = waiting.into_iter().flatten();
        waiting
            .map(|(worker, prompt)| {
                let keys = prompt.keys.iter().take(replicas::MAX_BLOCKS);
                (worker, keys.map(|key| key.0).collect())
            })
            .collect()
    }

    /// Another gateway sent a prompt to a worker. One whose own events we hear tells us better itself.
    pub(crate) fn hear_of_prompt(&self, worker: &Worker, keys: &[u64]) {
        let keys: Vec<BlockKey> = keys.iter().copied().map(BlockKey).collect();
        let now = self.shared.now();
        let mut desk = self.shared.desk();
        let books = &mut desk.books;
        let account = books.account(worker.id());
        let account = account.filter(|account| account.source == Source::Expectation);
        if let Some(cache) = account.and_then(|account| account.cache(None)) {
            books.index.expect(cache, &keys, now.since_start);
        }
    }
}
