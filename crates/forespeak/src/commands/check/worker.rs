//! What is wrong with one worker.

use std::time::Duration;

use fleet::WorkerSpec;
use fleet::observe::{Dialect, Observation, SleepState};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ask::Said;
use super::report::Report;

/// How long a publisher of KV events may take to take a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// The oldest vLLM whose metrics are known here.
const OLDEST_VLLM: (u32, u32) = (0, 6);

/// Looks at what a worker said. False if it said nothing.
pub(super) async fn look_at(
    worker: &WorkerSpec,
    pool: &config::Pool,
    said: &Said,
    report: &mut Report,
) -> bool {
    let name = worker.name();
    match &said.health {
        Ok((status, took)) if *status < 500 => {
            let took = took.as_secs_f64() * 1e3;
            report.ok(name, format!("{} answers within {took:.1} ms", worker.url));
        }
        Ok((status, _)) => {
            report.failure(
                name,
                format!("{}{} answers {status}", worker.url, worker.health_path),
                "look at its log; until it answers otherwise it gets nothing",
            );
        }
        Err(error) => {
            report.failure(
                name,
                format!("{}: {error}", worker.url),
                "start it, or correct its url",
            );
            return false;
        }
    }
    look_at_version(name, said, report);
    look_at_metrics(name, pool, said, report);
    look_at_events(worker, report).await;
    true
}

fn look_at_version(name: &str, said: &Said, report: &mut Report) {
    let is_vllm = said
        .metrics
        .as_ref()
        .is_ok_and(|seen| seen.dialect == Dialect::Vllm);
    match &said.version {
        Some(version) if is_vllm && parse(version).is_some_and(|number| number < OLDEST_VLLM) => {
            // Our own engine prints vLLM's names, too, under numbers of its own.
            report.warning(
                name,
                format!("it says it is version {version}"),
                "if it is a vLLM, take 0.6 or newer: older metrics are not known here",
            );
        }
        Some(version) => report.ok(name, format!("it is version {version}")),
        None => report.warning(
            name,
            "it does not say its version at /version".to_owned(),
            "nothing, if it is no vLLM",
        ),
    }
}

/// The first two numbers.
fn parse(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(['.', 'r', 'd', '+']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn look_at_metrics(name: &str, pool: &config::Pool, said: &Said, report: &mut Report) {
    let seen = match &said.metrics {
        Ok(seen) => seen,
        Err(error) => {
            report.failure(
                name,
                format!("no metrics: {error}"),
                "without them nobody knows how full it is; set metrics_path, or start llama.cpp with --metrics",
            );
            return;
        }
    };
    report.ok(name, format!("its metrics are {}", describe(seen)));
    if seen.sleep.is_some_and(|state| state != SleepState::Awake) {
        report.warning(name, "it is asleep".to_owned(), "wake it: POST /wake_up");
    }
    match seen.cache.prefix_caching {
        Some(true) => report.ok(name, "prefix caching is on".to_owned()),
        Some(false) => report.failure(
            name,
            "prefix caching is off".to_owned(),
            "start vLLM without --no-enable-prefix-caching: routing by prefix is of no use without it",
        ),
        None => report.warning(
            name,
            "it does not say whether it caches prefixes".to_owned(),
            "nothing, if it is no vLLM",
        ),
    }
    if let Some(block_size) = seen.cache.block_size
        && !(block_size as usize).is_multiple_of(pool.block_tokens.max(1))
    {
        report.failure(
            name,
            format!(
                "its blocks have {block_size} tokens, which {} (block_tokens) does not divide",
                pool.block_tokens
            ),
            "set block_tokens of the pool to a divisor, or its KV events are of no use",
        );
    }
}

fn describe(seen: &Observation) -> String {
    let whose = match seen.dialect {
        Dialect::Vllm => "vLLM's",
        Dialect::Sglang => "SGLang's",
        Dialect::LlamaCpp => "llama.cpp's",
    };
    match seen.cache.capacity_tokens {
        Some(tokens) => format!("{whose}, with room for {tokens} tokens in its KV cache"),
        None => format!("{whose}, without the size of its KV cache"),
    }
}

async fn look_at_events(worker: &WorkerSpec, report: &mut Report) {
    let name = worker.name();
    let Some(events) = &worker.events else {
        report.warning(
            name,
            "its KV events are not followed: what it caches is guessed from what was sent to it"
                .to_owned(),
            "start vLLM with --kv-events-config and set events of the worker (--worker-kv-events, --worker-kv-replay)",
        );
        return;
    };
    let endpoint = events.endpoint.replace("{host}", worker.url.host());
    let Some(address) = endpoint.strip_prefix("tcp://") else {
        return;
    };
    match timeout(CONNECT_WITHIN, TcpStream::connect(address)).await {
        Ok(Ok(_)) => report.ok(name, format!("KV events come from {endpoint}")),
        Ok(Err(error)) => report.failure(
            name,
            format!("no KV events from {endpoint}: {error}"),
            "start vLLM with --kv-events-config '{\"enable_kv_cache_events\": true, \"publisher\": \"zmq\", \
             \"endpoint\": \"tcp://*:5557\"}'; with an address in place of * it does not listen",
        ),
        Err(_elapsed) => report.failure(
            name,
            format!("no KV events from {endpoint}: no connection in time"),
            "open the port, or correct the endpoint",
        ),
    }
    if events.replay.is_none() {
        report.warning(
            name,
            "there is no replay of its KV events: a message that is missed costs all knowledge of its cache".to_owned(),
            "add \"replay_endpoint\" to vLLM's --kv-events-config, and replay to events (--worker-kv-replay)",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse("0.32.0"), Some((0, 32)));
        assert_eq!(parse("0.6rc1"), Some((0, 6)));
        assert_eq!(parse("0.10.1.dev3+gabc"), Some((0, 10)));
        assert!(parse("0.5.4").unwrap() < OLDEST_VLLM);
        assert_eq!(parse("nightly"), None);
    }
}
