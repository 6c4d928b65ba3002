//! Speculation as clients and operators steer it: the text never changes, how it comes about does.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use engine::{Drafters, EngineConfig, LawSpec, SpeculationConfig};
use forespeak_gateway::admin::{AdminConfig, AdminServer, Operations};
use forespeak_gateway::placement::Pool;
use forespeak_gateway::tenants::Tenants;
use forespeak_gateway::{Catalog, Gateway, StopSwitch};
use serde_json::{Value, json};

use crate::support::client::{get, post};
use crate::support::{Setup, recited};

const CHAT: &str = "/v1/chat/completions";
const SPECULATION: &str = "/admin/speculation";
/// The length of `[user]hello[assistant]`.
const PROMPT: usize = 22;
const ANSWER: usize = 60;

/// The script repeats itself every ten tokens, so lookups are right from the second round on.
fn looking_up() -> Setup {
    let usual = Setup::default();
    Setup {
        engine: EngineConfig {
            speculation: SpeculationConfig {
                drafters: Drafters::Ngram,
                law: LawSpec::Fixed(4),
            },
            ..usual.engine
        },
        ..usual
    }
}

fn chat(speculative: Option<Value>) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": ANSWER,
                          "temperature": 0});
    if let Some(speculative) = speculative {
        body["speculative"] = speculative;
    }
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_chooses_its_depth_and_its_drafter_and_hears_how_it_went() {
    let running = looking_up().start();
    let details = async |speculative| {
        let body = post(running.address, CHAT, &chat(speculative)).await.json();
        let text = &body["choices"][0]["message"]["content"];
        assert_eq!(text, &recited(PROMPT, ANSWER), "{body}");
        body["usage"]["completion_tokens_details"].clone()
    };
    assert_eq!(details(None).await, Value::Null);
    let told = details(Some(json!({"usage": true}))).await;
    assert!(
        told["accepted_prediction_tokens"].as_u64().unwrap() > 20,
        "{told}"
    );
    assert!(told["rejected_prediction_tokens"].is_u64(), "{told}");
    let without = json!({"depth": 0, "usage": true});
    let off = details(Some(without.clone())).await;
    assert_eq!(
        off,
        json!({"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0})
    );
    // A step counts its drafts after it has told its callers: the request before is counted now, this one adds nothing.
    let before = running.engine.metrics().draft_tokens();
    details(Some(without)).await;
    assert_eq!(running.engine.metrics().draft_tokens(), before);
    for drafter in ["off", "ngram"] {
        let wish = json!({"drafter": drafter, "usage": true});
        let told = details(Some(wish)).await;
        let accepted = told["accepted_prediction_tokens"].as_u64().unwrap();
        assert_eq!(accepted > 20, drafter == "ngram", "{drafter}: {told}");
    }
    assert!(running.engine.metrics().draft_tokens() > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_it_with_its_usage() {
    let running = looking_up().start();
    let mut body = chat(Some(json!({"usage": true})));
    body["stream"] = json!(true);
    let chunks = post(running.address, CHAT, &body).await.chunks();
    assert!(chunks.iter().all(|chunk| chunk["usage"].is_null()));
    body["stream_options"] = json!({"include_usage": true});
    let chunks = post(running.address, CHAT, &body).await.chunks();
    let usage = &chunks.last().unwrap()["usage"];
    let accepted = &usage["completion_tokens_details"]["accepted_prediction_tokens"];
    assert!(accepted.as_u64().unwrap() > 20, "{usage}");
    assert_eq!(usage["completion_tokens"], ANSWER);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_impossible_wish_is_refused_with_its_field() {
    let running = looking_up().start();
    for (wrong, says) in [
        (json!({"depth": 17}), "at most 16"),
        (json!({"depth": -1}), "speculative"),
        (json!({"deep": 1}), "deep"),
        (json!({"drafter": "oracle"}), "ngram"),
        (json!({"drafter": "model"}), "--draft"),
        (json!(3), "speculative"),
    ] {
        let answer = post(running.address, CHAT, &chat(Some(wrong))).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(answer.json()["error"]["param"], "speculative");
        assert!(answer.text().contains(says), "{}", answer.text());
    }
}

/// A program without pools and without a configuration to read again.
struct Nothing;

impl Operations for Nothing {
    fn pools(&self) -> Vec<Arc<Pool>> {
        Vec::new()
    }

    fn config(&self) -> Value {
        Value::Null
    }

    fn reload(&self) -> Pin<Box<dyn Future<Output = Result<Vec<String>, String>> + Send + '_>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

fn admin(stop: &StopSwitch, gateway: &Arc<Gateway>) -> SocketAddr {
    let config = AdminConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        key: None,
    };
    let server = AdminServer::bind(config, Arc::clone(gateway), Arc::new(Nothing)).unwrap();
    let address = server.address();
    tokio::spawn(server.run(stop.clone()));
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_changes_law_depth_and_drafter_while_it_runs() {
    let running = looking_up().start();
    let desk = admin(&running.stop, &running.gateway);
    let shown = get(desk, SPECULATION).await.json();
    assert_eq!(shown["drafter"], "ngram", "{shown}");
    assert_eq!(shown["law"], "fixed:4");
    assert_eq!(shown["draft_model"], false);
    assert_eq!(shown["acceptance"], Value::Null);

    post(running.address, CHAT, &chat(None)).await;
    let shown = get(desk, SPECULATION).await.json();
    assert!(shown["accepted_tokens"].as_u64().unwrap() > 20, "{shown}");
    assert!(shown["acceptance"].as_f64().unwrap() > 0.5, "{shown}");
    assert_eq!(shown["reason"], "the depth is given");

    let changed = post(desk, SPECULATION, &json!({"drafter": "off"})).await;
    assert_eq!(changed.json()["drafter"], "off");
    let before = running.engine.metrics().draft_tokens();
    let body = post(running.address, CHAT, &chat(None)).await.json();
    assert_eq!(
        body["choices"][0]["message"]["content"],
        recited(PROMPT, ANSWER)
    );
    assert_eq!(running.engine.metrics().draft_tokens(), before);
    let shown = get(desk, SPECULATION).await.json();
    assert_eq!(shown["depth"], 0.0, "{shown}");
    assert_eq!(shown["reason"], "there is nothing to draft");

    let changed = post(desk, SPECULATION, &json!({"drafter": "auto", "depth": 2})).await;
    assert_eq!(changed.json()["law"], "fixed:2");
    assert_eq!(changed.json()["depth"], Value::Null, "not decided yet");
    let body = post(running.address, CHAT, &chat(None)).await.json();
    assert_eq!(
        body["choices"][0]["message"]["content"],
        recited(PROMPT, ANSWER)
    );
    assert!(running.engine.metrics().draft_tokens() > before);
    let shown = get(desk, SPECULATION).await.json();
    assert_eq!(shown["law"], "fixed:2");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_mistake_changes_nothing() {
    let running = looking_up().start();
    let desk = admin(&running.stop, &running.gateway);
    for (wrong, says) in [
        (json!({}), "send"),
        (json!({"law": "fastest"}), "goodput"),
        (json!({"depth": 99}), "at most 16"),
        (json!({"drafter": "model"}), "--draft"),
    ] {
        let answer = post(desk, SPECULATION, &wrong).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains(says), "{}", answer.text());
    }
    let shown = get(desk, SPECULATION).await.json();
    assert_eq!(shown["law"], "fixed:4");
    assert_eq!(shown["drafter"], "ngram");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_an_engine_says_where_to_ask() {
    let gateway = Gateway::in_front_of(Catalog::default(), Tenants::of_a_worker());
    let desk = admin(&StopSwitch::new(), &Arc::new(gateway));
    let change = json!({"drafter": "off"});
    for answer in [
        get(desk, SPECULATION).await,
        post(desk, SPECULATION, &change).await,
    ] {
        assert_eq!(answer.status, 404, "{}", answer.text());
        let text = answer.text();
        assert!(
            text.contains("its workers") && text.contains("--admin-listen"),
            "{text}"
        );
    }
}
