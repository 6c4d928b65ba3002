//! Where arithmetic runs: a tier, a thread pool, and memory for what is multiplied with.

use std::ops::Range;
use std::sync::Arc;

use crate::memory::WeightMemory;
use crate::pool::Pool;
use crate::tier::Tier;

/// A tier and a thread pool, shared by reference by everything that computes. One loop runs at a time; a second
/// caller's loop runs on its own thread alone.
pub struct Compute {
    tier: Tier,
    pool: Arc<Pool>,
    /// Products that read fewer bytes are the caller's alone.
    smallest_shared: usize,
    weight_memory: WeightMemory,
}

/// What a product must read, see [`Compute::for_small_model`], to be worth the time that cores take to hear of it, to
/// fetch what it is about and to hand back what came out: one to eight microseconds, depending on how far apart they are.
const SMALLEST_SHARED: usize = 512 << 10;

impl Compute {
    /// Starts `threads - 1` workers; the calling thread is the last one. A tier that this machine does not have is
    /// lowered to the widest that it has.
    pub fn new(tier: Tier, threads: usize) -> Compute {
        Compute {
            tier: tier.min(Tier::detect()),
            pool: Arc::new(Pool::new(threads)),
            smallest_shared: 0,
            weight_memory: WeightMemory::default(),
        }
    }

    /// The same threads for a model whose weights stay in a core's caches: it hands them only the largest products.
    #[must_use]
    pub fn for_small_model(&self) -> Compute {
        Compute {
            tier: self.tier,
            pool: Arc::clone(&self.pool),
            smallest_shared: SMALLEST_SHARED,
            weight_memory: WeightMemory::default(),
        }
    }

    /// The tier in use.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// What the bits of a result depend on besides the numbers: the instructions of most products, and of those with
    /// bf16 weights.
    pub fn instructions(&self) -> String {
        format!("{}, bf16 {}", self.tier, self.tier.for_bf16())
    }

    /// How many threads work, the caller's among them.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// How many threads a product of `rows` rows should be cut for that reads `bytes` of weights. Two rows take about as
    /// long as one.
    pub(crate) fn threads_for(&self, bytes: usize, rows: usize) -> usize {
        if bytes * rows.div_ceil(2) < self.smallest_shared {
            1
        } else {
            self.threads()
        }
    }

    /// Says that matrices of so many bytes are going to be packed: they are read faster if they lie together. Too
    /// many bytes cost nothing, too few only speed.
    pub fn expect_weights(&self, bytes: usize) {
        self.weight_memory.expect(bytes);
    }

    pub(crate) fn weight_memory(&self) -> &WeightMemory {
        &self.weight_memory
    }

    /// Calls `work(i)` for every `i` in `0..chunks`, in any order and on any of the threads, and returns when all
    /// are done. A panic in `work` is passed on to the caller.
    pub fn run(&self, chunks: usize, work: impl Fn(usize) + Sync) {
        self.pool
            .run(chunks, &|run: Range<usize>| run.for_each(&work));
    }

    /// The same with neighbours in one call, where there is something to gain from doing them together.
    pub(crate) fn run_together(&self, chunks: usize, work: impl Fn(Range<usize>) + Sync) {
        self.pool.run(chunks, &work);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_chunk_runs_exactly_once() {
        let compute = Compute::new(Tier::Scalar, 4);
        for chunks in [0, 1, 2, 3, 7, 64, 1000] {
            let counts: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
            compute.run(chunks, |chunk| {
                counts[chunk].fetch_add(1, Ordering::Relaxed);
            });
            assert!(
                counts
                    .iter()
                    .all(|count| count.load(Ordering::Relaxed) == 1)
            );
        }
    }

    #[test]
    fn a_forced_tier_never_exceeds_the_machine() {
        assert!(Compute::new(Tier::Avx512, 1).tier() <= Tier::detect());
    }

    #[test]
    fn a_small_model_shares_only_its_large_products() {
        let compute = Compute::new(Tier::Scalar, 3);
        assert_eq!(compute.threads_for(1, 1), 3);
        let small = compute.for_small_model();
        assert_eq!(small.threads(), 3);
        assert_eq!(small.threads_for(SMALLEST_SHARED - 1, 2), 1);
        assert_eq!(small.threads_for(SMALLEST_SHARED, 1), 3);
        assert_eq!(small.threads_for(SMALLEST_SHARED / 8, 16), 3);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let compute = Compute::new(Tier::Scalar, 3);
        for _ in 0..20 {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                compute.run(50, |chunk| assert_ne!(chunk, 17, "seventeen"));
            }));
            assert!(outcome.is_err());
            let sum = AtomicUsize::new(0);
            compute.run(10, |chunk| {
                sum.fetch_add(chunk, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 45);
        }
    }

    #[test]
    fn loops_inside_loops_run_on_the_thread_they_are_in() {
        let compute = Compute::new(Tier::Scalar, 3);
        let sum = AtomicUsize::new(0);
        compute.run(8, |_| {
            compute.run(8, |inner| {
                sum.fetch_add(inner, Ordering::Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), 8 * 28);
    }

    #[test]
    fn hand_off_survives_many_short_loops_with_pauses_around_the_spin_time() {
        let compute = Compute::new(Tier::Scalar, 4);
        let mut total = 0;
        for round in 0..20_000_usize {
            let sum = AtomicUsize::new(0);
            let chunks = 2 + round % 7;
            compute.run(chunks, |chunk| {
                sum.fetch_add(chunk + 1, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), chunks * (chunks + 1) / 2, "round {round}");
            // Pauses of 0 to about 540 microseconds end on both sides of the moment at which workers park.
            let micros = 12 * (round % 16) as u64 * (round % 256 / 64) as u64;
            let pause = std::time::Instant::now();
            while pause.elapsed() < std::time::Duration::from_micros(micros) {
                std::hint::spin_loop();
            }
            total += chunks;
        }
        assert!(total > 0);
    }

    #[test]
    fn callers_on_several_threads_do_not_disturb_each_other() {
        let compute = Compute::new(Tier::Scalar, 3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let sum = AtomicUsize::new(0);
                        compute.run(16, |chunk| {
                            sum.fetch_add(chunk, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), 120);
                    }
                });
            }
        });
    }
}
