//! Whether a worker lives.

use std::sync::Arc;
use std::time::Duration;

use protocol::headers;
use tokio::time::{Instant, sleep};

use super::ScrapeConfig;
use super::http_get::{GetError, Getter};
use crate::backoff::{self, Backoff};
use crate::health::{DrainReason, Signal};
use crate::worker::{ScrapeCounters, Worker};

/// The largest answer to a probe that is read; more than this is nothing a health page says.
const MAX_PROBE_BYTES: usize = 64 << 10;

/// Between a first bad answer and the probe that confirms it, and between probes that requests ask for.
const PROBE_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Probes a worker for as long as it is polled.
pub(crate) async fn probe_loop(worker: Arc<Worker>, config: ScrapeConfig) {
    let getter = Getter::new(config.connect_timeout, false, worker.spec().api_key.clone());
    let pause = Backoff {
        first: config.probe_every,
        longest: config.probe_every,
    };
    loop {
        let signal = probe(&getter, &worker, &config).await;
        let counters = &worker.scrapes;
        ScrapeCounters::count(
            &counters.probes,
            &counters.probes_failed,
            signal != Signal::Alive,
        );
        let again = worker.signal(signal, Instant::now().into_std());
        sleep(PROBE_AGAIN_AFTER).await;
        if again {
            continue;
        }
        let rest = pause
            .delay(0, backoff::chance())
            .saturating_sub(PROBE_AGAIN_AFTER);
        tokio::select! {
            () = sleep(rest) => {}
            () = worker.probe_now.notified() => {}
        }
    }
}

async fn probe(getter: &Getter, worker: &Worker, config: &ScrapeConfig) -> Signal {
    let Some(uri) = worker.spec().url.join(&worker.spec().health_path) else {
        return Signal::Unready;
    };
    match getter.get(uri, config.probe_timeout, MAX_PROBE_BYTES).await {
        Ok(page) => {
            if page.headers.contains_key(headers::DRAINING) {
                worker.drain(DrainReason::Leaving, Instant::now().into_std());
            }
            // A server without such a page (404) or behind a key (401) lives all the same.
            if page.status < 500 {
                Signal::Alive
            } else {
                Signal::Unready
            }
        }
        Err(GetError::TooLarge(_)) => Signal::Alive,
        Err(GetError::TimedOut) => Signal::Silent,
        Err(GetError::Unreachable(_)) => Signal::Unreachable,
        Err(GetError::Broken(_)) => Signal::Reset,
        Err(GetError::Address) => Signal::Unready,
    }
}
