//! `forespeak check`.

use testkit::mock_vllm::MockConfig;

use crate::support::{Workers, run};

fn check(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(&[&["check"], arguments].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

#[test]
fn healthy_workers_pass_with_advice() {
    let workers = Workers::start(2);
    let (a, b) = (workers.mocks[0].url(), workers.mocks[1].url());
    let (code, text) = check(&["--worker", &a, "--worker", &b]);
    assert_eq!(code, Some(0), "{text}");
    for words in [
        "prefix caching is on",
        "all workers serve mock",
        "all workers cut a sample text into the same tokens",
        "its KV events are not followed",
        "-> start vLLM with --kv-events-config",
        "0 failures",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn events_named_by_flags_have_their_replay() {
    let workers = Workers::start(1);
    let url = workers.mocks[0].url();
    let endpoint = "tcp://{host}:1";
    let events = ["--worker", &url, "--worker-kv-events", endpoint];
    let (_, text) = check(&events);
    assert!(text.contains("no replay of its KV events"), "{text}");
    let (_, text) = check(&[&events[..], &["--worker-kv-replay", endpoint]].concat());
    assert!(!text.contains("no replay of its KV events"), "{text}");
    assert!(
        text.contains("no KV events from tcp://127.0.0.1:1"),
        "{text}"
    );
}

#[test]
fn what_is_wrong_is_told_and_fails() {
    let other = MockConfig {
        model: "other".to_owned(),
        ..MockConfig::default()
    };
    let mut workers = Workers::with([MockConfig::default(), other, MockConfig::default()]);
    let urls: Vec<_> = workers.mocks.iter().map(|mock| mock.url()).collect();
    workers.kill_one();
    let (code, text) = check(&[
        "--worker", &urls[0], "--worker", &urls[1], "--worker", &urls[2],
    ]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("its workers serve different models"),
        "{text}"
    );
    assert!(text.contains("-> start it, or correct its url"), "{text}");
}

#[test]
fn a_bad_file_is_told_with_all_its_problems() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forespeak.toml");
    std::fs::write(&path, "[[pools]]\nname = \"p\"\n[servr]\n").unwrap();
    let (code, text) = check(&["--config", path.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("forespeak.toml:1: pools[0]: the pool has no workers"),
        "{text}"
    );
    assert!(text.contains("did you mean \"server\"?"), "{text}");
}

#[test]
fn schema_and_example_are_printed() {
    let (code, schema) = check(&["--schema"]);
    assert_eq!(code, Some(0));
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    assert!(schema["properties"]["pools"].is_object());
    let (code, example) = check(&["--example"]);
    assert_eq!(code, Some(0));
    assert!(example.contains("[[pools]]"));
}

#[test]
fn workers_from_dns_and_a_file_are_looked_at_too() {
    let workers = Workers::start(2);
    let folder = tempfile::tempdir().unwrap();
    let listed = folder.path().join("workers.json");
    std::fs::write(&listed, format!("[\"{}\"]", workers.mocks[0].url())).unwrap();
    let named = workers.mocks[1].url().replace("127.0.0.1", "localhost");
    let config = folder.path().join("forespeak.toml");
    let pool = format!(
        "[[pools]]\nname = \"p\"\nfile = \"workers.json\"\n[[pools.dns]]\nurl = \"{named}\"\n"
    );
    std::fs::write(&config, pool).unwrap();
    let (_, text) = check(&["--config", config.to_str().unwrap()]);
    for mock in &workers.mocks {
        let answers = format!("{} answers within", mock.url());
        assert!(text.contains(&answers), "{answers}\n{text}");
    }
    std::fs::write(&listed, "{").unwrap();
    let (code, text) = check(&["--config", config.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("workers.json"), "{text}");
}

#[test]
fn a_draft_must_have_the_tokenizer_of_its_target() {
    let models = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let path = |name: &str| models.join(name).display().to_string();
    let (target, draft) = (path("forespeak-target.gguf"), path("forespeak-draft.gguf"));
    let (code, text) = check(&["--model", &target, "--draft", &draft]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("the same tokenizer"), "{text}");
    let goldens = models.join("../crates/model/tests/goldens/llama3");
    let other = goldens.display().to_string();
    let (code, text) = check(&["--model", &target, "--draft", &other]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("different tokenizers"), "{text}");
}
