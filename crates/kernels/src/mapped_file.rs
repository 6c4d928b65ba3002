//! Read-only files in memory: the only place that maps one.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;

use memmap2::Mmap;

/// The bytes of a file, mapped or static. Files must not be changed while they are mapped; weight files are not.
pub struct MappedFile {
    bytes: Bytes,
}

enum Bytes {
    Mapped(Mmap),
    Static(&'static [u8]),
}

impl MappedFile {
    /// Maps a file for reading.
    pub fn open(path: &Path) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(MappedFile::from_static(&[]));
        }
        // SAFETY: the map is read-only. A process that truncates or rewrites the file meanwhile breaks every reader
        // of maps alike; weight files are installed once and then left alone.
        let map = unsafe { Mmap::map(&file)? };
        Ok(MappedFile {
            bytes: Bytes::Mapped(map),
        })
    }

    /// Bytes that are part of the program.
    pub fn from_static(bytes: &'static [u8]) -> MappedFile {
        MappedFile {
            bytes: Bytes::Static(bytes),
        }
    }

    /// Says that this range will not be needed again soon, so that packing does not hold file and packed copy in
    /// memory at once. Reading it later is allowed and goes back to the file.
    pub fn forget(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Bytes::Mapped(map) = &self.bytes {
            let end = range.end.min(map.len());
            if range.start < end {
                // SAFETY: the map is read-only and backed by a file, so dropped pages come back unchanged.
                // The call is a hint: there is nothing to do about a refusal.
                let _ = unsafe {
                    map.unchecked_advise_range(
                        memmap2::UncheckedAdvice::DontNeed,
                        range.start,
                        end - range.start,
                    )
                };
            }
        }
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Static(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_ranges_can_be_read_again() {
        let path = std::env::temp_dir().join(format!("kernels-mapped-{}", std::process::id()));
        let content: Vec<u8> = (0..100_000_u32).map(|i| i as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = MappedFile::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.forget(10..99_999);
        file.forget(50_000..usize::MAX);
        assert!(*file == content);
    }

    #[test]
    fn an_empty_file_is_an_empty_slice() {
        let path = std::env::temp_dir().join(format!("kernels-empty-{}", std::process::id()));
        std::fs::write(&path, b"").unwrap();
        assert!(MappedFile::open(&path).unwrap().is_empty());
        std::fs::remove_file(&path).unwrap();
    }
}
