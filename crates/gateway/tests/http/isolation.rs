//! Two tenants in front of one engine, one prefix cache and one response cache: neither learns anything of the other,
//! from an answer, from a count or from a clock.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use forespeak_gateway::tenants::{KeyHash, SaltSecret, TenantSpec, Tenants};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::client::{Answer, post_with, read_rest, read_until};
use crate::support::{MODEL, Running, Setup};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn two_tenants() -> Tenants {
    let tenant = |name: &str| TenantSpec {
        name: name.to_owned(),
        keys: vec![KeyHash::of(name)],
        ..TenantSpec::default()
    };
    let secret = SaltSecret::from_text("s");
    Tenants::new(vec![tenant("a"), tenant("b")], &secret, &Tenants::default()).unwrap()
}

fn setup() -> Setup {
    Setup {
        tenants: two_tenants(),
        cache: true,
        ..Setup::default()
    }
}

/// What the cache did with a request; empty where it was refused.
fn how(answer: &Answer) -> &str {
    let mut lines = answer.head.lines();
    lines
        .find_map(|line| line.strip_prefix("x-cache: "))
        .unwrap_or_default()
}

/// Waits until what was answered is kept: the next who asks the same is not told MISS because of that.
async fn until_nothing_is_in_flight(address: SocketAddr) {
    let start = Instant::now();
    loop {
        let page = crate::support::client::get(address, "/metrics")
            .await
            .text();
        if page.contains("\nforespeak_cache_flights 0\n") {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "still in flight");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[derive(Debug, Clone)]
struct Asked {
    tenant: &'static str,
    model: &'static str,
    context: Option<&'static str>,
    system: &'static str,
    question: &'static str,
    sampling: Value,
    salt: Option<&'static str>,
    stream: bool,
}

impl Asked {
    fn body(&self) -> Value {
        let mut body = json!({
            "model": self.model,
            "messages": [{"role": "system", "content": self.system}, {"role": "user", "content": self.question}],
            "max_tokens": 4,
            "stream": self.stream,
        });
        if let (Value::Object(body), Value::Object(sampling)) = (&mut body, &self.sampling) {
            body.extend(sampling.clone());
        }
        if self.stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        if let Some(salt) = self.salt {
            body["cache_salt"] = json!(salt);
        }
        body
    }

    /// What it asks, but for how the answer is delivered.
    fn asks(&self) -> String {
        let mut body = self.body();
        let fields = body.as_object_mut().unwrap();
        fields.remove("stream");
        fields.remove("stream_options");
        format!("{} {:?} {body}", self.tenant, self.context)
    }

    /// The prompt as the engine reads it, a token a byte.
    fn prompt(&self) -> String {
        format!("[system]{}[user]{}[assistant]", self.system, self.question)
    }

    async fn ask(&self, address: SocketAddr) -> Answer {
        let mut headers = format!("authorization: Bearer {}\r\n", self.tenant);
        if let Some(context) = self.context {
            headers.push_str(&format!("x-forespeak-context: {context}\r\n"));
        }
        post_with(address, CHAT, &headers, self.body().to_string().as_bytes()).await
    }
}

const SYSTEM: [&str; 3] = [
    "You are kind, and you answer in one sentence, whatever it is that is asked.",
    "You are kind, and you answer in two sentences, whatever it is that is asked.",
    "",
];

const QUESTION: [&str; 3] = [
    "What is a prefix cache, and who may look into that of somebody else?",
    "What is a prefix cache, and who may not?",
    "hi",
];

fn asked() -> impl Strategy<Value = Asked> {
    let sampling = prop_oneof![
        Just(json!({"temperature": 0})),
        Just(json!({"temperature": 0, "stop": "z"})),
        Just(json!({"temperature": 1, "seed": 1})),
        Just(json!({"temperature": 1, "seed": 2})),
        Just(json!({"temperature": 1})),
    ];
    (
        prop::sample::select(vec!["a", "b"]),
        prop::sample::select(vec![MODEL, "alias"]),
        prop::sample::select(vec![None, Some("docs-1"), Some("docs-2")]),
        prop::sample::select(SYSTEM.to_vec()),
        prop::sample::select(QUESTION.to_vec()),
        sampling,
        prop::sample::select(vec![None, None, Some("x")]),
        any::<bool>(),
    )
        .prop_map(
            |(tenant, model, context, system, question, sampling, salt, stream)| Asked {
                tenant,
                model,
                context,
                system,
                question,
                sampling,
                salt,
                stream,
            },
        )
}

fn cached_tokens(asked: &Asked, answer: &Answer) -> usize {
    let usage = if asked.stream {
        answer.chunks().last().unwrap()["usage"].clone()
    } else {
        answer.json()["usage"].clone()
    };
    assert_eq!(usage["prompt_tokens"], asked.prompt().len(), "{usage}");
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
    cached.unwrap_or(0) as usize
}

fn common(one: &str, other: &str) -> usize {
    let pairs = one.bytes().zip(other.bytes());
    pairs.take_while(|(one, other)| one == other).count()
}

#[test]
fn neither_answers_nor_counts_tell_one_tenant_of_the_other() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(16));
    let own_prefixes_found = std::cell::Cell::new(0);
    runner
        .run(&proptest::collection::vec(asked(), 1..40), |all| {
            runtime.block_on(async {
                let running = setup().start();
                let mut known: HashSet<String> = HashSet::new();
                let mut prompts: HashMap<&str, Vec<String>> = HashMap::new();
                for asked in &all {
                    let answer = asked.ask(running.address).await;
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    let is_new = known.insert(asked.asks());
                    match how(&answer) {
                        "HIT" => assert!(!is_new, "{asked:?}"),
                        "MISS" => assert!(is_new, "{asked:?}"),
                        other => {
                            assert_eq!(other, "BYPASS");
                            assert_eq!(asked.sampling, json!({"temperature": 1}));
                        }
                    }
                    let own = prompts.entry(asked.tenant).or_default();
                    let prompt = asked.prompt();
                    if how(&answer) != "HIT" {
                        let cached = cached_tokens(asked, &answer);
                        let shared = own.iter().map(|before| common(before, &prompt)).max();
                        assert!(cached <= shared.unwrap_or(0), "{cached} of {asked:?}");
                        own_prefixes_found.set(own_prefixes_found.get() + cached);
                        own.push(prompt);
                    }
                    until_nothing_is_in_flight(running.address).await;
                }
                running.stop.stop_now();
            });
            Ok(())
        })
        .unwrap();
    assert!(
        own_prefixes_found.get() > 0,
        "the prefix cache was never used"
    );
}

/// Fields that say how an answer is delivered or scheduled. All others that a request is read for can change it.
const DELIVERY: [&str; 3] = ["stream", "stream_options", "priority"];

/// Over every field that reading a request asks for: another value is another question.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_differs_in_any_one_field_is_never_a_hit() {
    let running = setup().start();
    let key = "authorization: Bearer a\r\n";
    let chat =
        json!({"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 2});
    let completion = json!({"prompt": "hi", "temperature": 0, "max_tokens": 2});
    for (path, base, names) in [
        (CHAT, chat, protocol::names::of_chats()),
        (COMPLETIONS, completion, protocol::names::of_completions()),
    ] {
        let ask = async |body: &Value| {
            let body = body.to_string();
            post_with(running.address, path, key, body.as_bytes()).await
        };
        assert_eq!(how(&ask(&base).await), "MISS");
        until_nothing_is_in_flight(running.address).await;
        let mut refused = 0;
        for name in names.iter().filter(|name| !DELIVERY.contains(name)) {
            for value in [
                json!(2),
                json!(0.25),
                json!("other"),
                json!(["other"]),
                json!([{"role": "user", "content": "ho"}]),
                json!({"type": "json_object"}),
                json!({"5": 3}),
            ] {
                if base.get(name) == Some(&value) {
                    continue;
                }
                let mut other = base.clone();
                other[*name] = value;
                let answer = ask(&other).await;
                assert_ne!(how(&answer), "HIT", "{name}: {other}");
                refused += usize::from(answer.status != 200);
                until_nothing_is_in_flight(running.address).await;
            }
            // One of the two is what its absence says, perhaps.
            let mut hits = 0;
            for value in [true, false] {
                let mut other = base.clone();
                other[*name] = json!(value);
                hits += usize::from(how(&ask(&other).await) == "HIT");
                until_nothing_is_in_flight(running.address).await;
            }
            assert!(hits <= 1, "{name} counts for nothing");
        }
        assert!(refused > 0);
        assert_eq!(how(&ask(&base).await), "HIT");
    }
}

/// The largest difference between the shares of two samples that lie below a value (Kolmogorov and Smirnov).
fn largest_difference(one: &[Duration], other: &[Duration]) -> f64 {
    let below = |sample: &[Duration], value: Duration| {
        let count = sample.iter().filter(|each| **each <= value).count();
        count as f64 / sample.len() as f64
    };
    let values = one.iter().chain(other);
    values
        .map(|value| (below(one, *value) - below(other, *value)).abs())
        .fold(0.0, f64::max)
}

/// What that difference exceeds by chance once in 10,000 times for samples of one distribution.
fn by_chance(one: usize, other: usize) -> f64 {
    const ALPHA: f64 = 1e-4;
    let scale = (-(ALPHA / 2.0).ln() / 2.0).sqrt();
    let (one, other) = (one as f64, other as f64);
    scale * ((one + other) / (one * other)).sqrt()
}

#[test]
fn the_difference_of_samples_is_told_from_chance() {
    let sample = |numbers: std::ops::Range<u64>| -> Vec<Duration> {
        numbers.map(Duration::from_millis).collect()
    };
    assert_eq!(largest_difference(&sample(0..10), &sample(0..10)), 0.0);
    assert_eq!(largest_difference(&sample(0..10), &sample(10..20)), 1.0);
    assert!((largest_difference(&sample(0..10), &sample(5..15)) - 0.5).abs() < 1e-9);
    assert!((by_chance(100, 100) - 0.3147).abs() < 1e-3);
}

/// Time to the first event of an answer, which is read to its end.
async fn first_token(running: &Running, tenant: &str, prompt: &str, max_tokens: u32) -> Duration {
    let body =
        json!({"prompt": prompt, "temperature": 0, "max_tokens": max_tokens, "stream": true})
            .to_string();
    let request = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {tenant}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let start = Instant::now();
    stream.write_all(request.as_bytes()).await.unwrap();
    let seen = read_until(&mut stream, "data: ").await;
    let took = start.elapsed();
    let answer = read_rest(&mut stream, seen).await;
    assert_eq!(how(&answer), "MISS");
    took
}

/// Prompts that one tenant has asked take the other as long as prompts that nobody has; and its own that it has asked
/// do not, which shows that the test would notice.
#[tokio::test(flavor = "multi_thread")]
async fn the_clock_tells_one_tenant_nothing_of_the_other() {
    const SAMPLES: u64 = 80;
    let mut setup = setup();
    // A prompt takes a dozen steps unless its prefix is cached.
    setup.step = Duration::from_millis(1);
    setup.engine.max_num_seqs = 32;
    setup.engine.max_num_batched_tokens = 32;
    setup.engine.num_blocks = 8192;
    let running = setup.start();
    let prompt = |number: u64| {
        format!(
            "{number:08} {}",
            "what is it that others have asked? ".repeat(11)
        )
    };
    let (mut seen, mut unseen, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..SAMPLES {
        // In turn, so that whatever else the machine does weighs on all of them.
        let (one, other) = (prompt(3 * number), prompt(3 * number + 1));
        first_token(&running, "a", &one, 2).await;
        seen.push(first_token(&running, "b", &one, 2).await);
        unseen.push(first_token(&running, "b", &other, 2).await);
        own.push(first_token(&running, "b", &other, 3).await);
    }
    let chance = by_chance(seen.len(), unseen.len());
    let foreign = largest_difference(&seen, &unseen);
    assert!(
        foreign < chance,
        "{foreign} is no chance; it is over {chance}"
    );
    let known = largest_difference(&own, &unseen);
    assert!(
        known > chance,
        "{known}: even one's own cached prefixes do not show"
    );
}
