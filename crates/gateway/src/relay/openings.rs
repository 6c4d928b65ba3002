//! How many connections to a worker are being opened at a time.
//!
//! Thousands of requests may come at once, each of which wants a connection of its own. A worker takes connections out of a queue
//! that its kernel keeps; what does not fit into it is dropped without a word and sent again after a second, and then after two more:
//! by then the time for a handshake is over, and a healthy worker looks dead. So only some handshakes are under way at a time. If their
//! worker's queue overflows nevertheless, it has that second to empty it, for nobody else knocks meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Handshakes with one worker at a time: fewer than the shortest queue that a server would have (128).
const AT_ONCE: usize = 64;

/// Those who open connections, and those who wait for their turn, by the worker's address.
#[derive(Default)]
pub(super) struct Openings {
    by_address: Mutex<HashMap<Box<str>, Arc<Semaphore>>>,
}

/// Somebody's turn to open a connection; dropping it makes it the next one's.
pub(super) struct Turn<'a> {
    openings: &'a Openings,
    address: &'a str,
    permit: Option<OwnedSemaphorePermit>,
}

impl Openings {
    /// Waits for a turn.
    pub(super) async fn turn<'a>(&'a self, address: &'a str) -> Turn<'a> {
        let turns = {
            let mut by_address = self.by_address();
            let new = || Arc::new(Semaphore::new(AT_ONCE));
            Arc::clone(by_address.entry(address.into()).or_insert_with(new))
        };
        Turn {
            openings: self,
            address,
            // It is never closed.
            permit: turns.acquire_owned().await.ok(),
        }
    }

    fn by_address(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Semaphore>>> {
        self.by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut by_address = self.openings.by_address();
        // Nobody looks after workers that have left: what nobody uses or waits for goes.
        let is_last = |turns: &mut Arc<Semaphore>| Arc::get_mut(turns).is_some();
        if by_address.get_mut(self.address).is_some_and(is_last) {
            by_address.remove(self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn so_many_open_connections_at_a_time_and_the_others_wait() {
        let openings = Openings::default();
        let (one, other) = ("one:80", "other:80");
        let mut turns = Vec::new();
        for _ in 0..AT_ONCE {
            turns.push(openings.turn(one).now_or_never().unwrap());
        }
        let next = openings.turn(one);
        tokio::pin!(next);
        assert!(futures_util::poll!(&mut next).is_pending());
        assert!(openings.turn(other).now_or_never().is_some());
        turns.pop();
        drop(next.await);
        drop(turns);
        assert!(openings.by_address().is_empty());
    }

    #[tokio::test]
    async fn who_stops_waiting_takes_nobodys_turn() {
        let openings = Openings::default();
        let worker = "one:80";
        let mut turns = Vec::new();
        for _ in 0..AT_ONCE {
            turns.push(openings.turn(worker).await);
        }
        {
            let impatient = openings.turn(worker);
            tokio::pin!(impatient);
            assert!(futures_util::poll!(&mut impatient).is_pending());
        }
        turns.pop();
        assert!(openings.turn(worker).now_or_never().is_some());
    }
}
