//! Which admin path leads where.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Query, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{delete, get, post};
use protocol::{ApiError, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::guard::guard;
use super::{Desk, cached, speculation, workers};
use crate::http_io::{json as answer, refuse};
use crate::placement::Chosen;
use crate::tenants::{Allowance, Tenant};

/// Decisions that are shown unless more are asked for.
const DECISIONS_SHOWN: usize = 50;

pub(super) fn router(desk: Desk) -> Router {
    Router::new()
        .route("/admin/workers", get(workers::list).post(workers::add))
        .route("/admin/workers/{name}", delete(workers::remove))
        .route("/admin/workers/{name}/drain", post(workers::drain))
        .route("/admin/workers/{name}/undrain", post(workers::undrain))
        .route("/admin/decisions", get(decisions))
        .route("/admin/tenants", get(tenants))
        .route("/admin/config", get(config))
        .route("/admin/reload", post(reload))
        .route(
            "/admin/speculation",
            get(speculation::show).post(speculation::change),
        )
        .route("/admin/cache", get(cached::show))
        .route("/admin/cache/invalidate", post(cached::invalidate))
        .fallback(async || {
            refuse(&ApiError::new(
                ErrorKind::NotFound,
                "there is nothing here; try /admin/workers, /admin/decisions, /admin/tenants, /admin/config, /admin/reload, /admin/cache or /admin/speculation",
            ))
        })
        .layer(from_fn_with_state(desk.clone(), guard))
        .with_state(desk)
}

/// What decisions are asked for.
#[derive(Deserialize)]
struct Wanted {
    pool: Option<String>,
    limit: Option<usize>,
}

async fn decisions(State(desk): State<Desk>, Query(wanted): Query<Wanted>) -> Response {
    #[derive(Serialize)]
    struct Shown<'a> {
        pool: &'a str,
        #[serde(flatten)]
        decision: &'a Chosen,
    }
    let asked = |name: &str| wanted.pool.as_deref().is_none_or(|pool| pool == name);
    let pools = desk.operations.pools();
    let pools = pools.iter().filter(|pool| asked(pool.name()));
    let mut found: Vec<_> = pools
        .flat_map(|pool| {
            pool.decisions()
                .into_iter()
                .map(|decision| (pool.name(), decision))
        })
        .collect();
    found.sort_by(|(_, a), (_, b)| b.at.total_cmp(&a.at));
    found.truncate(wanted.limit.unwrap_or(DECISIONS_SHOWN));
    let shown: Vec<_> = found
        .iter()
        .map(|(pool, decision)| Shown { pool, decision })
        .collect();
    answer(&json!({ "decisions": shown }))
}

async fn tenants(State(desk): State<Desk>) -> Response {
    #[derive(Serialize)]
    struct Rate {
        limit: u64,
        remaining: u64,
        reset_seconds: f64,
    }
    #[derive(Serialize)]
    struct Shown {
        name: String,
        trusted: bool,
        running: u32,
        concurrent_limit: Option<u32>,
        requests_per_minute: Option<Rate>,
        tokens_per_minute: Option<Rate>,
    }
    let rate = |left: Allowance| Rate {
        limit: left.limit,
        remaining: left.remaining,
        reset_seconds: left.reset.as_secs_f64(),
    };
    let show = |tenant: &Arc<Tenant>| {
        let left = tenant.allowances(Instant::now());
        Shown {
            name: tenant.name.to_string(),
            trusted: tenant.trusted,
            running: tenant.running(),
            concurrent_limit: tenant.limits.concurrent,
            requests_per_minute: left.requests.map(rate),
            tokens_per_minute: left.tokens.map(rate),
        }
    };
    let shown: Vec<_> = desk.gateway.tenants().iter().map(show).collect();
    answer(&json!({ "tenants": shown }))
}

async fn config(State(desk): State<Desk>) -> Response {
    answer(&desk.operations.config())
}

async fn reload(State(desk): State<Desk>) -> Response {
    match desk.operations.reload().await {
        Ok(changes) => answer(&json!({ "changes": changes })),
        Err(reason) => refuse(&ApiError::new(
            ErrorKind::InvalidRequest,
            format!("nothing was changed: {reason}"),
        )),
    }
}
