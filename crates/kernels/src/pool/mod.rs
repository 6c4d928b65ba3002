//! A pool of threads that share one loop at a time.
//!
//! The steps of a model are many short loops with little between them, so workers spin for a moment before they
//! park, and the caller takes part. Each thread has a share of the chunks, and helps the others when it is through
//! ([`shares`]), so that one that is slow, or whose core is taken by another process, does less. A worker that has not
//! woken when the work runs out is not waited for.
//!
//! One word carries the protocol: the job's number, whether it is open, and how many workers are inside. A worker
//! may look at the job only after it has counted itself in while the job was open; the caller closes the job and
//! waits until nobody is inside, so the job may live on its stack.

mod shares;

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, PoisonError, SharedCell, hint};
use shares::{Chunks, Shares};

/// How long an idle worker spins: longer than the pauses between a step's loops and between steps, in which tokens are
/// chosen and a draft model may run on one thread; shorter than a scheduler's slice. Waking a parked one takes as long as
/// several loops.
const SPIN: Duration = Duration::from_micros(400);
/// Spins between two looks at the clock.
const SPINS_PER_LOOK: usize = 64;
/// How often the caller looks for stragglers before it gives its core away between looks: a straggler may need it.
const SPINS_BEFORE_YIELD: usize = 2_000;

/// The thread whose share the caller takes; workers follow.
const CALLER: usize = 0;

const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;
const NUMBER_SHIFT: u32 = 32;

/// The loop being run, borrowed from the caller's stack for as long as the job is open or occupied.
#[derive(Clone, Copy)]
struct Job {
    work: *const (dyn Fn(Range<usize>) + Sync),
    chunks: Chunks,
}

type Panic = Box<dyn Any + Send>;

struct Shared {
    state: AtomicU64,
    shares: Shares,
    job: SharedCell<Option<Job>>,
    panic: Mutex<Option<Panic>>,
    stopping: AtomicBool,
    /// One flag a worker: set while it is parked or about to park.
    parked: Vec<AtomicBool>,
}

// SAFETY: `job` is written only while the job is closed and nobody is inside, and read only by those inside (see the
// module's text); everything else is atomic or locked.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is followed only while its owner waits in `Pool::run`.
unsafe impl Send for Shared {}

pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held by the one caller whose loop is running; others run theirs alone.
    turn: Mutex<()>,
}

impl Pool {
    /// A pool of `threads` threads, the caller's among them.
    pub(crate) fn new(threads: usize) -> Pool {
        let wanted = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            shares: Shares::new(wanted + 1),
            job: SharedCell::default(),
            panic: Mutex::new(None),
            stopping: AtomicBool::new(false),
            parked: (0..wanted).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut workers = Vec::with_capacity(wanted);
        for index in 0..wanted {
            let shared = Arc::clone(&shared);
            let builder = thread::Builder::new().name(format!("kernels-{index}"));
            // A machine that refuses a thread gets a smaller pool: slower, never wrong.
            match builder.spawn(move || shared.serve(index)) {
                Ok(worker) => workers.push(worker),
                Err(_) => break,
            }
        }
        Pool {
            shared,
            workers,
            turn: Mutex::new(()),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` with runs that make up `0..chunks`, on any thread, and returns when all calls have returned. A panic
    /// in any of them is passed on.
    pub(crate) fn run(&self, chunks: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
        let turn = if chunks > 1 && !self.workers.is_empty() {
            self.turn.try_lock().ok()
        } else {
            None
        };
        let (Some(_turn), Ok(count)) = (turn, u32::try_from(chunks)) else {
            if chunks > 0 {
                work(0..chunks);
            }
            return;
        };
        let shared = &*self.shared;
        // SAFETY: only the lifetime is stretched. No thread follows the pointer once `close` has returned below,
        // and nothing between here and there can unwind.
        let work: *const (dyn Fn(Range<usize>) + Sync) =
            unsafe { std::mem::transmute(std::ptr::from_ref(work)) };
        let job = shared.open(work, count, self.threads());
        for (worker, parked) in self.workers.iter().zip(&shared.parked).take(chunks - 1) {
            if parked.swap(false, Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        shared.take_chunks(job, CALLER);
        shared.close();
        let panic = shared
            .panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(_turn);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker's panics are caught and passed on by `run`, so there is nothing left to hear from it.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn open(&self, work: *const (dyn Fn(Range<usize>) + Sync), count: u32, threads: usize) -> Job {
        let number = ((self.state.load(Ordering::Relaxed) >> NUMBER_SHIFT) as u32).wrapping_add(1);
        let chunks = Chunks {
            job: number,
            count,
            threads: threads as u32,
        };
        let job = Job { work, chunks };
        // SAFETY: the previous job is closed and nobody is inside; the caller's turn keeps other writers out.
        unsafe { self.job.set(Some(job)) };
        // SeqCst orders this store before the caller's look at the `parked` flags; a worker does the same two
        // things the other way round, so one of both sees the other.
        self.state
            .store(u64::from(number) << NUMBER_SHIFT | OPEN, Ordering::SeqCst);
        job
    }

    fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut looks = 0;
        while self.state.load(Ordering::Acquire) & INSIDE != 0 {
            looks += 1;
            if looks < SPINS_BEFORE_YIELD {
                hint::spin_loop()
            } else {
                thread::yield_now()
            }
        }
    }

    /// Counts this thread in if a job other than `last` is open; gives the job's number.
    fn enter(&self, last: u64) -> Option<u64> {
        let mut state = self.state.load(Ordering::SeqCst);
        while state & OPEN != 0 && state >> NUMBER_SHIFT != last {
            match self.state.compare_exchange_weak(
                state,
                state + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(state >> NUMBER_SHIFT),
                Err(now) => state = now,
            }
        }
        None
    }

    fn leave(&self) {
        self.state.fetch_sub(1, Ordering::Release);
    }

    fn take_chunks(&self, job: Job, thread: usize) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the caller of `Pool::run` waits until everyone who took the job has left it.
            let work = unsafe { &*job.work };
            while let Some(run) = self.shares.take(&job.chunks, thread) {
                work(run);
            }
        }));
        if let Err(panic) = outcome {
            // The other threads need not finish a loop whose result is lost.
            self.shares.give_up(&job.chunks);
            self.panic
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(panic);
        }
    }

    /// A worker's life.
    fn serve(&self, index: usize) {
        let mut last = 0;
        while let Some(number) = self.wait(index, last) {
            last = number;
            // SAFETY: this thread is inside, so the job stands still.
            if let Some(job) = unsafe { self.job.get() } {
                self.take_chunks(job, index + 1);
            }
            self.leave();
        }
    }

    /// Waits for a job other than `last` and enters it; `None` when the pool is being dropped.
    fn wait(&self, index: usize, last: u64) -> Option<u64> {
        loop {
            let started = Instant::now();
            // Loom has no clock; it tries parking at once in any case.
            while !cfg!(loom) && started.elapsed() < SPIN {
                for _ in 0..SPINS_PER_LOOK {
                    if let Some(number) = self.enter(last) {
                        return Some(number);
                    }
                    hint::spin_loop();
                }
            }
            let parked = &self.parked[index];
            parked.store(true, Ordering::SeqCst);
            let entered = self.enter(last);
            if entered.is_some() || self.stopping.load(Ordering::SeqCst) {
                parked.store(false, Ordering::SeqCst);
                return entered;
            }
            thread::park();
            parked.store(false, Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::atomic::AtomicUsize as Counter;

    /// Tries all orders of events with so many forced switches between threads; more find nothing new and take hours.
    const SWITCHES: usize = 3;

    fn in_all_orders(scenario: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(SWITCHES);
        model.check(scenario);
    }

    fn run_and_count(pool: &Pool, chunks: usize) {
        let counts: Vec<Counter> = (0..chunks).map(|_| Counter::new(0)).collect();
        pool.run(chunks, &|run| {
            for chunk in run {
                counts[chunk].fetch_add(1, Ordering::Relaxed);
            }
        });
        // Relaxed is enough: whoever worked on it has left before `run` returns.
        assert!(
            counts
                .iter()
                .all(|count| count.load(Ordering::Relaxed) == 1)
        );
    }

    #[test]
    fn every_chunk_runs_once_and_no_worker_sleeps_through_a_job() {
        in_all_orders(|| {
            let pool = Pool::new(2);
            run_and_count(&pool, 2);
            run_and_count(&pool, 2);
        });
    }

    #[test]
    fn two_workers_leave_a_job_before_it_ends() {
        in_all_orders(|| run_and_count(&Pool::new(3), 3));
    }
}
