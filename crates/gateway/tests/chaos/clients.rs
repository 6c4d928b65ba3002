//! Clients that ask, read, and sometimes leave.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bench::Outcome;
use bench::client::{Address, Limits, Pool, send};
use bytes::Bytes;
use serde_json::json;
use simulator::rng::Rng;
use testkit::mock_vllm::{Answer, Vocabulary};
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::front::MODEL;

/// How many ask at once.
pub(crate) const CLIENTS: usize = 24;

/// Longer than the gateway may take for anything: whoever waits so long was forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// What a client was told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) outcome: Outcome,
    pub(crate) text: String,
    pub(crate) expected: String,
    #[expect(dead_code, reason = "shown when a check fails")]
    pub(crate) request: String,
    #[expect(dead_code, reason = "shown when a check fails")]
    pub(crate) error: Option<String>,
}

/// Asks until the time is over and every answer has come. On a thread of its own.
pub(crate) fn ask_until(address: SocketAddr, lasting: Duration, seed: u64) -> Vec<Told> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let told = Rc::new(RefCell::new(Vec::new()));
    let clients = LocalSet::new();
    let pool = Rc::new(Pool::new(
        Address::parse(&format!("http://{address}")).unwrap(),
        false,
    ));
    let until = std::time::Instant::now() + lasting;
    for client in 0..CLIENTS as u64 {
        let (told, pool) = (Rc::clone(&told), Rc::clone(&pool));
        clients.spawn_local(async move {
            let mut rng = Rng::new(seed ^ (client << 32));
            while Instant::now().into_std() < until {
                let answer = ask(&pool, &mut rng).await;
                told.borrow_mut().push(answer);
            }
        });
    }
    runtime.block_on(clients);
    Rc::try_unwrap(told).unwrap().into_inner()
}

async fn ask(pool: &Pool, rng: &mut Rng) -> Told {
    let group = rng.between(0, 6);
    let question = format!(
        "{}\n{}",
        "of the ".repeat(40 + 10 * group as usize),
        rng.next_u64()
    );
    let most = rng.between(1, 80);
    let stream = rng.unit() < 0.8;
    let leave_after = (stream && rng.unit() < 0.15).then(|| rng.between(1, most) as u32);
    let (path, mut body, prompt) = if rng.unit() < 0.7 {
        let messages = json!([{"role": "user", "content": question}]);
        let prompt = Vocabulary::Words.render(messages.as_array().unwrap(), false);
        (
            "/v1/chat/completions",
            json!({ "messages": messages }),
            prompt.unwrap(),
        )
    } else {
        ("/v1/completions", json!({ "prompt": question }), question)
    };
    body["model"] = json!(MODEL);
    body["max_tokens"] = json!(most);
    body["stream"] = json!(stream);
    body["ignore_eos"] = json!(true);
    // Greedy answers may be continued elsewhere, others may not.
    body["temperature"] = json!(if rng.unit() < 0.7 { 0.0 } else { 1.0 });
    let request = body.to_string();
    let limits = Limits {
        timeout: FORGOTTEN_AFTER,
        leave_after,
        keep_text: true,
    };
    let answered = send(pool, path, None, Bytes::from(request.clone()), limits).await;
    Told {
        outcome: answered.outcome,
        text: answered.text,
        expected: Answer::to(&Vocabulary::Words, prompt.as_bytes(), most, 0).text,
        request,
        error: answered.error,
    }
}
