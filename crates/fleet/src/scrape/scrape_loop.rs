//! How full a worker is.

use std::sync::Arc;

use http::StatusCode;
use tokio::time::{Instant, sleep};

use super::http_get::{GetError, Getter};
use super::{MAX_PAGE_BYTES, ScrapeConfig};
use crate::backoff::{self, Backoff};
use crate::exposition::BoundBroken;
use crate::observe::Observation;
use crate::worker::{ScrapeCounters, Worker};

/// Why a scrape showed nothing.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error(transparent)]
    Get(#[from] GetError),
    #[error("the metrics page answers {0}")]
    Status(u16),
    #[error("the metrics page is not utf-8")]
    NotText,
    #[error(transparent)]
    Bound(#[from] BoundBroken),
    /// It answers, and has nothing for us. Not a failure: some servers print no metrics.
    #[error(
        "the worker prints no metrics that are known here; routing to it goes by our own books alone"
    )]
    NothingKnown,
}

/// Scrapes a worker for as long as it is polled.
pub(crate) async fn scrape_loop(worker: Arc<Worker>, config: ScrapeConfig) {
    if worker.spec().metrics_path.is_empty() {
        return;
    }
    let getter = Getter::new(config.connect_timeout, true, worker.spec().api_key.clone());
    let pause = Backoff {
        first: config.scrape_every,
        longest: config.scrape_pause_at_most,
    };
    let mut failures = 0;
    loop {
        let asked = Instant::now().into_std();
        let outcome = scrape(&getter, &worker, &config).await;
        let counters = &worker.scrapes;
        ScrapeCounters::count(
            &counters.scrapes,
            &counters.scrapes_failed,
            outcome.is_err(),
        );
        match outcome {
            Ok(observation) => {
                failures = 0;
                worker.observed(observation, asked, Instant::now().into_std());
            }
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    tracing::warn!(worker = %worker.name(), %error, "scrape failed");
                }
                if matches!(error, ScrapeError::NothingKnown) {
                    worker.has_no_metrics();
                }
            }
        }
        tokio::select! {
            () = sleep(pause.delay(failures, backoff::chance())) => {}
            () = worker.scrape_now.notified() => {}
        }
    }
}

async fn scrape(
    getter: &Getter,
    worker: &Worker,
    config: &ScrapeConfig,
) -> Result<Observation, ScrapeError> {
    let uri = worker
        .spec()
        .url
        .join(&worker.spec().metrics_path)
        .ok_or(GetError::Address)?;
    let page = getter
        .get(uri, config.scrape_timeout, MAX_PAGE_BYTES)
        .await?;
    match StatusCode::from_u16(page.status) {
        Ok(StatusCode::OK) => {}
        Ok(StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED) => {
            return Err(ScrapeError::NothingKnown);
        }
        _ => return Err(ScrapeError::Status(page.status)),
    }
    let text = std::str::from_utf8(&page.body).map_err(|_invalid| ScrapeError::NotText)?;
    Observation::try_from_page(text)?.ok_or(ScrapeError::NothingKnown)
}
