//! The response cache in front of the engine.

use std::net::SocketAddr;
use std::time::Duration;

use forespeak_gateway::tenants::{KeyHash, SaltSecret, TenantSpec, Tenants};
use serde_json::{Value, json};

use crate::support::client::{
    Answer, get, open, post, post_with, read_rest, read_until, scramble, seed,
};
use crate::support::{Running, Setup};

const CHAT: &str = "/v1/chat/completions";

fn caching() -> Setup {
    Setup {
        cache: true,
        ..Setup::default()
    }
}

fn chat(stream: bool) -> Value {
    json!({"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 12,
           "stream": stream})
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    let mut lines = answer.head.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// What was said, whichever way it came.
fn text(answer: &Answer) -> String {
    if header(answer, "content-type") == Some("application/json") {
        let content = &answer.json()["choices"][0]["message"]["content"];
        return content.as_str().unwrap().to_owned();
    }
    let chunks = answer.chunks();
    let deltas = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"]["content"]);
    deltas.filter_map(Value::as_str).collect()
}

async fn counter(address: SocketAddr, name: &str) -> u64 {
    let page = get(address, "/metrics").await.text();
    let line = page.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    value.unwrap_or_else(|| panic!("no {name} in {page}")) as u64
}

/// Asks until the answer comes out of the cache: it is kept a moment after it was given.
async fn until_hit(running: &Running, body: &Value) -> Answer {
    for _ in 0..2000 {
        let answer = post(running.address, CHAT, body).await;
        if header(&answer, "x-cache") == Some("HIT") {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never kept: {body}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_is_answered_both_ways_whichever_way_it_was_asked_first() {
    for first in [false, true] {
        let running = caching().start();
        let made = post(running.address, CHAT, &chat(first)).await;
        assert_eq!(header(&made, "x-cache"), Some("MISS"));
        assert_eq!(header(&made, "age"), None);
        for again in [false, true] {
            let hit = until_hit(&running, &chat(again)).await;
            assert_eq!(text(&hit), text(&made));
            assert!(header(&hit, "age").is_some());
            let kind = if again {
                "text/event-stream"
            } else {
                "application/json"
            };
            assert_eq!(header(&hit, "content-type"), Some(kind));
        }
        assert_eq!(
            counter(running.address, "vllm:prompt_tokens_total").await,
            22
        );
        let whole = until_hit(&running, &chat(false)).await.json();
        assert_eq!(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 22);
        assert!(
            counter(
                running.address,
                "forespeak_cache_hits_total{tier=\"memory\"}"
            )
            .await
                >= 3
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usage_is_for_those_who_asked() {
    let running = caching().start();
    let plain = post(running.address, CHAT, &chat(true)).await;
    assert!(!plain.text().contains("usage"), "{}", plain.text());
    let mut asked = chat(true);
    asked["stream_options"] = json!({"include_usage": true});
    let hit = until_hit(&running, &asked).await;
    let chunks = hit.chunks();
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 12);
    assert_eq!(chunks.len(), plain.chunks().len() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_drawn_at_random_or_not_wanted_passes_by() {
    let running = caching().start();
    let mut sampled = chat(false);
    sampled["temperature"] = json!(1);
    for _ in 0..2 {
        let answer = post(running.address, CHAT, &sampled).await;
        assert_eq!(header(&answer, "x-cache"), Some("BYPASS"));
    }
    until_hit(&running, &chat(false)).await;
    let body = chat(false).to_string();
    let answer = post_with(
        running.address,
        CHAT,
        "cache-control: no-store\r\n",
        body.as_bytes(),
    )
    .await;
    assert_eq!(header(&answer, "x-cache"), Some("BYPASS"));
    let answer = post_with(
        running.address,
        CHAT,
        "x-forespeak-cache: refresh\r\n",
        body.as_bytes(),
    )
    .await;
    assert_eq!(header(&answer, "x-cache"), Some("MISS"));
    let context = "x-forespeak-context: docs-7\r\n";
    let answer = post_with(running.address, CHAT, context, body.as_bytes()).await;
    assert_eq!(header(&answer, "x-cache"), Some("MISS"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_wrong_is_refused_and_not_kept() {
    let running = caching().start();
    let wrong = json!({"messages": [], "temperature": 0});
    for _ in 0..2 {
        let answer = post(running.address, CHAT, &wrong).await;
        assert_eq!(
            (answer.status, header(&answer, "x-cache")),
            (400, Some("MISS"))
        );
    }
    assert_eq!(
        counter(running.address, "forespeak_cache_stored_total").await,
        0
    );
}

/// 200 clients ask the same at the same time, in both ways; some leave at random, at once or in the
/// middle. One generation, and the same text for all who stay.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_who_ask_the_same_share_one_generation() {
    let running = Setup {
        step: Duration::from_millis(20),
        ..caching()
    }
    .start();
    let address = running.address;
    let ask = |stream: bool| {
        let mut body = chat(stream);
        body["max_tokens"] = json!(40);
        body
    };
    // The first opens the flight, so that nobody who leaves takes it along.
    let mut first = open(address, CHAT, &ask(true)).await;
    let seen = read_until(&mut first, "\"assistant\"").await;
    let seed = seed();
    let clients: Vec<_> = (0..199_u64)
        .map(|number| {
            let draw = scramble(seed ^ number);
            let body = ask(draw & 1 == 0);
            tokio::spawn(async move {
                let mut client = open(address, CHAT, &body).await;
                match (draw >> 1) & 7 {
                    // Leaves before anything came.
                    0 => None,
                    // Leaves in the middle, or has heard it all by then.
                    1 => {
                        let patience = Duration::from_millis((draw >> 8) & 0x7f);
                        let read = read_rest(&mut client, Vec::new());
                        tokio::time::timeout(patience, read).await.ok()
                    }
                    _ => Some(read_rest(&mut client, Vec::new()).await),
                }
            })
        })
        .collect();
    let made = read_rest(&mut first, seen).await;
    let mut answered = 0;
    for client in clients {
        if let Some(answer) = client.await.unwrap() {
            assert_eq!(answer.status, 200);
            assert_eq!(text(&answer), text(&made));
            let how = header(&answer, "x-cache");
            assert!(matches!(how, Some("COALESCED" | "HIT")), "{how:?}");
            answered += 1;
        }
    }
    assert!(answered > 100, "{answered}");
    assert_eq!(text(&made).len(), 40);
    assert_eq!(counter(address, "vllm:prompt_tokens_total").await, 22);
    assert_eq!(counter(address, "forespeak_cache_misses_total").await, 1);
    crate::support::eventually("nobody is left", || running.engine.metrics().running() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_first_leaves_the_others_are_still_answered() {
    for first_streams in [true, false] {
        let running = Setup {
            step: Duration::from_millis(10),
            ..caching()
        }
        .start();
        let first = open(running.address, CHAT, &chat(first_streams)).await;
        crate::support::eventually("it runs", || running.engine.metrics().running() == 1).await;
        let address = running.address;
        let second = tokio::spawn(async move { post(address, CHAT, &chat(true)).await });
        for _ in 0..2000 {
            // The second has come when two are open beside the one that asks.
            if counter(address, "forespeak_http_connections").await == 3 {
                break;
            }
        }
        drop(first);
        let answer = second.await.unwrap();
        assert_eq!((answer.status, text(&answer).len()), (200, 12));
        assert_eq!(counter(address, "vllm:prompt_tokens_total").await, 22);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_never_share() {
    let tenant = |name: &str| TenantSpec {
        name: name.to_owned(),
        keys: vec![KeyHash::of(name)],
        ..TenantSpec::default()
    };
    let secret = SaltSecret::from_text("s");
    let tenants = Tenants::new(vec![tenant("a"), tenant("b")], &secret, &Tenants::default());
    let running = Setup {
        tenants: tenants.unwrap(),
        ..caching()
    }
    .start();
    let ask = |tenant: &'static str| {
        let address = running.address;
        async move {
            let key = format!("authorization: Bearer {tenant}\r\n");
            let answer = post_with(address, CHAT, &key, chat(false).to_string().as_bytes()).await;
            header(&answer, "x-cache").unwrap().to_owned()
        }
    };
    assert_eq!(ask("a").await, "MISS");
    while ask("a").await != "HIT" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(ask("b").await, "MISS");
}
