//! Workers elsewhere: flags, configuration, tenants, admin, reload.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::support::{Server, Workers, eventually, open, send};

const CHAT: &str = "/v1/chat/completions";

fn chat(model: &str, text: &str) -> String {
    format!(
        r#"{{"model": "{model}", "messages": [{{"role": "user", "content": "{text}"}}], "max_tokens": 8}}"#
    )
}

/// A configuration file in a folder of its own.
struct File {
    folder: tempfile::TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let file = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        file.write(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("forespeak.toml")
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path(), text).unwrap();
    }
}

fn pool_of(urls: &[String]) -> String {
    let workers: Vec<_> = urls
        .iter()
        .map(|url| format!("{{ url = \"{url}\" }}"))
        .collect();
    format!(
        "[[pools]]\nname = \"main\"\nworkers = [{}]\n",
        workers.join(", ")
    )
}

fn serve(config: &Path) -> Server {
    Server::start(&["serve", "--config", config.to_str().unwrap()])
}

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

#[test]
fn two_workers_and_nothing_else_are_a_gateway() {
    let workers = Workers::start(2);
    let urls: Vec<_> = workers.mocks.iter().map(|mock| mock.url()).collect();
    let server = Server::start(&["serve", "--worker", &urls[0], "--worker", &urls[1]]);
    assert!(
        server.banner.contains("is the gateway to 2 workers"),
        "{}",
        server.banner
    );
    assert!(
        server.banner.contains("models     mock"),
        "{}",
        server.banner
    );

    let answer = server.post(CHAT, &chat("mock", "hello"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("x-forespeak-decision"), "{answer}");
    let unnamed = server.post(
        CHAT,
        &chat("mock", "hello").replace(r#""model": "mock", "#, ""),
    );
    assert!(unnamed.starts_with("HTTP/1.1 200"), "{unnamed}");
    let wrong = server.post(CHAT, &chat("other", "hello"));
    assert!(
        wrong.starts_with("HTTP/1.1 404") && wrong.contains("model_not_found"),
        "{wrong}"
    );
    let models = send(&server.address, "GET", "/v1/models", "", "");
    assert!(models.contains(r#""id":"mock""#), "{models}");
    let metrics = send(&server.address, "GET", "/metrics", "", "");
    assert!(
        metrics.contains("forespeak_http_requests_total"),
        "{metrics}"
    );

    let streamed = chat("mock", "hello").replace("{\"model", "{\"stream\": true, \"model");
    let streamed = server.post(CHAT, &streamed);
    assert!(streamed.contains("data: [DONE]"), "{streamed}");
    assert_eq!(workers.asked().iter().sum::<usize>(), 3);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_dead_worker_costs_no_request() {
    let mut workers = Workers::start(2);
    let urls: Vec<_> = workers.mocks.iter().map(|mock| mock.url()).collect();
    let server = Server::start(&[
        "serve",
        "--worker",
        &urls[0],
        "--worker",
        &urls[1],
        "--policy",
        "round_robin",
    ]);
    workers.kill_one();
    for turn in 0..10 {
        let answer = server.post(CHAT, &chat("mock", &format!("turn {turn}")));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[test]
fn workers_that_come_later_are_learnt_from() {
    let workers = Workers::start(1);
    let file = File::new(&format!("{ADMIN}[[pools]]\nname = \"main\"\n"));
    let server = serve(&file.path());
    assert!(server.banner.contains("not known yet"), "{}", server.banner);
    let body = format!(r#"{{"url": "{}"}}"#, workers.mocks[0].url());
    let added = send(server.admin(), "POST", "/admin/workers", "", &body);
    assert!(added.starts_with("HTTP/1.1 201"), "{added}");
    eventually("the worker's model is served", || {
        server
            .post(CHAT, &chat("mock", "x"))
            .starts_with("HTTP/1.1 200")
            .then_some(())
    });
}

#[test]
fn a_watched_file_brings_workers() {
    let workers = Workers::start(1);
    let file = File::new("[[pools]]\nname = \"main\"\nfile = \"workers.json\"\n");
    let list = file.folder.path().join("workers.json");
    let server = serve(&file.path());
    std::fs::write(list, format!("[{:?}]", workers.mocks[0].url())).unwrap();
    eventually("the worker's model is served", || {
        server
            .post(CHAT, &chat("mock", "x"))
            .starts_with("HTTP/1.1 200")
            .then_some(())
    });
}

#[test]
fn tenants_have_keys_models_and_limits() {
    let workers = Workers::start(1);
    let url = workers.mocks[0].url();
    // printf %s secret | sha256sum
    let tenants = "[[tenants]]\nname = \"t\"\nkeys = [{ sha256 = \"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\" }]\nlimits = { requests_per_minute = 2 }\nmodels = [\"mock\"]\n";
    let models = "[[models]]\nname = \"mock\"\naliases = [\"gpt\"]\n";
    let file = File::new(&[&pool_of(&[url]), models, tenants].concat());
    let server = serve(&file.path());
    let refused = server.post(CHAT, &chat("mock", "x"));
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    let ask = |model: &str| {
        let key = "authorization: Bearer secret\r\n";
        send(&server.address, "POST", CHAT, key, &chat(model, "x"))
    };
    let answer = ask("mock");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.contains("x-ratelimit-limit-requests: 2\r\n"),
        "{answer}"
    );
    assert!(
        answer.contains("x-ratelimit-remaining-requests: 1\r\n"),
        "{answer}"
    );
    assert!(!answer.contains("x-forespeak-decision"), "{answer}");
    // An alias is another name, and this tenant has only the one.
    let other = ask("gpt");
    assert!(other.starts_with("HTTP/1.1 404"), "{other}");
    let over = ask("mock");
    assert!(over.starts_with("HTTP/1.1 429"), "{over}");
    assert!(
        over.contains("retry-after: ") && over.contains("rate_limit_exceeded"),
        "{over}"
    );
    // The worker was given the tenant's salt, whatever the client sent.
    let seen = workers.mocks[0].seen();
    let body = seen
        .iter()
        .find(|seen| seen.path == CHAT)
        .unwrap()
        .body
        .clone();
    assert!(
        String::from_utf8_lossy(&body).contains("cache_salt"),
        "{body:?}"
    );
}

#[test]
fn a_reload_changes_everything_but_running_streams() {
    let workers = Workers::start(2);
    let urls: Vec<_> = workers.mocks.iter().map(|mock| mock.url()).collect();
    let file = File::new(&[ADMIN, &pool_of(&urls[..1])].concat());
    let server = serve(&file.path());
    let reload = || send(server.admin(), "POST", "/admin/reload", "", "");

    workers.mocks[0].faults(|faults| faults.speed = 0.05);
    let long = chat("mock", "a long story").replace(
        "\"max_tokens\": 8",
        "\"max_tokens\": 64, \"ignore_eos\": true, \"stream\": true",
    );
    let mut stream = open(&server.address, "POST", CHAT, "", &long);
    let mut first = [0; 64];
    stream.read_exact(&mut first).unwrap();

    file.write(&[ADMIN, &pool_of(&urls[1..])].concat());
    let answer = reload();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("pool"),
        "{answer}"
    );
    let moved = server.post(CHAT, &chat("mock", "after the reload"));
    assert!(moved.starts_with("HTTP/1.1 200"), "{moved}");
    assert_eq!(workers.asked(), [1, 1]);

    file.write("[[pools]]\nname = \"main\"\nwrkers = []\n");
    let answer = reload();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(
        answer.contains("forespeak.toml:3") && answer.contains("workers"),
        "{answer}"
    );
    let still = server.post(CHAT, &chat("mock", "after the bad reload"));
    assert!(still.starts_with("HTTP/1.1 200"), "{still}");

    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    let config = send(server.admin(), "GET", "/admin/config", "", "");
    assert!(
        config.contains(&urls[1]) && !config.contains(&urls[0]),
        "{config}"
    );
}

#[test]
fn a_hangup_reads_the_file_again() {
    let workers = Workers::start(1);
    let urls = [workers.mocks[0].url()];
    let file = File::new(&pool_of(&urls));
    let server = serve(&file.path());
    assert!(
        server
            .post(CHAT, &chat("mock", "x"))
            .starts_with("HTTP/1.1 200")
    );
    file.write(&format!(
        "{}[[models]]\nname = \"other\"\nserved_as = \"mock\"\n",
        pool_of(&urls)
    ));
    server.signal("-HUP");
    eventually("the new name is served", || {
        server
            .post(CHAT, &chat("other", "x"))
            .starts_with("HTTP/1.1 200")
            .then_some(())
    });
    assert!(
        server
            .post(CHAT, &chat("mock", "x"))
            .starts_with("HTTP/1.1 404")
    );
}

#[test]
fn operators_drain_and_remove_workers() {
    let workers = Workers::start(2);
    let urls: Vec<_> = workers.mocks.iter().map(|mock| mock.url()).collect();
    let file = File::new(&[ADMIN, &pool_of(&urls)].concat());
    let server = serve(&file.path());
    let admin = |method: &str, path: &str| send(server.admin(), method, path, "", "");
    let name = workers.mocks[0].address().to_string();
    let drained = admin("POST", &format!("/admin/workers/{name}/drain"));
    assert!(drained.contains(r#""draining":"operator""#), "{drained}");
    for turn in 0..4 {
        server.post(CHAT, &chat("mock", &format!("turn {turn}")));
    }
    assert_eq!(workers.asked(), [0, 4]);
    let decisions = admin("GET", "/admin/decisions?limit=2");
    assert_eq!(
        decisions.matches(r#""pool":"main""#).count(),
        2,
        "{decisions}"
    );
    let removed = admin("DELETE", &format!("/admin/workers/{name}"));
    assert!(removed.starts_with("HTTP/1.1 200"), "{removed}");
    eventually("it is gone", || {
        (!admin("GET", "/admin/workers").contains(&name)).then_some(())
    });
    let tenants = admin("GET", "/admin/tenants");
    assert!(tenants.contains("anonymous"), "{tenants}");
    let page = send(
        server.admin(),
        "GET",
        "/admin/workers",
        "origin: http://evil.example\r\n",
        "",
    );
    assert!(page.starts_with("HTTP/1.1 401"), "{page}");
    assert!(server.post("/admin/reload", "").starts_with("HTTP/1.1 404"));
}
