//! Memory from and to the operating system: large zeroed buffers, aligned to pages and committed when first touched,
//! and what the heap holds without need.

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{MmapOptions, MmapRaw};

/// Linux backs ranges of this size with single pages, if they begin at multiples of it.
const HUGE_PAGE: usize = 2 << 20;
/// Buffers begin at cache lines.
const ALIGNMENT: usize = 64;

/// Zeroed bytes of their own, which may be a part of a larger mapping.
pub(crate) struct Pages {
    region: Arc<Region>,
    start: usize,
    len: usize,
}

/// One mapping, handed out from its start to its end.
struct Region {
    map: MmapRaw,
    used: AtomicUsize,
}

impl Region {
    /// `None` if the operating system refuses.
    fn new(bytes: usize) -> Option<Arc<Region>> {
        // Linux puts mappings of whole huge pages where huge pages can back them.
        let len = if bytes < HUGE_PAGE {
            bytes.max(1)
        } else {
            bytes.checked_next_multiple_of(HUGE_PAGE)?
        };
        let map = MmapOptions::new()
            .len(len)
            .no_reserve_swap()
            .map_anon()
            .ok()?;
        Some(Arc::new(Region {
            map: map.into(),
            used: AtomicUsize::new(0),
        }))
    }

    /// Asks for huge pages: for buffers that are soon written completely and then read from end to end again and
    /// again, where small pages cost a good part of the bandwidth.
    fn ask_for_huge_pages(&self) {
        // Only a hint: a kernel without huge pages refuses it and the buffer works all the same.
        #[cfg(target_os = "linux")]
        let _ = self.map.advise(memmap2::Advice::HugePage);
    }

    /// The next `len` bytes that nobody has; `None` if there are not so many left.
    fn take(self: &Arc<Self>, len: usize) -> Option<Pages> {
        let room = self.map.len();
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |start| {
                let end = start.checked_add(len)?;
                (end <= room).then(|| end.next_multiple_of(ALIGNMENT))
            });
        Some(Pages {
            region: Arc::clone(self),
            start: taken.ok()?,
            len,
        })
    }
}

impl Pages {
    /// Zeroed bytes for which huge pages are asked; `None` if the operating system refuses.
    pub(crate) fn zeroed(bytes: usize) -> Option<Pages> {
        let region = Region::new(bytes)?;
        region.ask_for_huge_pages();
        region.take(bytes)
    }

    /// Bytes of the mapping that these are a part of; that of weights holds all of a model's.
    pub(crate) fn bytes_together(&self) -> usize {
        self.region.map.len()
    }

    /// Takes the memory behind some of the bytes now; they would else be taken when they are first written.
    pub(crate) fn commit(&self, bytes: Range<usize>) {
        debug_assert!(bytes.start <= bytes.end && bytes.end <= self.len);
        // A kernel that cannot do it beforehand does it later.
        #[cfg(target_os = "linux")]
        let _ = self.region.map.advise_range(
            memmap2::Advice::PopulateWrite,
            self.start + bytes.start,
            bytes.len(),
        );
    }
}

/// Where matrices are packed: side by side in one mapping, so that huge pages reach across their borders. Each in
/// a mapping of its own would leave the rest of its last huge page in small pages, half of a small model.
#[derive(Default)]
pub(crate) struct WeightMemory {
    open: Mutex<Option<Arc<Region>>>,
}

impl WeightMemory {
    /// The next matrices will need `bytes` together; memory is committed only as they are packed.
    pub(crate) fn expect(&self, bytes: usize) {
        let region = Region::new(bytes);
        if let Some(region) = &region {
            region.ask_for_huge_pages();
        }
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = region;
    }

    /// Zeroed bytes: of the expected ones, or of their own where those are used up.
    pub(crate) fn zeroed(&self, bytes: usize) -> Option<Pages> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = open.as_ref().and_then(|region| region.take(bytes));
        expected.or_else(|| Pages::zeroed(bytes))
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in the mapping and is this value's own.
        unsafe { std::slice::from_raw_parts(self.region.map.as_ptr().add(self.start), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe {
            std::slice::from_raw_parts_mut(self.region.map.as_mut_ptr().add(self.start), self.len)
        }
    }
}

/// Gives back what the heap has freed but keeps for later: after loading a model that is as much as its vocabulary
/// takes, and it is not needed again.
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it only looks at free memory, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_buffers_lie_side_by_side_and_later_ones_elsewhere() {
        let memory = WeightMemory::default();
        memory.expect(3 << 20);
        let mut buffers: Vec<Pages> = [100, 1 << 20, 65, 64 << 20]
            .into_iter()
            .map(|bytes| memory.zeroed(bytes).unwrap())
            .collect();
        for (index, buffer) in buffers.iter_mut().enumerate() {
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(index as u8 + 1);
        }
        for (index, buffer) in buffers.iter().enumerate() {
            assert!(buffer.iter().all(|byte| *byte == index as u8 + 1));
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
        }
        assert!(Arc::ptr_eq(&buffers[0].region, &buffers[2].region));
        assert!(!Arc::ptr_eq(&buffers[0].region, &buffers[3].region));
    }

    #[test]
    fn sizes_beyond_any_memory_are_refused() {
        assert!(Pages::zeroed(usize::MAX).is_none());
        assert!(Pages::zeroed(usize::MAX / 4).is_none());
        let memory = WeightMemory::default();
        memory.expect(usize::MAX);
        assert!(memory.zeroed(10).is_some());
    }
}
