//! A model in this process.

use std::path::Path;

use serde_json::Value;
use testkit::tiny_models::TinyModel;

use crate::support::{Server, run, send};

#[test]
fn a_gguf_file_is_served_and_sigterm_ends_it_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny-llama.gguf");
    TinyModel::default().write_gguf(&path).unwrap();
    let server = Server::with_model("serve", &path, &[]);
    assert!(
        server.banner.contains("serves tiny-llama"),
        "{}",
        server.banner
    );
    let chat = r#"{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}"#;
    let answer = server.post("/v1/chat/completions", chat);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains(r#""model":"tiny-llama""#), "{answer}");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_folder_is_served_as_a_worker_under_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny");
    TinyModel::default().write_folder(&path).unwrap();
    let more = [
        "--served-model-name",
        "one,two",
        "--quantize",
        "q8_0",
        "--kv-dtype",
        "int8",
    ];
    let server = Server::with_model("engine", &path, &more);
    assert!(
        server.banner.contains("is a worker for one"),
        "{}",
        server.banner
    );
    let completion = r#"{"model": "two", "prompt": "hello", "max_tokens": 4}"#;
    let answer = server.post("/v1/completions", completion);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains(r#""model":"one""#), "{answer}");
}

/// An answer, and how many tokens were drafted for it, accepted or not.
fn answer_and_drafted(server: &Server) -> (String, u64) {
    let question = r#"{"prompt": "hello", "max_tokens": 64, "temperature": 0, "ignore_eos": true,
        "speculative": {"usage": true}}"#;
    let body = body(&server.post("/v1/completions", question));
    let details = &body["usage"]["completion_tokens_details"];
    let count = |name: &str| details[name].as_u64().unwrap();
    let text = body["choices"][0]["text"].as_str().unwrap().to_owned();
    let accepted = count("accepted_prediction_tokens");
    (text, accepted + count("rejected_prediction_tokens"))
}

fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

#[test]
fn an_operator_changes_how_a_worker_speculates_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TinyModel::default().write_gguf(&path).unwrap();
    let more = ["--admin-listen", "127.0.0.1:0", "--drafter", "off"];
    let server = Server::with_model("engine", &path, &more);
    let admin = |method: &str, path: &str, body: &str| {
        let answer = send(server.admin(), method, path, "", body);
        let (head, _) = answer.split_once("\r\n").unwrap();
        (head.to_owned(), answer)
    };
    let (_, shown) = admin("GET", "/admin/speculation", "");
    assert_eq!(body(&shown)["drafter"], "off", "{shown}");
    let (expected, drafted) = answer_and_drafted(&server);
    assert_eq!(drafted, 0);

    let change = r#"{"drafter": "ngram", "depth": 3}"#;
    let (_, changed) = admin("POST", "/admin/speculation", change);
    assert_eq!(body(&changed)["law"], "fixed:3", "{changed}");
    let (text, drafted) = answer_and_drafted(&server);
    assert_eq!(text, expected);
    assert!(drafted > 0);

    // Nobody is behind a worker, and nothing of it can be read again.
    for (method, path, status, says) in [
        ("GET", "/admin/workers", "200", r#""pools":[]"#),
        ("POST", "/admin/workers", "404", "there is no pool"),
        ("GET", "/admin/decisions", "200", r#""decisions":[]"#),
        ("GET", "/admin/tenants", "200", "anonymous"),
        ("GET", "/admin/config", "200", "127.0.0.1:0"),
        ("GET", "/admin/cache", "404", "--cache memory"),
        ("POST", "/admin/reload", "400", "other flags"),
    ] {
        let (head, answer) = admin(method, path, r#"{"url": "http://a:1"}"#);
        assert!(head.contains(status), "{method} {path}: {answer}");
        assert!(answer.contains(says), "{method} {path}: {answer}");
    }
    let (wrong, answer) = admin("POST", "/admin/speculation", r#"{"drafter": "model"}"#);
    assert!(wrong.contains("400"), "{answer}");
    assert!(answer.contains("start with --draft PATH"), "{answer}");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_draft_that_nobody_asked_at_the_start_can_be_asked_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TinyModel::default().write_gguf(&path).unwrap();
    let draft = path.to_str().unwrap();
    let more = [
        "--draft",
        draft,
        "--drafter",
        "off",
        "--admin-listen",
        "127.0.0.1:0",
        // The same question is to be computed again.
        "--cache",
        "off",
    ];
    let server = Server::with_model("serve", &path, &more);
    assert!(
        server.banner.contains("off; a draft model waits"),
        "{}",
        server.banner
    );
    let (expected, drafted) = answer_and_drafted(&server);
    assert_eq!(drafted, 0);
    let change = r#"{"drafter": "model", "depth": 3}"#;
    let changed = send(server.admin(), "POST", "/admin/speculation", "", change);
    assert_eq!(body(&changed)["draft_model"], true, "{changed}");
    let (text, drafted) = answer_and_drafted(&server);
    assert_eq!(text, expected);
    assert!(drafted > 32, "{drafted}");
}

#[test]
fn a_draft_in_four_bits_guesses_for_a_target_in_eight() {
    let folder = tempfile::tempdir().unwrap();
    let weights = TinyModel {
        // Rows of whole blocks, or there is nothing to be made so small.
        dim: 256,
        feed_forward: 256,
        ..TinyModel::default()
    };
    weights.write_folder(folder.path()).unwrap();
    let ask = |more: &[&str]| {
        let target = ["--quantize", "q8_0"];
        let server = Server::with_model("serve", folder.path(), &[&target, more].concat());
        let question = r#"{"prompt": "hello", "max_tokens": 64, "temperature": 0, "ignore_eos": true,
            "speculative": {"usage": true}}"#;
        let answer = server.post("/v1/completions", question);
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        let details = &body["usage"]["completion_tokens_details"];
        let count = |name: &str| details[name].as_u64().unwrap();
        let text = body["choices"][0]["text"].as_str().unwrap().to_owned();
        let accepted = count("accepted_prediction_tokens");
        (text, accepted, count("rejected_prediction_tokens"))
    };
    let draft = folder.path().to_str().unwrap();
    let drafting = ["--draft", draft, "--drafter=model", "--speculation=fixed:3"];
    let (expected, _, _) = ask(&["--drafter", "off"]);

    // As many bits as the target, and the same weights: they always agree.
    let (text, accepted, rejected) = ask(&drafting);
    assert_eq!(text, expected);
    assert!(accepted > 32 && rejected == 0, "{accepted} and {rejected}");

    // Fewer bits: often.
    let (text, accepted, rejected) = ask(&[&drafting[..], &["--draft-quantize", "q4_k"]].concat());
    assert_eq!(text, expected);
    assert!(accepted > 16 && rejected > 0, "{accepted} and {rejected}");
}

/// A model in `folder` that means "b" by the id of "a", and the other way round.
fn write_with_foreign_tokens(folder: &Path) {
    TinyModel::default().write_folder(folder).unwrap();
    let file = folder.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let vocabulary = &mut tokenizer["model"]["vocab"];
    let (a, b) = (vocabulary["a"].take(), vocabulary["b"].take());
    vocabulary["a"] = b;
    vocabulary["b"] = a;
    std::fs::write(&file, tokenizer.to_string()).unwrap();
}

#[test]
fn what_cannot_be_served_is_told_without_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.gguf");
    std::fs::write(&broken, b"GGUF but not really").unwrap();
    let fine = folder.path().join("fine.gguf");
    TinyModel::default().write_gguf(&fine).unwrap();
    let foreign = folder.path().join("foreign");
    write_with_foreign_tokens(&foreign);
    let (broken, fine) = (broken.to_str().unwrap(), fine.to_str().unwrap());
    let foreign = foreign.to_str().unwrap();
    let tenants = folder.path().join("tenants.toml");
    let tenant = "[[tenants]]\nname = \"t\"\nanonymous = true\n";
    std::fs::write(&tenants, tenant).unwrap();
    let tenants = tenants.to_str().unwrap();
    for (arguments, word) in [
        (
            vec!["serve", "--model", "/no/such/model.gguf"],
            "/no/such/model.gguf",
        ),
        (vec!["serve", "--model", broken], "broken.gguf"),
        (
            vec!["serve", "--model", fine, "--max-model-len", "999999"],
            "--max-model-len",
        ),
        (
            vec!["serve", "--model", fine, "--kv-cache-memory", "10"],
            "--kv-cache-memory",
        ),
        (
            vec!["serve", "--model", fine, "--api-key-file", "/no/keys"],
            "/no/keys",
        ),
        (
            vec!["serve", "--config", tenants, "--api-key-file", "/no/keys"],
            "move the keys to one of them",
        ),
        (
            vec!["engine", "--model", fine, "--shared", "redis://h"],
            "--shared is for `forespeak serve`",
        ),
        (
            vec!["engine", "--worker", "http://127.0.0.1:1"],
            "for a gateway use `forespeak serve`",
        ),
        (
            vec!["serve", "--model", fine, "--chat-template", "/no/template"],
            "/no/template",
        ),
        (
            vec![
                "serve",
                "--model",
                fine,
                "--drafter",
                "off",
                "--draft",
                "/no/draft.gguf",
            ],
            "/no/draft.gguf",
        ),
        (
            vec!["serve", "--model", fine, "--draft", foreign],
            r#"token 100 is "a" against "b""#,
        ),
        (
            vec![
                "serve",
                "--model",
                fine,
                "--draft",
                foreign,
                "--drafter=off",
            ],
            r#"token 100 is "a" against "b""#,
        ),
        (
            vec!["serve", "--model", fine, "--drafter", "model"],
            "name one with --draft",
        ),
        (
            vec!["serve", "--model", fine, "--listen", "203.0.113.1:1"],
            "--listen",
        ),
    ] {
        let output = run(&arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(word), "{arguments:?}: {text}");
    }
}

#[test]
fn help_shows_examples() {
    let output = run(&["serve", "--help"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("Examples:") && text.contains("--kv-cache-memory"),
        "{text}"
    );
}
