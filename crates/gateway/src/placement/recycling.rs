//! Workers that leak or are stuck are drained and restarted by a hook.
//!
//! Whom and when is decided by `fleet::recycle`, which errs on the side of doing nothing: one worker at a
//! time, with pauses, never below a minimum of healthy ones. Here its decisions are carried out. A hook is
//! called once per recycling and bounded in time; what it says is logged and otherwise ignored, because
//! only the worker's return proves that it worked.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fleet::health::DrainReason;
use fleet::recycle::{Action, Evidence, RecycleConfig, RecycleReason, Recycler};
use fleet::{Snapshot, Worker, WorkerId};
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use protocol::headers;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::books::{Books, Now};
use super::shared::Shared;

/// How often the fleet is looked at: what is looked for lasts many seconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a hook may take. It starts a restart; it need not wait for its end.
const HOOK_WITHIN: Duration = Duration::from_secs(60);

/// How often a running command is looked at.
const COMMAND_LOOK_EVERY: Duration = Duration::from_millis(50);

/// When and how workers are restarted.
#[derive(Debug, Clone, PartialEq)]
pub struct RecyclingConfig {
    /// When.
    pub rules: RecycleConfig,
    /// How.
    pub hook: Hook,
}

/// What restarts a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hook {
    /// `POST` to this address (plain HTTP), with a JSON object that names `pool`, `worker`, `url` and
    /// `reason`.
    Http(http::Uri),
    /// This program with these arguments; the same four stand in `FORESPEAK_POOL`, `FORESPEAK_WORKER`,
    /// `FORESPEAK_URL` and `FORESPEAK_REASON`. No shell is involved.
    Command(Vec<String>),
}

/// What a hook is told.
#[derive(Debug, Clone, serde::Serialize)]
struct Call {
    pool: String,
    worker: String,
    url: String,
    reason: &'static str,
}

/// Recycles workers for as long as it is polled.
pub(super) async fn run(shared: Arc<Shared>, config: RecyclingConfig) {
    let mut recycler = Recycler::new(config.rules);
    // Dropping the set ends a hook that is under way.
    let mut hooks = JoinSet::new();
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        while hooks.try_join_next().is_some() {}
        let (now, fleet) = (shared.now(), shared.registry().snapshot());
        let evidence = shared.desk().books.evidence(&fleet, now);
        let Some(action) = recycler.step(&evidence, now.instant) else {
            continue;
        };
        if let Some((hook, call)) = carry_out(&shared, &config.hook, &fleet, action, now) {
            hooks.spawn(call_hook(hook, call));
        }
    }
}

/// Does what is to be done; a hook to be called is returned.
fn carry_out(
    shared: &Shared,
    hook: &Hook,
    fleet: &Snapshot,
    action: Action,
    now: Now,
) -> Option<(Hook, Call)> {
    let find = |id: WorkerId| fleet.get(id);
    match action {
        Action::Drain(id, reason) => {
            let worker = find(id)?;
            shared.meters.recycled("drained");
            tracing::warn!(
                pool = &*shared.pool,
                worker = worker.name(),
                reason = word(reason),
                "worker is to be restarted: it is drained"
            );
            worker.drain(DrainReason::Recycling, now.instant);
        }
        Action::CallHook(id, reason) => {
            shared.meters.recycled("hook_called");
            return Some((hook.clone(), call(&shared.pool, find(id)?, reason)));
        }
        Action::Readmit(id) => {
            let worker = find(id)?;
            shared.meters.recycled("readmitted");
            tracing::info!(
                pool = &*shared.pool,
                worker = worker.name(),
                "worker is back"
            );
            worker.undrain(now.instant);
        }
        Action::GiveUp(id) => {
            shared.meters.recycled("given_up");
            let worker = find(id)?;
            tracing::error!(
                pool = &*shared.pool,
                worker = worker.name(),
                "worker did not come back after its restart; it stays drained until somebody looks"
            );
        }
    }
    None
}

fn call(pool: &str, worker: &Arc<Worker>, reason: RecycleReason) -> Call {
    Call {
        pool: pool.to_owned(),
        worker: worker.name().to_owned(),
        url: worker.spec().url.to_string(),
        reason: word(reason),
    }
}

fn word(reason: RecycleReason) -> &'static str {
    match reason {
        RecycleReason::Leaking => "leaking",
        RecycleReason::Wedged => "wedged",
    }
}

async fn call_hook(hook: Hook, call: Call) {
    let worker = call.worker.clone();
    let outcome = match hook {
        Hook::Http(uri) => timeout(HOOK_WITHIN, post(uri, call))
            .await
            .unwrap_or_else(|_late| Err("it did not answer in time".to_owned())),
        Hook::Command(line) => tokio::task::spawn_blocking(move || execute(&line, &call))
            .await
            .unwrap_or_else(|_panicked| Err("it could not be run".to_owned())),
    };
    match outcome {
        Ok(()) => tracing::info!(worker, "the hook that restarts the worker was called"),
        Err(why) => tracing::error!(worker, why, "the hook that restarts the worker failed"),
    }
}

async fn post(uri: http::Uri, call: Call) -> Result<(), String> {
    let body = serde_json::to_vec(&call).map_err(|error| error.to_string())?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(uri)
        .header(CONTENT_TYPE, headers::JSON)
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client
        .request(request)
        .await
        .map_err(|error| error.to_string())?;
    if response.status().is_success() {
        Ok(())
    } else {
        Err(format!("it answered {}", response.status()))
    }
}

/// Runs a program to its end, or for [`HOOK_WITHIN`].
fn execute(line: &[String], call: &Call) -> Result<(), String> {
    let (program, arguments) = line.split_first().ok_or("no program is named")?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("FORESPEAK_POOL", &call.pool)
        .env("FORESPEAK_WORKER", &call.worker)
        .env("FORESPEAK_URL", &call.url)
        .env("FORESPEAK_REASON", call.reason)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{program} ended with {status}")),
            Ok(None) if began.elapsed() < HOOK_WITHIN => std::thread::sleep(COMMAND_LOOK_EVERY),
            Ok(None) | Err(_) => {
                // Whether it dies of this or has just ended is all the same.
                let _ended = child.kill().and_then(|()| child.wait());
                return Err(format!("{program} did not end in time"));
            }
        }
    }
}

impl Books {
    /// What the recycler is to know of every worker.
    fn evidence(&self, fleet: &Snapshot, now: Now) -> Vec<Evidence> {
        let workers = fleet.workers().iter();
        workers
            .filter_map(|worker| {
                let account = self.account(worker.id())?;
                Some(worker.evidence(account.claimed_tokens, now.instant))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call {
            pool: "p".to_owned(),
            worker: "w".to_owned(),
            url: "http://w:1".to_owned(),
            reason: "wedged",
        }
    }

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_command_is_told_whom_to_restart_and_why() {
        let script = r#"test "$FORESPEAK_POOL $FORESPEAK_WORKER $FORESPEAK_URL $FORESPEAK_REASON" = "p w http://w:1 wedged""#;
        assert_eq!(execute(&shell(script), &call()), Ok(()));
    }

    #[test]
    fn a_command_that_fails_is_told() {
        assert!(execute(&shell("exit 3"), &call()).is_err());
        assert!(execute(&["/no/such/program".to_owned()], &call()).is_err());
        assert!(execute(&[], &call()).is_err());
    }

    #[tokio::test]
    async fn an_http_hook_gets_the_same_as_json() {
        use axum::routing::post;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (told, mut tell) = tokio::sync::mpsc::channel::<serde_json::Value>(1);
        let route = post(move |body: axum::Json<serde_json::Value>| async move {
            told.send(body.0).await.unwrap();
        });
        let server = tokio::spawn(async move {
            axum::serve(listener, axum::Router::new().route("/restart", route)).await
        });
        let uri = format!("http://{address}/restart").parse().unwrap();
        assert_eq!(super::post(uri, call()).await, Ok(()));
        let body = tell.recv().await.unwrap();
        assert_eq!(
            body,
            serde_json::json!({"pool": "p", "worker": "w", "url": "http://w:1", "reason": "wedged"})
        );
        server.abort();
    }
}
