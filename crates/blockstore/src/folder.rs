//! Blocks in a folder, a file for each: on this machine's disk, or on a share that other instances see.
//!
//! A file is written aside and then renamed, so that nobody reads half of one; it is not forced to the disk, because
//! a block that is lost or torn by a crash is found out by its seal and computed again. Uses are noted in the files'
//! times. When this instance has written its share, the folder is swept: the longest unused files go, whoever wrote
//! them, until it is a tenth below its bound. So between two sweeps a shared folder may exceed its bound by what the
//! other instances wrote.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use engine::store::{BlockStore, StoreKey, Tier, Written};

/// Ending of a block's file, and of one that is not complete yet.
const ENDING: &str = "kv";
const UNFINISHED: &str = "part";

/// A file that nobody finished for so long was left by somebody who crashed.
const LEFT_BEHIND: Duration = Duration::from_secs(600);

/// A use is noted no more often than this: noting one is a write.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// Larger files are not blocks of ours.
const MAX_FILE: u64 = 64 << 20;

/// After a sweep there is room for a tenth.
const SWEEP_TO: (u64, u64) = (9, 10);

/// Blocks in a folder.
pub struct Folder {
    root: PathBuf,
    tier: Tier,
    limit: u64,
    /// What was there at the last sweep, and what this instance has written since.
    used: AtomicU64,
    next_part: AtomicU64,
}

/// A file found by a sweep.
struct Found {
    path: PathBuf,
    key: Option<StoreKey>,
    bytes: u64,
    used: SystemTime,
}

impl Folder {
    /// A folder for this instance alone; made if there is none.
    ///
    /// # Errors
    /// If it cannot be made or listed.
    pub fn own(root: &Path, limit: u64) -> io::Result<Self> {
        Self::open(root, limit, Tier::Disk)
    }

    /// A folder that instances share.
    ///
    /// # Errors
    /// If it cannot be made or listed.
    pub fn shared(root: &Path, limit: u64) -> io::Result<Self> {
        Self::open(root, limit, Tier::Shared)
    }

    fn open(root: &Path, limit: u64, tier: Tier) -> io::Result<Self> {
        make_private(root)?;
        let folder = Self {
            root: root.to_owned(),
            tier,
            limit,
            used: AtomicU64::new(0),
            next_part: AtomicU64::new(0),
        };
        // Tells at the start, rather than with the first block, whether it can be used.
        fs::read_dir(root)?;
        folder.sweep();
        Ok(folder)
    }

    fn path(&self, key: &StoreKey) -> PathBuf {
        // The first half of a key is the same for all blocks of a model.
        let [.., last] = key.as_bytes();
        self.root
            .join(format!("{last:02x}"))
            .join(format!("{key}.{ENDING}"))
    }

    fn read_one(&self, key: &StoreKey) -> io::Result<Bytes> {
        let mut file = File::open(self.path(key))?;
        let about = file.metadata()?;
        if about.len() > MAX_FILE {
            return Err(io::Error::other("too large for a block"));
        }
        let mut sealed = Vec::with_capacity(about.len() as usize);
        file.read_to_end(&mut sealed)?;
        let age = about.modified()?.elapsed().unwrap_or_default();
        if age > NOTE_EVERY {
            // A folder that may only be read is of use all the same.
            let _ = file.set_modified(SystemTime::now());
        }
        Ok(sealed.into())
    }

    fn write_one(&self, key: &StoreKey, sealed: &[u8]) -> io::Result<()> {
        let path = self.path(key);
        let number = self.next_part.fetch_add(1, Ordering::Relaxed);
        let part = path.with_extension(format!("{}-{number}.{UNFINISHED}", std::process::id()));
        let mut file = match File::create(&part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(parent) = path.parent() {
                    make_private(parent)?;
                }
                File::create(&part)?
            }
            file => file?,
        };
        let written = file
            .write_all(sealed)
            .and_then(|()| fs::rename(&part, &path));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written
    }

    /// Counts what is there, and removes the longest unused if it is too much. Keys of what went.
    fn sweep(&self) -> Vec<StoreKey> {
        let mut files = self.files();
        let mut used: u64 = files.iter().map(|file| file.bytes).sum();
        let mut gone = Vec::new();
        if used > self.limit {
            files.sort_by_key(|file| file.used);
            let target = self.limit / SWEEP_TO.1 * SWEEP_TO.0;
            for file in files {
                if used <= target {
                    break;
                }
                // Another instance may have been faster: gone is gone.
                let _ = fs::remove_file(&file.path);
                used -= file.bytes;
                gone.extend(file.key);
            }
        }
        self.used.store(used, Ordering::Relaxed);
        gone
    }

    fn files(&self) -> Vec<Found> {
        let folders = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten());
        files.flatten().filter_map(|entry| found(&entry)).collect()
    }
}

fn found(entry: &fs::DirEntry) -> Option<Found> {
    let path = entry.path();
    let about = entry.metadata().ok().filter(fs::Metadata::is_file)?;
    let used = about.modified().ok()?;
    let ending = path.extension()?.to_str()?;
    if ending == UNFINISHED && used.elapsed().is_ok_and(|age| age > LEFT_BEHIND) {
        let _ = fs::remove_file(&path);
        return None;
    }
    (ending == ENDING || ending == UNFINISHED).then(|| Found {
        key: path.file_stem().and_then(|name| key_of(name.to_str()?)),
        bytes: about.len(),
        used,
        path,
    })
}

fn key_of(name: &str) -> Option<StoreKey> {
    let mut bytes = [0; StoreKey::BYTES];
    if name.len() != 2 * StoreKey::BYTES || !name.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(name.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(StoreKey::from_bytes(bytes))
}

/// Keys and values tell what tenants said: nobody else has to read them.
fn make_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

impl BlockStore for Folder {
    fn tier(&self) -> Tier {
        self.tier
    }

    fn leading(&self, keys: &[StoreKey], _deadline: Instant) -> usize {
        let there = |key: &&StoreKey| self.path(key).exists();
        keys.iter().take_while(there).count()
    }

    fn read(&self, keys: &[StoreKey], deadline: Instant) -> Vec<Bytes> {
        let in_time = |_: &&StoreKey| Instant::now() < deadline;
        keys.iter()
            .take_while(in_time)
            .map_while(|key| self.read_one(key).ok())
            .collect()
    }

    fn write(&self, blocks: Vec<(StoreKey, Bytes)>) -> Written {
        let mut written = Written::default();
        for (key, sealed) in blocks {
            if self.path(&key).exists() {
                continue;
            }
            let bytes = sealed.len() as u64;
            if bytes > self.limit {
                written.failed += 1;
                continue;
            }
            if self.used.load(Ordering::Relaxed) + bytes > self.limit {
                let gone = self.sweep();
                written
                    .dropped
                    .extend(gone.into_iter().map(|key| (key, None)));
            }
            match self.write_one(&key, &sealed) {
                Ok(()) => {
                    self.used.fetch_add(bytes, Ordering::Relaxed);
                    written.kept.push(key);
                }
                Err(error) => {
                    tracing::debug!(%error, "a KV block could not be written");
                    written.failed += 1;
                }
            }
        }
        written
    }

    fn discard(&self, key: &StoreKey) {
        let _ = fs::remove_file(self.path(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(n: u8, bytes: usize) -> (StoreKey, Bytes) {
        (
            StoreKey::from_bytes([n; StoreKey::BYTES]),
            vec![n; bytes].into(),
        )
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(9)
    }

    #[test]
    fn what_one_instance_writes_another_reads() {
        let root = tempfile::tempdir().unwrap();
        let (one, two) = (
            Folder::shared(&root.path().join("a/b"), 1 << 20).unwrap(),
            Folder::shared(&root.path().join("a/b"), 1 << 20).unwrap(),
        );
        let blocks = vec![block(1, 10), block(2, 20)];
        let keys: Vec<StoreKey> = blocks.iter().map(|(key, _)| *key).collect();
        assert_eq!(one.write(blocks.clone()).kept, keys);
        assert_eq!(two.write(blocks.clone()).kept, []);
        assert_eq!(two.leading(&keys, soon()), 2);
        let read: Vec<Bytes> = blocks.into_iter().map(|(_, sealed)| sealed).collect();
        assert_eq!(two.read(&keys, soon()), read);
        two.discard(&keys[0]);
        assert_eq!(one.leading(&keys, soon()), 0);
        assert!(one.read(&keys[1..], Instant::now()).is_empty(), "too late");
    }

    #[test]
    fn the_longest_unused_files_go_when_it_is_full_whoever_wrote_them() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::own(root.path(), 1000).unwrap();
        for n in 0..9 {
            let (key, sealed) = block(n, 100);
            folder.write(vec![(key, sealed)]);
            let old = SystemTime::now() - Duration::from_secs(1000 - u64::from(n));
            File::open(folder.path(&key))
                .unwrap()
                .set_modified(old)
                .unwrap();
        }
        let again = Folder::own(root.path(), 1000).unwrap();
        assert_eq!(again.used.load(Ordering::Relaxed), 900);
        // Used a moment ago: it stays.
        assert_eq!(again.read(&[block(0, 0).0], soon()).len(), 1);
        let written = again.write(vec![block(20, 150)]);
        assert_eq!(written.dropped, []);
        let written = again.write(vec![block(21, 150)]);
        let dropped: Vec<StoreKey> = written.dropped.into_iter().map(|(key, _)| key).collect();
        assert_eq!(dropped, [block(1, 0).0, block(2, 0).0]);
        let kept: u64 = again.files().iter().map(|file| file.bytes).sum();
        assert!(kept <= 1000, "{kept}");
    }

    #[test]
    fn a_block_larger_than_the_folder_is_not_kept() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::own(root.path(), 100).unwrap();
        assert_eq!(folder.write(vec![block(1, 101)]).failed, 1);
    }

    #[test]
    fn names_are_keys_and_nothing_else_is() {
        let (key, _) = block(0xa7, 0);
        assert_eq!(key_of(&key.to_string()), Some(key));
        assert_eq!(key_of("xyz"), None);
        assert_eq!(key_of(&"é".repeat(StoreKey::BYTES)), None);
    }
}
