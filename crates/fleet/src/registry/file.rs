//! Workers from a file that is read again whenever it changes.
//!
//! The file is a JSON list; an entry is an address or an object with the fields of [`WorkerSpec`]:
//! ```json
//! ["http://10.0.0.7:8000", {"url": "http://10.0.0.8:8000", "pool": "draft"}]
//! ```
//! A file that cannot be read or makes no sense leaves the workers as they are.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

use super::{Registry, Source};
use crate::error::FleetError;
use crate::spec::{DEFAULT_POOL, WorkerSpec, WorkerUrl};

/// The largest file read: a thousand workers with everything there is to say about them.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// How often the file's time stamp is looked at. Asking the file system costs microseconds and works
/// on every kind of it, which notifications do not.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Reads a list of workers.
///
/// # Errors
/// Says what is wrong and where.
///
/// ```
/// # use forespeak_fleet as fleet;
/// let specs = fleet::parse_worker_file(r#"["http://a:1", {"url": "http://b:1", "pool": "draft"}]"#).unwrap();
/// assert_eq!(specs[1].pool, "draft");
/// assert!(fleet::parse_worker_file(r#"[{"url": "http://b:1", "pol": "draft"}]"#).is_err());
/// ```
pub fn parse_worker_file(text: &str) -> Result<Vec<WorkerSpec>, String> {
    let entries: Vec<serde_json::Value> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    entries
        .into_iter()
        .enumerate()
        .map(|(index, entry)| {
            let spec = match entry {
                serde_json::Value::String(url) => WorkerUrl::parse(&url)
                    .map(WorkerSpec::new)
                    .map_err(|error| error.to_string()),
                other => serde_json::from_value(other).map_err(|error| error.to_string()),
            };
            spec.map_err(|error| format!("entry {}: {error}", index + 1))
        })
        .collect()
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

async fn stamp(path: &Path) -> Result<Stamp, String> {
    let facts = tokio::fs::metadata(path)
        .await
        .map_err(|error| error.to_string())?;
    Ok(Stamp {
        modified: facts.modified().ok(),
        bytes: facts.len(),
    })
}

async fn read(path: &Path, bytes: u64) -> Result<Vec<WorkerSpec>, String> {
    if bytes > MAX_FILE_BYTES {
        return Err(format!(
            "{bytes} bytes are over the limit of {MAX_FILE_BYTES}"
        ));
    }
    let text = tokio::fs::read_to_string(path)
        .await
        .map_err(|error| error.to_string())?;
    parse_worker_file(&text)
}

/// The workers that a file lists now; those that name no pool belong to `pool`.
///
/// # Errors
/// If it cannot be read or makes no sense.
pub async fn read_worker_file(path: &str, pool: &str) -> Result<Vec<WorkerSpec>, FleetError> {
    let listed = match stamp(Path::new(path)).await {
        Ok(stamp) => read(Path::new(path), stamp.bytes).await,
        Err(why) => Err(why),
    };
    let listed = listed.map_err(|why| FleetError::File {
        path: path.to_owned(),
        why,
    })?;
    Ok(of_pool(listed, pool))
}

/// Workers that name no pool belong to that of whoever reads the file.
fn of_pool(mut specs: Vec<WorkerSpec>, pool: &str) -> Vec<WorkerSpec> {
    for spec in specs.iter_mut().filter(|spec| spec.pool == DEFAULT_POOL) {
        pool.clone_into(&mut spec.pool);
    }
    specs
}

/// Keeps the registry in step with a file for as long as it is polled.
pub(crate) async fn follow_file(path: String, pool: String, registry: Arc<Registry>) {
    let source = Source::File(path.clone());
    let mut seen: Option<Result<Stamp, String>> = None;
    loop {
        let stamped = stamp(Path::new(&path)).await;
        if seen.as_ref() != Some(&stamped) {
            let outcome = match &stamped {
                Ok(stamp) => read(Path::new(&path), stamp.bytes).await,
                Err(why) => Err(why.clone()),
            };
            let outcome = outcome.map_err(|why| FleetError::File {
                path: path.clone(),
                why,
            });
            let outcome = outcome
                .map(|specs| of_pool(specs, &pool))
                .and_then(|specs| registry.assign(&source, specs, Instant::now().into_std()));
            match outcome {
                Ok(()) => tracing::info!(%path, "took the workers from the file"),
                Err(error) => tracing::error!(%error, "worker file refused"),
            }
            seen = Some(stamped);
        }
        sleep(LOOK_EVERY).await;
    }
}
