//! Threads that carry connections, each on its own.
//!
//! A runtime whose threads share their tasks wakes one of them whenever another has more than one thing to do. That is right for
//! tasks that compute; a relayed stream only waits, and each such wake-up costs more than what is done for it (a fifth of a gateway's
//! processor time, measured). So a request stays in one lane, with a runtime of one thread, from its first byte to its last:
//! nothing is shared between lanes but what requests share anyway. Connections are dealt out in turn to as many lanes as the
//! load asks for ([`Packing`]), and change lanes between two requests when those become more or fewer.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::packing::Packing;

/// How often a lane looks at what it has done. That also keeps requests from ringing a bell: a runtime of one thread rings
/// its own, with two system calls, whenever somebody wants to be woken earlier than everybody else, and requests all want to be
/// looked at after a second ([`crate::relay`]). As long as somebody wants it still earlier, no request does that.
const HEARTBEAT: Duration = Duration::from_millis(100);

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
    deal: Arc<Deal>,
    /// Dropping one ends its lane.
    _open: Vec<oneshot::Sender<()>>,
}

/// Who belongs where.
pub(super) struct Deal {
    handles: Vec<Handle>,
    /// How many of them are to carry connections.
    used: AtomicUsize,
    /// Microseconds that each has worked so far.
    worked: Vec<AtomicUsize>,
}

impl Lanes {
    /// So many of them, each with so many threads for work that blocks.
    pub(super) fn open(count: usize, blocking_threads: usize) -> io::Result<Self> {
        let runtimes = (0..count).map(|_| {
            Builder::new_current_thread()
                .max_blocking_threads(blocking_threads.max(1))
                .thread_name("lane-blocking")
                .enable_all()
                .build()
        });
        let runtimes = runtimes.collect::<io::Result<Vec<_>>>()?;
        let deal = Arc::new(Deal {
            handles: runtimes.iter().map(|one| one.handle().clone()).collect(),
            used: AtomicUsize::new(count),
            worked: (0..count).map(|_| AtomicUsize::new(0)).collect(),
        });
        let mut open = Vec::with_capacity(count);
        for (index, runtime) in runtimes.into_iter().enumerate() {
            let (sender, closed) = oneshot::channel();
            let deal = Arc::clone(&deal);
            thread::Builder::new()
                .name(format!("lane-{}", index + 1))
                .spawn(move || {
                    LANE.set(index + 1);
                    runtime.block_on(async {
                        tokio::select! {
                            // Whether it was told to end or forgotten is the same.
                            _ended = closed => {}
                            () = beat(index, &deal) => {}
                        }
                    });
                    runtime.shutdown_background();
                })?;
            open.push(sender);
        }
        Ok(Self { deal, _open: open })
    }

    pub(super) fn deal(&self) -> Arc<Deal> {
        Arc::clone(&self.deal)
    }
}

impl Deal {
    /// The lane in which the connection of this number belongs now; `None` if there are no lanes.
    pub(super) fn lane_of(&self, number: usize) -> Option<usize> {
        number.checked_rem(self.used.load(Ordering::Relaxed))
    }

    /// From now on so many lanes carry connections.
    pub(super) fn use_lanes(&self, count: usize) {
        self.used.store(count, Ordering::Relaxed);
    }

    pub(super) fn handle(&self, lane: usize) -> Option<&Handle> {
        self.handles.get(lane)
    }

    fn worked(&self) -> Duration {
        let worked = self.worked.iter().map(|one| one.load(Ordering::Relaxed));
        Duration::from_micros(worked.sum::<usize>() as u64)
    }
}

/// Tells the others what this lane has done; the first one decides how many are used.
async fn beat(index: usize, deal: &Deal) {
    let mut packing = Packing::new(deal.handles.len());
    let mut last = (Instant::now(), deal.worked());
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        if let Some(worked) = deal.worked.get(index) {
            worked.store(time_of_this_thread(), Ordering::Relaxed);
        }
        if index == 0 {
            let (now, worked) = (Instant::now(), deal.worked());
            let busy = worked.saturating_sub(last.1).as_secs_f64()
                / (now - last.0).as_secs_f64().max(HEARTBEAT.as_secs_f64());
            last = (now, worked);
            deal.use_lanes(packing.look(busy));
        }
    }
}

/// Microseconds of processor time.
fn time_of_this_thread() -> usize {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    usize::try_from(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_take_turns_and_lanes_know_their_numbers() {
        let lanes = Lanes::open(3, 1).unwrap();
        let deal = lanes.deal();
        let mut seen = Vec::new();
        for number in 0..6 {
            let lane = deal.handle(deal.lane_of(number).unwrap()).unwrap();
            seen.push(lane.spawn(async { current_lane() }).await.unwrap());
        }
        assert_eq!(seen, [1, 2, 3, 1, 2, 3]);
        assert_eq!(current_lane(), 0);
        assert!(Lanes::open(0, 1).unwrap().deal().lane_of(0).is_none());
    }

    #[tokio::test]
    async fn with_one_lane_in_use_all_belong_there() {
        let lanes = Lanes::open(2, 1).unwrap();
        let deal = lanes.deal();
        deal.use_lanes(1);
        assert!((0..5).all(|number| deal.lane_of(number) == Some(0)));
    }

    #[tokio::test]
    async fn closing_a_lane_ends_what_runs_in_it() {
        let lanes = Lanes::open(1, 1).unwrap();
        let lane = lanes.deal().handle(0).unwrap().clone();
        let forever = lane.spawn(std::future::pending::<()>());
        drop(lanes);
        assert!(forever.await.is_err_and(|error| error.is_cancelled()));
    }
}
