//! Threads that carry connections, each on its own.
//!
//! A runtime whose threads share their tasks wakes one of them whenever another has more than one thing to do. That is right for
//! tasks that compute; a relayed stream only waits, and each such wake-up costs more than what is done for it (a fifth of a gateway's
//! processor time, measured). So every connection stays in one lane, with a runtime of one thread, from its first byte to its last:
//! nothing is shared between lanes but what requests share anyway. Connections are dealt out in turn.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// How often a lane wakes up by itself. A runtime of one thread rings its own bell, with two system calls, whenever somebody
/// wants to be woken earlier than everybody else; requests all want to be looked at after a second ([`crate::relay`]). As long
/// as somebody wants it still earlier, no request does that: two wake-ups a second instead of one for every request.
const HEARTBEAT: Duration = Duration::from_millis(500);

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// The lane that the calling thread is: 0 for all that are none. What belongs to a lane's runtime, such as a socket, is of no
/// use in another.
pub(crate) fn current_lane() -> usize {
    LANE.get()
}

/// Lanes. They end when this is dropped.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    next: AtomicUsize,
}

struct Lane {
    handle: Handle,
    /// Dropping it ends the lane.
    _open: oneshot::Sender<()>,
}

impl Lanes {
    /// So many of them, each with so many threads for work that blocks.
    pub(super) fn open(count: usize, blocking_threads: usize) -> io::Result<Self> {
        let lanes = (1..=count).map(|number| open(number, blocking_threads));
        Ok(Self {
            lanes: lanes.collect::<io::Result<_>>()?,
            next: AtomicUsize::new(0),
        })
    }

    /// The lane whose turn it is; `None` if there are none.
    pub(super) fn next(&self) -> Option<&Handle> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let lane = self.lanes.get(turn.checked_rem(self.lanes.len())?)?;
        Some(&lane.handle)
    }
}

fn open(number: usize, blocking_threads: usize) -> io::Result<Lane> {
    let runtime = Builder::new_current_thread()
        .max_blocking_threads(blocking_threads.max(1))
        .thread_name("lane-blocking")
        .enable_all()
        .build()?;
    let handle = runtime.handle().clone();
    let (open, closed) = oneshot::channel();
    thread::Builder::new()
        .name(format!("lane-{number}"))
        .spawn(move || {
            LANE.set(number);
            runtime.block_on(async {
                tokio::select! {
                    // Whether it was told to end or forgotten is the same.
                    _ended = closed => {}
                    () = beat() => {}
                }
            });
            runtime.shutdown_background();
        })?;
    Ok(Lane {
        handle,
        _open: open,
    })
}

async fn beat() {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lanes_take_turns_and_know_their_numbers() {
        let lanes = Lanes::open(3, 1).unwrap();
        let mut seen = Vec::new();
        for _ in 0..6 {
            let lane = lanes.next().unwrap();
            seen.push(lane.spawn(async { current_lane() }).await.unwrap());
        }
        assert_eq!(seen, [1, 2, 3, 1, 2, 3]);
        assert_eq!(current_lane(), 0);
        assert!(Lanes::open(0, 1).unwrap().next().is_none());
    }

    #[tokio::test]
    async fn closing_a_lane_ends_what_runs_in_it() {
        let lanes = Lanes::open(1, 1).unwrap();
        let forever = lanes.next().unwrap().spawn(std::future::pending::<()>());
        drop(lanes);
        assert!(forever.await.is_err_and(|error| error.is_cancelled()));
    }
}
