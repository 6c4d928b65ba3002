//! One line every few seconds while there is traffic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway::{Gateway, Worker};

const INTERVAL: Duration = Duration::from_secs(5);

/// Logs a line each interval in which something happened.
pub(crate) async fn report(gateway: Arc<Gateway>) {
    let mut before = (0, 0);
    let mut since = Instant::now();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let traffic = gateway.traffic();
        let now = (traffic.prompt_tokens(), traffic.completion_tokens());
        let seconds = since.elapsed().as_secs_f64();
        since = Instant::now();
        let load = gateway.worker().map(Worker::load).unwrap_or_default();
        if now != before || load.running > 0 {
            tracing::info!(
                target: "forespeak::status",
                "{:.1} tokens/s written, {:.1} read; {} running, {} waiting; KV cache {:.1} %",
                (now.1 - before.1) as f64 / seconds,
                (now.0 - before.0) as f64 / seconds,
                load.running,
                load.waiting,
                load.kv_cache_usage * 100.0,
            );
        }
        before = now;
    }
}
