//! Answers that go well.

use serde_json::{Value, json};

use crate::support::client::{get, post, post_with};
use crate::support::worker::{Deed, FakeWorker, Then, ending, opening, speech, whole, word};
use crate::support::{CHAT, COMPLETIONS, MODEL, Setup, eventually};

fn chat(stream: bool) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": stream})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_one_piece_passes_byte_for_byte() {
    let worker = FakeWorker::start(whole("hello")).await;
    let running = Setup::default().start(&[&worker]).await;
    let answer = post(running.address, CHAT, &chat(false)).await;
    assert_eq!(answer.status, 200);
    let Deed::Answer(_, _, expected) = whole("hello") else {
        unreachable!()
    };
    assert_eq!(answer.text(), expected);
    assert!(answer.head.contains("content-type: application/json"));
    assert!(answer.head.contains("content-length: "), "{}", answer.head);
    assert!(answer.head.contains("x-request-id: "));
    assert!(!answer.head.contains("server: fake"), "{}", answer.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_passes_event_by_event() {
    let worker = FakeWorker::start(speech(&["a", "b"])).await;
    let running = Setup::default().start(&[&worker]).await;
    let answer = post(running.address, CHAT, &chat(true)).await;
    assert!(answer.head.contains("content-type: text/event-stream"));
    // The usage was asked for by the gateway alone and stays with it.
    let expected = [
        opening(),
        word("a"),
        word("b"),
        ending(10, 2, 8)[0].clone(),
        "data: [DONE]\n\n".to_owned(),
    ];
    assert_eq!(answer.text(), expected.concat());

    let mut asked = chat(true);
    asked["stream_options"] = json!({"include_usage": true});
    let answer = post(running.address, CHAT, &asked).await;
    let usage = &answer.chunks()[4]["usage"];
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_kept_for_the_next_request() {
    let worker = FakeWorker::start(whole("hello")).await;
    let running = Setup::default().start(&[&worker]).await;
    worker.next([speech(&["a"]), whole("x"), speech(&["b"])]);
    for stream in [true, false, true, false] {
        assert_eq!(post(running.address, CHAT, &chat(stream)).await.status, 200);
    }
    assert_eq!(worker.seen().len(), 4);
    assert_eq!(worker.connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_paths_are_relayed_from_a_list_and_no_others() {
    let worker = FakeWorker::start(Deed::Answer(200, "", "{\"data\":[]}".to_owned())).await;
    let running = Setup::default().start(&[&worker]).await;
    let body = json!({"model": MODEL, "input": "x"});
    for path in ["/v1/embeddings", "/v1/responses", "/v1/rerank", "/tokenize"] {
        let answer = post(running.address, path, &body).await;
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (200, "{\"data\":[]}")
        );
        assert_eq!(worker.seen().last().unwrap().path, path);
    }
    let before = worker.seen().len();
    for path in [
        "/metrics",
        "/collective_rpc",
        "/inference/v1/generate",
        "/reset_prefix_cache",
        "/v1/chat/completions/../../metrics",
        "/v1//chat/completions",
        "/v1/chat/completions/",
        "/V1/chat/completions",
    ] {
        let answer = post(running.address, path, &body).await;
        assert!(
            answer.status == 404 || answer.status == 405,
            "{path}: {}",
            answer.status
        );
    }
    assert_eq!(worker.seen().len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn models_of_all_pools_are_listed_and_others_refused() {
    let worker = FakeWorker::start(whole("x")).await;
    let running = Setup::default().start(&[&worker]).await;
    let models = get(running.address, "/v1/models").await.json();
    assert_eq!(models["data"][0]["id"], MODEL);
    let one = get(running.address, "/v1/models/m").await;
    assert_eq!(one.status, 200);
    let other = post(
        running.address,
        CHAT,
        &json!({"model": "x", "messages": []}),
    )
    .await;
    assert_eq!(other.status, 404);
    assert_eq!(other.json()["error"]["code"], "model_not_found");
    // The only one is meant by those who name none, and the worker is told its name.
    let unnamed = post(running.address, COMPLETIONS, &json!({"prompt": "x"})).await;
    assert_eq!(unnamed.status, 200);
    assert_eq!(worker.seen().last().unwrap().json()["model"], MODEL);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_fault_passes_untouched_and_never_opens_the_breaker() {
    let refusal = "{\"object\":\"error\",\"message\":\"bad temperature\"}";
    let worker = FakeWorker::start(Deed::Answer(400, "", refusal.to_owned())).await;
    let running = Setup::default().start(&[&worker]).await;
    for _ in 0..30 {
        let answer = post(running.address, CHAT, &chat(false)).await;
        assert_eq!((answer.status, answer.text().as_str()), (400, refusal));
    }
    worker.next([whole("fine")]);
    assert_eq!(post(running.address, CHAT, &chat(false)).await.status, 200);
    assert_eq!(running.counter("forespeak_relay_retries_total").await, 0.0);
    let busy = Deed::Answer(429, "retry-after: 7\r\n", "{}".to_owned());
    worker.next([busy]);
    let answer = post(running.address, CHAT, &chat(false)).await;
    assert_eq!(answer.status, 429);
    assert!(answer.head.contains("retry-after: 7"), "{}", answer.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clients_key_stays_here_and_the_workers_key_goes_there() {
    let worker = FakeWorker::start(whole("x")).await;
    let setup = Setup {
        api_key: Some("workers-key".to_owned()),
        ..Setup::default()
    };
    let running = setup.start(&[&worker]).await;
    let headers = "authorization: Bearer clients-key\r\ncookie: a=b\r\nx-data-parallel-rank: 1\r\n\
        x-forwarded-for: 1.2.3.4\r\nconnection: x-secret\r\nx-secret: 1\r\ntraceparent: 00-ab-cd-01\r\n";
    let body = chat(false).to_string();
    let answer = post_with(running.address, CHAT, headers, body.as_bytes()).await;
    assert_eq!(answer.status, 200);
    let head = worker.seen()[0].head.clone();
    assert!(head.contains("authorization: Bearer workers-key"), "{head}");
    assert!(head.contains("traceparent: 00-ab-cd-01"), "{head}");
    for hidden in ["clients-key", "cookie", "rank", "forwarded", "secret"] {
        assert!(!head.contains(hidden), "{hidden} in {head}");
    }
}

/// What another router died of: more streams than a thousand. Each takes four sockets here, where client, gateway
/// and worker are one process.
#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_thousand_streams_at_once_are_carried() {
    const STREAMS: usize = 1_200;
    let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: allowed.maximum,
        ..allowed
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let worker = FakeWorker::start(Deed::Stream(vec![opening(), word("x")], Then::Wait)).await;
    let running = Setup::default().start(&[&worker]).await;
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..STREAMS {
        let address = running.address;
        streams.spawn(async move { post(address, CHAT, &chat(true)).await });
    }
    eventually("all of them are open", || worker.open() == STREAMS).await;
    worker.release();
    while let Some(answer) = streams.join_next().await {
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.text().ends_with("data: [DONE]\n\n"));
    }
    assert_eq!(running.in_flight(), 0);
}
