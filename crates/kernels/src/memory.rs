//! Large zeroed buffers straight from the operating system: aligned to pages, committed when first touched.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Page-aligned zeroed bytes.
pub(crate) struct Pages {
    map: MmapMut,
}

impl Pages {
    /// `None` if the operating system refuses.
    pub(crate) fn zeroed(bytes: usize) -> Option<Pages> {
        let map = MmapMut::map_anon(bytes.max(1)).ok()?;
        Some(Pages { map })
    }

    /// Like [`Pages::zeroed`], asking for huge pages: for buffers that are soon written completely and then read
    /// from end to end again and again, where small pages cost a good part of the bandwidth.
    pub(crate) fn zeroed_huge(bytes: usize) -> Option<Pages> {
        let pages = Pages::zeroed(bytes)?;
        // Only a hint: a kernel without huge pages refuses it and the buffer works all the same.
        #[cfg(target_os = "linux")]
        let _ = pages.map.advise(memmap2::Advice::HugePage);
        Some(pages)
    }
}

impl Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }
}
