//! What passes through the engine's door: messages in, and a place in the queue for each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

use crate::drafting::SpeculationConfig;
use crate::request::{Request, Update};
use crate::sampling::Grammar;
use crate::store::{Loaded, Moved};

/// Names a request inside the engine; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RequestKey(pub(crate) u64);

/// What the engine's thread is told.
pub(crate) enum Message {
    /// A request that passed all checks.
    Submit(Box<Submission>),
    /// Its caller left.
    Cancel(RequestKey),
    /// Forget all cached prefixes.
    ResetPrefixCache,
    /// Speculate in another way.
    Speculate(SpeculationConfig),
    /// What the block store had for a prompt.
    Loaded(Loaded),
    /// What the block store keeps has changed.
    Moved(Moved),
    /// Finish what is there, then end.
    Drain,
    /// End now.
    Stop,
}

/// A checked request on its way into the engine.
pub(crate) struct Submission {
    pub(crate) key: RequestKey,
    pub(crate) request: Request,
    /// Most tokens that each choice may generate.
    pub(crate) max_tokens: usize,
    pub(crate) seed: u64,
    /// One for each choice, or none.
    pub(crate) grammars: Vec<Grammar>,
    pub(crate) submitted: Instant,
    pub(crate) updates: UnboundedSender<Update>,
    /// Given back when the first of its sequences runs.
    pub(crate) place: QueuePlace,
}

/// Cancels its request when dropped, unless disarmed.
#[derive(Debug)]
pub(crate) struct CancelOnDrop {
    key: RequestKey,
    door: Option<Sender<Message>>,
}

impl CancelOnDrop {
    pub(crate) fn new(key: RequestKey, door: Sender<Message>) -> Self {
        Self {
            key,
            door: Some(door),
        }
    }

    /// Nothing is left to cancel.
    pub(crate) fn disarm(&mut self) {
        self.door = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(door) = &self.door {
            // An engine that is gone has freed everything already.
            let _ = door.send(Message::Cancel(self.key));
        }
    }
}

/// One of the `max_queued` places, given back when dropped.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    taken: Arc<AtomicUsize>,
}

impl QueuePlace {
    /// `None` when all places are taken.
    pub(crate) fn take(taken: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        let mut now = taken.load(Ordering::Relaxed);
        loop {
            if now >= limit {
                return None;
            }
            match taken.compare_exchange_weak(now, now + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    return Some(Self {
                        taken: Arc::clone(taken),
                    });
                }
                Err(changed) => now = changed,
            }
        }
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_when_its_request_is_dropped() {
        let taken = Arc::default();
        let first = QueuePlace::take(&taken, 1);
        assert!(first.is_some());
        assert!(QueuePlace::take(&taken, 1).is_none());
        drop(first);
        assert!(QueuePlace::take(&taken, 1).is_some());
    }
}
