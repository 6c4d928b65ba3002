//! What workers see of a request.

use std::collections::BTreeSet;

use forespeak_gateway::tenants::{KeyHash, SaltSecret, TenantSpec, Tenants};
use routing::Priority;
use serde_json::{Value, json};

use crate::support::client::{post, post_with};
use crate::support::worker::{FakeWorker, whole};
use crate::support::{CHAT, COMPLETIONS, MODEL, Running, Setup};

fn two_tenants() -> Tenants {
    let tenant = |name: &str| TenantSpec {
        name: name.to_owned(),
        keys: vec![KeyHash::of(name)],
        ..TenantSpec::default()
    };
    let special = TenantSpec {
        trusted: true,
        max_priority: Priority::High,
        extra_fields: BTreeSet::from(["kv_transfer_params".to_owned()]),
        ..tenant("b")
    };
    let secret = SaltSecret::from_text("s");
    Tenants::new(vec![tenant("a"), special], &secret, &Tenants::default()).unwrap()
}

async fn ask(
    running: &Running,
    key: &str,
    headers: &str,
    body: &str,
) -> super::support::client::Answer {
    let headers = format!("authorization: Bearer {key}\r\n{headers}");
    post_with(running.address, COMPLETIONS, &headers, body.as_bytes()).await
}

fn last(worker: &FakeWorker) -> Value {
    worker.seen().last().unwrap().json()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_salts_every_tenants_cache_whatever_the_client_sent() {
    let worker = FakeWorker::start(whole("x")).await;
    let setup = Setup {
        tenants: two_tenants(),
        ..Setup::default()
    };
    let running = setup.start(&[&worker]).await;
    let plain = r#"{"model": "m", "prompt": "x"}"#;
    let salt = |key: &'static str, body: &'static str| {
        let (running, worker) = (&running, &worker);
        async move {
            assert_eq!(ask(running, key, "", body).await.status, 200);
            last(worker)["cache_salt"].as_str().unwrap().to_owned()
        }
    };
    let (of_a, of_b) = (salt("a", plain).await, salt("b", plain).await);
    assert!(!of_a.is_empty() && of_a != of_b);
    // A client can only divide its own cache further; it cannot reach another's, nor do without.
    for body in [
        r#"{"model": "m", "prompt": "x", "cache_salt": "theirs"}"#,
        r#"{"model": "m", "prompt": "x", "cache\u005fsalt": "theirs"}"#,
        r#"{"model": "m", "prompt": "x", "cache_salt": ""}"#,
    ] {
        let of_mine = salt("a", body).await;
        assert!(of_mine != of_b && of_mine != "theirs" && !of_mine.is_empty());
    }
    assert_eq!(
        salt("a", r#"{"model": "m", "prompt": "x", "cache_salt": null}"#).await,
        of_a
    );
    let twice = r#"{"model": "m", "prompt": "x", "cache_salt": "a", "cache_salt": "b"}"#;
    assert_eq!(ask(&running, "a", "", twice).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_a_body_goes_on_as_it_came() {
    let worker = FakeWorker::start(whole("x")).await;
    let setup = Setup {
        upstream_name: Some("org/upstream".to_owned()),
        ..Setup::default()
    };
    let running = setup.start(&[&worker]).await;
    let tail = "\"messages\" : [ {\"role\":\"user\",\"content\":\"\\u00e9 \\\"x\\\"\"} ], \"top_p\":0.10 }";
    let body = format!("{{ \"priority\":0, \"model\":\"{MODEL}\", {tail}");
    let answer = post_with(running.address, CHAT, "", body.as_bytes()).await;
    assert_eq!(answer.status, 200);
    let seen = String::from_utf8(worker.seen()[0].body.clone()).unwrap();
    assert!(seen.ends_with(tail), "{seen}");
    assert_eq!(last(&worker)["model"], "org/upstream");
    assert_eq!(last(&worker).get("priority"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_pass_by_a_list_that_a_tenant_may_extend() {
    let worker = FakeWorker::start(whole("x")).await;
    let setup = Setup {
        tenants: two_tenants(),
        ..Setup::default()
    };
    let running = setup.start(&[&worker]).await;
    let body = r#"{"model": "m", "prompt": "x", "kv_transfer_params": {"do": 1}}"#;
    let refused = ask(&running, "a", "", body).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["param"], "kv_transfer_params");
    assert_eq!(ask(&running, "b", "", body).await.status, 200);
    assert_eq!(last(&worker)["kv_transfer_params"]["do"], 1);
    assert_eq!(worker.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn priority_is_capped_by_the_tenant() {
    let worker = FakeWorker::start(whole("x")).await;
    let setup = Setup {
        tenants: two_tenants(),
        forwards_priority: true,
        ..Setup::default()
    };
    let running = setup.start(&[&worker]).await;
    let body = r#"{"model": "m", "prompt": "x", "priority": -5}"#;
    for (key, headers, expected) in [
        ("a", "", 0),
        ("b", "", -1),
        ("b", "x-forespeak-priority: low\r\n", 1),
        ("a", "x-forespeak-priority: high\r\n", 0),
    ] {
        assert_eq!(ask(&running, key, headers, body).await.status, 200);
        assert_eq!(last(&worker)["priority"], expected, "{key} {headers}");
    }
    let odd = ask(&running, "a", "x-forespeak-priority: now\r\n", body).await;
    assert_eq!(odd.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_trusted_tenants_see_where_a_request_went() {
    let worker = FakeWorker::start(whole("x")).await;
    let setup = Setup {
        tenants: two_tenants(),
        ..Setup::default()
    };
    let running = setup.start(&[&worker]).await;
    let body = r#"{"model": "m", "prompt": "x"}"#;
    let head = |key: &'static str| {
        let running = &running;
        async move { ask(running, key, "", body).await.head }
    };
    let address = worker.address.to_string();
    assert!(!head("a").await.contains(&address));
    let trusted = head("b").await;
    assert!(
        trusted.contains("x-forespeak-decision: round_robin"),
        "{trusted}"
    );
    assert!(trusted.contains(&address));
}

#[tokio::test(flavor = "multi_thread")]
async fn request_bombs_are_refused_before_any_worker_is_touched() {
    let worker = FakeWorker::start(whole("x")).await;
    let running = Setup::default().start(&[&worker]).await;
    let deep = format!("{{\"prompt\": {}{}}}", "[".repeat(500), "]".repeat(500));
    let many = json!({"prompt": vec!["x"; 10_000]}).to_string();
    let schema = json!({"prompt": "x", "chat_template_kwargs": {"x": "y".repeat(1 << 20)}});
    for body in [
        deep,
        many,
        schema.to_string(),
        r#"{"prompt": "x", "n": 100000}"#.to_owned(),
    ] {
        let answer = post_with(running.address, COMPLETIONS, "", body.as_bytes()).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    assert!(worker.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_of_one_name_are_two_to_the_worker() {
    let worker = FakeWorker::start(whole("x")).await;
    let running = Setup::default().start(&[&worker]).await;
    let body = json!({"model": MODEL, "prompt": "x"});
    for _ in 0..2 {
        let text = body.to_string();
        let answer = post_with(
            running.address,
            COMPLETIONS,
            "x-request-id: mine\r\n",
            text.as_bytes(),
        )
        .await;
        assert!(
            answer.head.contains("x-request-id: mine\r\n"),
            "{}",
            answer.head
        );
    }
    post(running.address, COMPLETIONS, &body).await;
    let ids: BTreeSet<String> = worker
        .seen()
        .iter()
        .map(|seen| {
            let id = seen
                .head
                .lines()
                .find_map(|line| line.strip_prefix("x-request-id: "));
            id.unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 3);
}
