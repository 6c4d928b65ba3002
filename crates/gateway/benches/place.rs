//! What placing a request costs: eight workers, the bundled model's tokenizer and template.
//!
//! ```text
//! cargo bench -p forespeak-gateway --bench place
//! ```
//! The last line is what a task that owned the books would cost on top of a decision, at the least: the way
//! there and back, with nothing decided and nobody else asking.
#![allow(clippy::print_stdout, reason = "figures are what it is for")]
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark that cannot run should say so"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fleet::{FleetConfig, WorkerSpec, WorkerUrl};
use forespeak_gateway::placement::{Ask, Outcome, Pool, PoolConfig, PromptSpans, Reported};
use forespeak_gateway::{Codec, ModelCodec};
use model::gguf::Gguf;
use model::{ChatTemplate, Tokenizer};
use protocol::survey::Survey;
use routing::Priority;
use serde_json::{Value, json};
use testkit::mock_vllm::{MockConfig, MockVllm};
use tokio::sync::{mpsc, oneshot};

const WORKERS: usize = 8;
const ROUNDS: u32 = 2_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure());
}

async fn measure() {
    let mut mocks = Vec::new();
    for _ in 0..WORKERS {
        let mut config = MockConfig::default();
        config.worker.kv_tokens = 1 << 22;
        mocks.push(MockVllm::start(config).await.unwrap());
    }
    let spec = |mock: &MockVllm| WorkerSpec::new(WorkerUrl::parse(&mock.url()).unwrap());
    let fleet = FleetConfig {
        workers: mocks.iter().map(spec).collect(),
        ..FleetConfig::default()
    };
    let pool = Pool::start(PoolConfig::new("default", fleet), Some(codec())).unwrap();
    let pool = Arc::new(pool);
    while pool
        .report()
        .workers
        .iter()
        .any(|one| one.kv_capacity_tokens.is_none())
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    println!("{:>44} {:>12}", "what", "each");
    for (name, bytes) in [("4 kB", 4_000), ("40 kB", 40_000), ("400 kB", 400_000)] {
        let rounds = if bytes > 100_000 { ROUNDS / 4 } else { ROUNDS };
        let mut chat = messages(bytes, 0);
        let same = ask(&chat);
        place(&pool, &same).await;
        let repeated = each(rounds, async |_| place(&pool, &same).await).await;
        show(&format!("the same chat of {name} again"), repeated);

        let mut grown = Duration::ZERO;
        const TURNS: u32 = 50;
        for turn in 0..TURNS {
            chat.push(json!({"role": "assistant", "content": format!("answer {turn}")}));
            chat.push(json!({"role": "user", "content": format!("question {turn}: why is that?")}));
            let ask = ask(&chat);
            let began = Instant::now();
            place(&pool, &ask).await;
            grown += began.elapsed();
        }
        show(&format!("its next turn ({name} before)"), grown / TURNS);

        let new: Vec<Ask> = (1..20).map(|seed| ask(&messages(bytes, seed))).collect();
        let began = Instant::now();
        for ask in &new {
            place(&pool, ask).await;
        }
        show(
            &format!("a new chat of {name}"),
            began.elapsed() / new.len() as u32,
        );
    }

    let same = ask(&messages(4_000, 0));
    let began = Instant::now();
    const TASKS: u32 = 64;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (pool, same) = (Arc::clone(&pool), same.clone());
            tokio::spawn(async move {
                for _ in 0..ROUNDS / 4 {
                    place(&pool, &same).await;
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let all = began.elapsed() / (TASKS * (ROUNDS / 4));
    show("4 kB again, 64 tasks on 2 threads, per place", all);

    let (door, mut inbox) = mpsc::channel::<oneshot::Sender<u64>>(1024);
    let owner = tokio::spawn(async move {
        let mut asked = 0;
        while let Some(answer) = inbox.recv().await {
            asked += 1;
            let _gone = answer.send(asked);
        }
    });
    let asking = {
        let door = door.clone();
        tokio::spawn(async move {
            let began = Instant::now();
            for _ in 0..ROUNDS {
                let (answer, word) = oneshot::channel();
                door.send(answer).await.unwrap();
                word.await.unwrap();
            }
            began.elapsed() / ROUNDS
        })
    };
    show(
        "for comparison: asking a task for nothing",
        asking.await.unwrap(),
    );
    drop(door);
    owner.await.unwrap();
}

/// Places and settles as a short answer would.
async fn place(pool: &Pool, ask: &Ask) {
    let mut placement = pool.place(ask, &[]).await.unwrap();
    placement.started();
    placement.settle(Outcome::Finished(Reported::default()));
}

async fn each(rounds: u32, mut work: impl AsyncFnMut(u32)) -> Duration {
    let began = Instant::now();
    for round in 0..rounds {
        work(round).await;
    }
    began.elapsed() / rounds
}

fn show(what: &str, each: Duration) {
    println!("{what:>44} {:>9.1} us", each.as_secs_f64() * 1e6);
}

fn codec() -> Arc<dyn Codec> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let bytes = std::fs::read(models.join("forespeak-target.gguf")).unwrap();
    let tokenizer = Tokenizer::from_gguf(&Gguf::parse("target", &bytes).unwrap()).unwrap();
    let template = std::fs::read_to_string(models.join("chat_template.jinja")).unwrap();
    let template = ChatTemplate::new(&template, "", "").unwrap();
    Arc::new(ModelCodec::new(Arc::new(tokenizer), Some(template)))
}

/// A chat of about so many bytes, in messages of some hundred.
fn messages(bytes: usize, seed: u64) -> Vec<Value> {
    const MESSAGE_BYTES: usize = 400;
    (0..bytes.div_ceil(MESSAGE_BYTES).max(1))
        .map(|number| {
            let role = if number % 2 == 0 { "user" } else { "assistant" };
            let mut text = format!("message {number} of chat {seed}:");
            while text.len() < MESSAGE_BYTES.min(bytes) {
                text.push_str(" every worker holds what it was sent last,");
            }
            json!({"role": role, "content": text})
        })
        .collect()
}

fn ask(messages: &[Value]) -> Ask {
    let body = json!({"model": "m", "messages": messages, "max_tokens": 64, "stream": true});
    let body = Bytes::from(serde_json::to_vec(&body).unwrap());
    let survey = Survey::read(&body).unwrap();
    Ask {
        tenant: Arc::from("tenant"),
        salt: Arc::from("salt"),
        lora: None,
        prompt: PromptSpans::chat(&survey, &body),
        body,
        max_tokens: Some(64),
        answers: 1,
        priority: Priority::Normal,
        session: None,
        deadline: tokio::time::Instant::now() + Duration::from_secs(3600),
    }
}
