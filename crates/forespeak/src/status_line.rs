//! One line every few seconds while there is traffic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway::{Gateway, Load};

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
        let load = load(&gateway);
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

/// What is running and waiting here and elsewhere; the cache is that of the fullest worker.
fn load(gateway: &Gateway) -> Load {
    let mut load = gateway.worker().map(|own| own.load()).unwrap_or_default();
    for model in gateway.catalog().models() {
        let report = model.pool.report();
        load.waiting += report.waiting_requests;
        for worker in &report.workers {
            load.running += worker.in_flight as usize;
            load.kv_cache_usage = load.kv_cache_usage.max(worker.kv_usage.unwrap_or(0.0));
        }
    }
    load
}
