//! The binary as people start it: what it says, what it answers, how it ends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking, and clippy does not take helpers for tests"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use testkit::tiny_models::TinyModel;

fn forespeak(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forespeak"));
    command.args(arguments).env_remove("FORESPEAK_MODEL");
    command
}

fn run(arguments: &[&str]) -> Output {
    forespeak(arguments).output().unwrap()
}

/// A server that has said where it listens, and what it said.
struct Server {
    process: Child,
    banner: String,
    address: String,
}

impl Server {
    fn start(command: &str, model: &Path, more: &[&str]) -> Self {
        let mut process = forespeak(&[command, "--listen", "127.0.0.1:0", "--threads", "1"])
            .args([
                "--max-model-len",
                "256",
                "--kv-cache-memory",
                "16MiB",
                "--model",
            ])
            .arg(model)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut banner = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("it says where it listens").unwrap();
            banner.push_str(&line);
            banner.push('\n');
            if let Some((_, address)) = line.split_once("address    http://") {
                break address.to_owned();
            }
        };
        Self {
            process,
            banner,
            address,
        }
    }

    fn post(&self, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn terminate(mut self) -> Option<i32> {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(sent.success());
        self.process.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_gguf_file_is_served_and_sigterm_ends_it_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny-llama.gguf");
    TinyModel::default().write_gguf(&path).unwrap();
    let server = Server::start("serve", &path, &[]);
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
    let server = Server::start("engine", &path, &more);
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

#[test]
fn what_cannot_be_served_is_told_without_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.gguf");
    std::fs::write(&broken, b"GGUF but not really").unwrap();
    let fine = folder.path().join("fine.gguf");
    TinyModel::default().write_gguf(&fine).unwrap();
    let (broken, fine) = (broken.to_str().unwrap(), fine.to_str().unwrap());
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
            vec!["serve", "--model", fine, "--chat-template", "/no/template"],
            "/no/template",
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
