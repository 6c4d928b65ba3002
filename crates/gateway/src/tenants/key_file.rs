//! Keys from a file, for those who need no more than a lock on the door.

use std::path::Path;

use super::KeyHash;
use crate::error::GatewayError;

/// The keys of a file, one a line; empty lines and lines that start with `#` are skipped. A line may be a hash
/// (`sha256:…`) instead of a key.
///
/// # Errors
/// If it cannot be read or holds no key.
pub fn read_key_file(path: &Path) -> Result<Vec<KeyHash>, GatewayError> {
    let text = std::fs::read_to_string(path).map_err(|source| GatewayError::ReadKeys {
        path: path.to_owned(),
        source,
    })?;
    let keys: Vec<KeyHash> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| KeyHash::parse(line).unwrap_or_else(|| KeyHash::of(line)))
        .collect();
    if keys.is_empty() {
        return Err(GatewayError::NoKeys {
            path: path.to_owned(),
        });
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_has_one_key_or_hash_a_line() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "# team\n one \n\n{}", KeyHash::of("two")).unwrap();
        let keys = read_key_file(file.path()).unwrap();
        assert_eq!(keys, [KeyHash::of("one"), KeyHash::of("two")]);
    }

    #[test]
    fn a_file_without_keys_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(
            read_key_file(file.path()),
            Err(GatewayError::NoKeys { .. })
        ));
    }
}
