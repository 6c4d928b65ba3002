//! Which weights and settings stand behind a model's name.
//!
//! A cached answer is good for the model that gave it. Two processes with the same files and settings have the same
//! revision; whoever changes a file, a template or a switch that changes answers has another. Contents are not read:
//! gigabytes would take longer to hash than to load.

use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::cli::ServeOptions;

/// The revision of the model that is served in this process.
pub(crate) fn revision(options: &ServeOptions) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut note = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    note(env!("CARGO_PKG_VERSION"));
    note(&format!("{:?}", options.model.quantize));
    note(&format!("{:?}", options.engine.kv_dtype));
    note(&format!("{:?}", options.model.max_model_len));
    for path in [&options.model.model, &options.model.chat_template] {
        match path {
            Some(path) => files(path, &mut note),
            None => note("bundled"),
        }
    }
    hasher.finalize().to_hex().to_string()
}

/// A file's, or each of a folder's files', name, size and time.
fn files(path: &Path, note: &mut impl FnMut(&str)) {
    let mut names = vec![path.to_owned()];
    if let Ok(folder) = std::fs::read_dir(path) {
        names.extend(folder.flatten().map(|entry| entry.path()));
    }
    names.sort();
    for name in names {
        note(&name.to_string_lossy());
        if let Ok(metadata) = name
            .metadata()
            .and_then(|found| Ok((found.len(), found.modified()?)))
        {
            let (bytes, modified) = metadata;
            let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
            note(&format!("{bytes} {}", since.as_nanos()));
        }
    }
}
