//! What is left of a loop: a share for each thread.
//!
//! A thread takes runs of chunks from its own share, whose counter is in its own cache, and looks at the others' only
//! when it is through: between cores that are far apart, asking for a common counter takes as long as a good part of a
//! chunk. And it begins every loop over as many chunks at the same one, so weights are read by the core that read them
//! in the last step.

use std::ops::Range;

use crate::sync::{AtomicU64, Ordering};

/// A run takes one part in so many of what is left of a share: long ones first, because neighbouring chunks are read
/// as one stream, single ones last, so that a thread that is slow leaves more to others.
const PARTS: usize = 2;

const NUMBER_SHIFT: u32 = 32;

/// A loop whose chunks are handed out.
#[derive(Clone, Copy)]
pub(super) struct Chunks {
    /// Of the job. A counter that has another one says nothing about this job: its share is untouched.
    pub(super) job: u32,
    pub(super) count: u32,
    /// How many shares there are.
    pub(super) threads: u32,
}

impl Chunks {
    fn share(&self, thread: usize) -> Range<usize> {
        let border = |thread: usize| self.count as usize * thread / (self.threads as usize);
        border(thread)..border(thread + 1)
    }
}

/// The first chunk of a share that nobody has taken yet, with the job's number before it. On cache lines of its own,
/// two of which are fetched together.
#[repr(align(128))]
struct Next(AtomicU64);

pub(super) struct Shares(Vec<Next>);

impl Shares {
    pub(super) fn new(threads: usize) -> Shares {
        Shares((0..threads).map(|_| Next(AtomicU64::new(0))).collect())
    }

    /// The next run for a thread; none if all chunks are taken.
    pub(super) fn take(&self, chunks: &Chunks, thread: usize) -> Option<Range<usize>> {
        let threads = chunks.threads as usize;
        (thread..threads)
            .chain(0..thread)
            .find_map(|share| self.take_from(chunks, share))
    }

    fn take_from(&self, chunks: &Chunks, share: usize) -> Option<Range<usize>> {
        let Range { start, end } = chunks.share(share);
        let counter = &self.0[share].0;
        let number = u64::from(chunks.job) << NUMBER_SHIFT;
        let mut seen = counter.load(Ordering::Relaxed);
        loop {
            let next = if seen >> NUMBER_SHIFT == u64::from(chunks.job) {
                (seen ^ number) as usize
            } else {
                start
            };
            if next >= end {
                return None;
            }
            let after = next + ((end - next) / PARTS).max(1);
            match counter.compare_exchange_weak(
                seen,
                number | after as u64,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(next..after),
                Err(now) => seen = now,
            }
        }
    }

    /// Leaves nothing to take.
    pub(super) fn give_up(&self, chunks: &Chunks) {
        let nothing_left = u64::from(chunks.job) << NUMBER_SHIFT | u64::from(chunks.count);
        for counter in &self.0 {
            counter.0.store(nothing_left, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn chunks(job: u32, count: u32) -> Chunks {
        Chunks {
            job,
            count,
            threads: 3,
        }
    }

    #[test]
    fn every_chunk_is_handed_out_once_whoever_asks() {
        let shares = Shares::new(3);
        for (job, count) in (1..).zip([0, 1, 2, 3, 4, 7, 16, 100, 1000]) {
            let chunks = chunks(job, count);
            let mut taken = vec![0; count as usize];
            let mut asking = (0..).map(|turn| turn * turn % 3);
            while let Some(run) = shares.take(&chunks, asking.next().unwrap_or(0)) {
                assert!(!run.is_empty());
                run.for_each(|chunk| taken[chunk] += 1);
            }
            assert!(taken.iter().all(|times| *times == 1), "{count}: {taken:?}");
        }
    }

    #[test]
    fn a_thread_begins_with_its_own_share_in_every_loop() {
        let shares = Shares::new(3);
        for job in 1..4 {
            for thread in 0..3 {
                let run = shares.take(&chunks(job, 30), thread);
                assert_eq!(run, Some(thread * 10..thread * 10 + 5));
            }
        }
    }

    #[test]
    fn a_thread_that_is_through_helps_the_others() {
        let shares = Shares::new(3);
        let mut taken = 0;
        while let Some(run) = shares.take(&chunks(1, 30), 1) {
            taken += run.len();
        }
        assert_eq!(taken, 30);
    }

    #[test]
    fn nothing_is_handed_out_after_giving_up() {
        let shares = Shares::new(3);
        let chunks = chunks(1, 30);
        shares.take(&chunks, 0);
        shares.give_up(&chunks);
        assert!((0..3).all(|thread| shares.take(&chunks, thread).is_none()));
    }
}
