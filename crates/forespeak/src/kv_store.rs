//! Where KV blocks lie beyond the engine's memory, from flags to tiers.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockstore::{AddressError, Folder, Memory, Redis};
use engine::store::{BlockStore, Identity, Sharing};
use model::{Compute, KvShape};

use crate::bundled;
use crate::cli::ServeOptions;
use crate::size::{ByteSize, NotASize};

/// Unless said otherwise.
const FOLDER_BYTES: ByteSize = ByteSize(10 << 30);
const REDIS_BYTES: ByteSize = ByteSize(1 << 30);

/// Keeps blocks of those out who do not know it: whoever can write to a shared store could else write blocks.
const SECRET_VARIABLE: &str = "FORESPEAK_KV_STORE_SECRET";

/// None of them shows an address, which may hold a password.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KvStoreError {
    #[error(
        "--kv-store {0:?} is no place for blocks; write memory:4GiB, disk:PATH, dir:PATH or redis://host:6379, \
         each with ?size=… for its bound"
    )]
    NoPlace(String),
    #[error("--kv-store: {0}")]
    Size(#[from] NotASize),
    #[error("--kv-store: {0}")]
    Address(#[from] AddressError),
    #[error("--kv-store {}: {source}; name a folder that can be written", path.display())]
    Folder {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the model {} cannot be read again to name its blocks: {source}", path.display())]
    Model {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// A place for blocks, as it was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    kind: Kind,
    size: ByteSize,
}

/// Near to far.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Memory,
    Disk(PathBuf),
    Shared(PathBuf),
    Redis(String),
}

/// What was named, near to far.
pub(crate) fn places(named: &[String]) -> Result<Vec<Place>, KvStoreError> {
    let places: Result<Vec<Place>, _> = named.iter().map(|text| place(text)).collect();
    let mut places = places?;
    places.sort_by(|a, b| a.kind.cmp(&b.kind));
    Ok(places)
}

fn place(text: &str) -> Result<Place, KvStoreError> {
    let nowhere = || KvStoreError::NoPlace(text.split(':').next().unwrap_or_default().to_owned());
    let (rest, size) = match text.rsplit_once("?size=") {
        Some((rest, size)) => (rest, Some(size.parse::<ByteSize>()?)),
        None => (text, None),
    };
    let (scheme, name) = rest.split_once(':').ok_or_else(nowhere)?;
    let folder = || Some(PathBuf::from(name)).filter(|path| !path.as_os_str().is_empty());
    let (kind, unsaid) = match scheme {
        "memory" => {
            return Ok(Place {
                kind: Kind::Memory,
                size: size.map_or_else(|| name.parse(), Ok)?,
            });
        }
        "disk" => (Kind::Disk(folder().ok_or_else(nowhere)?), FOLDER_BYTES),
        "dir" => (Kind::Shared(folder().ok_or_else(nowhere)?), FOLDER_BYTES),
        _ if name.starts_with("//") => (Kind::Redis(rest.to_owned()), REDIS_BYTES),
        _ => return Err(nowhere()),
    };
    Ok(Place {
        kind,
        size: size.unwrap_or(unsaid),
    })
}

impl Place {
    fn open(&self) -> Result<Arc<dyn BlockStore>, KvStoreError> {
        let bytes = usize::try_from(self.size.0).unwrap_or(usize::MAX);
        let folder = |path: &Path, opened: std::io::Result<Folder>| {
            opened.map_err(|source| KvStoreError::Folder {
                path: path.to_owned(),
                source,
            })
        };
        Ok(match &self.kind {
            Kind::Memory => Arc::new(Memory::new(bytes)),
            Kind::Disk(path) => Arc::new(folder(path, Folder::own(path, self.size.0))?),
            Kind::Shared(path) => Arc::new(folder(path, Folder::shared(path, self.size.0))?),
            Kind::Redis(address) => Arc::new(Redis::new(address, bytes)?),
        })
    }
}

impl fmt::Display for Place {
    /// Without the address of Redis, which may hold a password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Memory => write!(out, "memory")?,
            Kind::Disk(path) => write!(out, "{}", path.display())?,
            Kind::Shared(path) => write!(out, "{} (shared)", path.display())?,
            Kind::Redis(_) => write!(out, "redis (shared)")?,
        }
        write!(out, ", {}", self.size)
    }
}

/// Opens the places, if there are any.
pub(crate) fn sharing(
    places: &[Place],
    options: &ServeOptions,
    compute: &Compute,
    shape: &KvShape,
) -> Result<Option<Sharing>, KvStoreError> {
    if places.is_empty() {
        return Ok(None);
    }
    let tiers: Result<Vec<_>, _> = places.iter().map(Place::open).collect();
    Ok(Some(Sharing {
        identity: identity(options, compute, shape)?,
        tiers: tiers?,
    }))
}

/// Everything that decides what the keys and values of a prompt are, bit by bit.
fn identity(
    options: &ServeOptions,
    compute: &Compute,
    shape: &KvShape,
) -> Result<Identity, KvStoreError> {
    let secret = std::env::var(SECRET_VARIABLE).unwrap_or_default();
    Ok(Identity::new(
        &secret,
        &[
            env!("CARGO_PKG_VERSION"),
            &weights(options.model.model.as_deref())?,
            &format!("{:?}", options.model.quantize),
            &format!("{shape:?}"),
            // Wider instructions add in another order.
            &compute.instructions(),
        ],
    ))
}

/// A hash over the files that a model's numbers come from. They are read whole: two machines that have them under
/// other names, or from other days, must agree, and two that differ in one number must not.
fn weights(path: Option<&Path>) -> Result<String, KvStoreError> {
    let mut hasher = blake3::Hasher::new();
    let Some(path) = path else {
        let bytes = bundled::pair().map_or(&[][..], |pair| pair.target);
        return Ok(hasher.update(bytes).finalize().to_hex().to_string());
    };
    let mut files = vec![path.to_owned()];
    if let Ok(folder) = std::fs::read_dir(path) {
        let matters = |path: &PathBuf| {
            path.extension()
                .is_some_and(|ending| ending == "safetensors" || ending == "json")
        };
        files = folder
            .flatten()
            .map(|entry| entry.path())
            .filter(matters)
            .collect();
        files.sort();
    }
    for file in files {
        let name = file.file_name().map(|name| name.to_string_lossy());
        let read = std::fs::File::open(&file).and_then(|opened| {
            hasher.update(&opened.metadata()?.len().to_le_bytes());
            hasher.update_reader(opened).map(|_| ())
        });
        read.map_err(|source| KvStoreError::Model {
            path: file.clone(),
            source,
        })?;
        // A file's own name may differ between machines; within a folder names tell the parts apart.
        if path.is_dir() {
            hasher.update(name.unwrap_or_default().as_bytes());
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Place {
        place(text).unwrap()
    }

    #[test]
    fn places_are_told_apart_by_their_scheme_and_have_a_bound() {
        assert_eq!(parse("memory:2GiB").size, ByteSize(2 << 30));
        assert_eq!(parse("memory:2GiB").kind, Kind::Memory);
        assert_eq!(parse("disk:/var/kv").size, FOLDER_BYTES);
        assert_eq!(
            parse("dir:/mnt/kv?size=1TiB"),
            Place {
                kind: Kind::Shared("/mnt/kv".into()),
                size: ByteSize(1 << 40),
            }
        );
        assert_eq!(
            parse("redis-cluster://:pw@a:1,b:2?size=3GiB"),
            Place {
                kind: Kind::Redis("redis-cluster://:pw@a:1,b:2".into()),
                size: ByteSize(3 << 30),
            }
        );
        for wrong in [
            "",
            "memory",
            "memory:lots",
            "dir:",
            "disk:?size=1GiB",
            "tape:x",
        ] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn near_places_come_first_however_they_were_named() {
        let named = ["redis://h:1", "dir:/s", "memory:1GiB", "disk:/d"].map(str::to_owned);
        let shown: Vec<String> = places(&named)
            .unwrap()
            .iter()
            .map(Place::to_string)
            .collect();
        assert_eq!(
            shown,
            [
                "memory, 1.0 GiB",
                "/d, 10.0 GiB",
                "/s (shared), 10.0 GiB",
                "redis (shared), 1.0 GiB"
            ]
        );
    }

    #[test]
    fn a_password_is_not_shown() {
        for wrong in ["redis://:hunter2@h:1?size=lots", "redis:/:hunter2@h:1"] {
            let error = place(wrong).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(
            !parse("redis://:hunter2@h:1")
                .to_string()
                .contains("hunter2")
        );
    }

    #[test]
    fn the_same_weights_elsewhere_are_the_same_and_one_other_byte_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            weights(Some(&path)).unwrap()
        };
        let one = file("a.gguf", b"weights");
        assert_eq!(one, file("b.gguf", b"weights"));
        assert_ne!(one, file("c.gguf", b"weightz"));
    }
}
