//! Who may ask. Keys are kept as hashes and compared in constant time, so that neither a memory dump
//! nor a stopwatch gives one away.

use std::path::Path;

use subtle::{Choice, ConstantTimeEq};

use crate::error::GatewayError;

/// The keys that open the door.
#[derive(Debug, Clone, Default)]
pub struct ApiKeys {
    /// None: the door is open.
    hashes: Option<Vec<[u8; blake3::OUT_LEN]>>,
}

impl ApiKeys {
    /// No key is asked for.
    pub fn open() -> Self {
        Self::default()
    }

    /// Only these keys open.
    pub fn only<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        let hashes = keys.into_iter().map(hash).collect();
        Self {
            hashes: Some(hashes),
        }
    }

    /// The keys of a file, one a line; empty lines and lines that start with `#` are skipped.
    pub fn from_file(path: &Path) -> Result<Self, GatewayError> {
        let text = std::fs::read_to_string(path).map_err(|source| GatewayError::ReadKeys {
            path: path.to_owned(),
            source,
        })?;
        let mut keys = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .peekable();
        if keys.peek().is_none() {
            return Err(GatewayError::NoKeys {
                path: path.to_owned(),
            });
        }
        Ok(Self::only(keys))
    }

    /// Whether a request with this key, or none, may pass.
    pub fn allow(&self, key: Option<&str>) -> bool {
        let Some(hashes) = &self.hashes else {
            return true;
        };
        let Some(key) = key else {
            return false;
        };
        let given = hash(key);
        let found = hashes
            .iter()
            .fold(Choice::from(0), |found, known| found | known.ct_eq(&given));
        found.into()
    }
}

fn hash(key: &str) -> [u8; blake3::OUT_LEN] {
    *blake3::hash(key.as_bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_known_keys_open() {
        let keys = ApiKeys::only(["a", "b"]);
        assert!(keys.allow(Some("a")) && keys.allow(Some("b")));
        assert!(!keys.allow(Some("c")) && !keys.allow(Some("")) && !keys.allow(None));
        assert!(ApiKeys::open().allow(None));
    }

    #[test]
    fn a_file_has_one_key_a_line() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "# team\n one \n\ntwo").unwrap();
        let keys = ApiKeys::from_file(file.path()).unwrap();
        assert!(keys.allow(Some("one")) && keys.allow(Some("two")));
        assert!(!keys.allow(Some("# team")));
    }

    #[test]
    fn a_file_without_keys_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(
            ApiKeys::from_file(file.path()),
            Err(GatewayError::NoKeys { .. })
        ));
    }
}
