//! Two engines that share KV blocks: through a folder, and through a real `redis-server`.

use std::path::{Path, PathBuf};

use testkit::redis_server::RedisServer;
use testkit::tiny_models::TinyModel;

use crate::support::{Server, eventually, run, send};

struct Engines {
    _folder: tempfile::TempDir,
    model: PathBuf,
}

impl Engines {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("tiny.gguf");
        TinyModel::default().write_gguf(&model).unwrap();
        Self {
            _folder: folder,
            model,
        }
    }

    fn start(&self, store: &str) -> Server {
        Server::with_model("engine", &self.model, &["--kv-store", store])
    }
}

/// The answer to a prompt of a few hundred tokens, as text.
fn answer(server: &Server, salt: Option<&str>) -> String {
    let prompt: Vec<u32> = (0..200).map(|i| 3 + i * 7 % 60).collect();
    let salt = salt.map_or(String::new(), |salt| format!(r#""cache_salt": "{salt}", "#));
    let body = format!(r#"{{{salt}"prompt": {prompt:?}, "max_tokens": 16, "temperature": 0}}"#);
    let answer = server.post("/v1/completions", &body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (_, text) = answer.split_once(r#""text":"#).unwrap();
    let (text, _) = text.split_once(r#"","#).unwrap();
    text.to_owned()
}

fn metric(server: &Server, name: &str, label: &str) -> f64 {
    let page = send(&server.address, "GET", "/metrics", "", "");
    let lines = page.lines();
    let lines = lines.filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
    lines
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

fn loaded(server: &Server) -> f64 {
    metric(server, "forespeak:kv_store_blocks_loaded_total", "shared")
}

fn until_shared(server: &Server) {
    eventually("blocks are shared", || {
        let stored = metric(server, "forespeak:kv_store_blocks_stored_total", "shared");
        (stored >= 12.0).then_some(())
    });
}

/// The second loads what the first computed, a third with another salt does not, and all say the same.
fn blocks_are_shared_through(store: &str) {
    let engines = Engines::new();
    let one = engines.start(store);
    let first = answer(&one, None);
    assert_eq!(loaded(&one), 0.0);
    until_shared(&one);
    let two = engines.start(store);
    assert_eq!(answer(&two, None), first);
    assert_eq!(loaded(&two), 12.0);
    let other_tenant = engines.start(store);
    assert_eq!(answer(&other_tenant, Some("other")), first);
    assert_eq!(loaded(&other_tenant), 0.0);
}

#[test]
fn a_folder_is_shared_and_flipped_bits_cost_time_only() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("dir:{}?size=64MiB", folder.path().display());
    blocks_are_shared_through(&store);

    let engines = Engines::new();
    let one = engines.start(&store);
    let first = answer(&one, None);
    let flipped = finished_blocks(folder.path()).into_iter().map(|path| {
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    });
    assert!(flipped.count() >= 12);
    let two = engines.start(&store);
    assert_eq!(answer(&two, None), first);
    assert_eq!(loaded(&two), 0.0);
    let damaged = metric(&two, "forespeak:kv_store_blocks_rejected_total", "damaged");
    assert!(damaged >= 1.0, "{damaged}");
}

/// Without what an instance that was killed in the middle of writing left behind: nobody loads that.
fn finished_blocks(folder: &Path) -> Vec<PathBuf> {
    let inner = std::fs::read_dir(folder).unwrap().flatten();
    inner
        .flat_map(|entry| std::fs::read_dir(entry.path()).unwrap().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "kv"))
        .collect()
}

#[test]
fn redis_is_shared_and_missed_by_nobody() {
    let redis = RedisServer::start().unwrap();
    let store = format!("{}?size=64MiB", redis.address());
    blocks_are_shared_through(&store);
    let engines = Engines::new();
    let one = engines.start(&store);
    let first = answer(&one, None);
    drop(redis);
    let two = engines.start(&store);
    assert_eq!(answer(&two, None), first);
}

#[test]
fn a_place_that_is_none_is_told_before_the_model_is_read() {
    let output = run(&[
        "engine",
        "--model",
        "/no/model.gguf",
        "--kv-store",
        "tape:7",
    ]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text.contains("--kv-store") && text.contains("dir:PATH"),
        "{text}"
    );
}
