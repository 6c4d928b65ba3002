//! What operators and their machines ask. No key is needed for any of it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use protocol::{ApiError, ErrorKind, headers};
use serde::Serialize;

use crate::gateway::Gateway;
use crate::http_io::{json, refuse};
use crate::metrics::to_prometheus_text;
use crate::sharing::encode as sharing_metrics;
use crate::worker::Worker;

/// The process is up, and so is what generates; if not, only a restart helps.
pub(super) async fn health(State(gateway): State<Arc<Gateway>>) -> Response {
    if gateway.worker().is_none_or(Worker::is_alive) {
        StatusCode::OK.into_response()
    } else {
        refuse(&ApiError::new(
            ErrorKind::Unavailable,
            "the engine has ended; restart the server",
        ))
    }
}

/// New requests are welcome, and somebody could answer them.
pub(super) async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    let why_not = if gateway.is_draining() {
        "the server is shutting down"
    } else if !gateway.can_serve() {
        "no worker of any pool can be used"
    } else {
        return StatusCode::OK.into_response();
    };
    refuse(&ApiError::new(ErrorKind::Unavailable, why_not))
}

pub(super) async fn version() -> Response {
    #[derive(Serialize)]
    struct Version {
        version: &'static str,
    }
    json(&Version {
        version: env!("CARGO_PKG_VERSION"),
    })
}

pub(super) async fn metrics(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    let mut text = String::with_capacity(16 << 10);
    if let Some(worker) = gateway.worker() {
        worker.write_metrics(&mut text);
    }
    gateway.metrics.encode(&mut text);
    if !gateway.catalog().is_empty() {
        gateway.placement_metrics().encode(&mut text);
    }
    if let Some(recall) = &gateway.recall {
        recall.encode(&mut text);
    }
    if let Some(replicas) = gateway.replicas.get() {
        sharing_metrics(replicas.counts(), &mut text);
    }
    text.push_str("# EOF\n");
    let wants_openmetrics = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("application/openmetrics-text"));
    if wants_openmetrics {
        ([(header::CONTENT_TYPE, headers::OPENMETRICS)], text).into_response()
    } else {
        let text = to_prometheus_text(&text);
        ([(header::CONTENT_TYPE, headers::PROMETHEUS)], text).into_response()
    }
}
