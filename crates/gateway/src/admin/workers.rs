//! Workers come and go on an operator's word.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use fleet::health::DrainReason;
use fleet::{DEFAULT_POOL, FleetError, Worker, WorkerSpec};
use http::{Request, StatusCode};
use protocol::{ApiError, ErrorKind};
use serde_json::json;

use super::Desk;
use crate::http_io::{json as answer, read_json_body, refuse};
use crate::placement::Pool;

pub(super) async fn list(State(desk): State<Desk>) -> Response {
    let pools: Vec<_> = desk
        .operations
        .pools()
        .iter()
        .map(|pool| pool.report())
        .collect();
    answer(&json!({ "pools": pools }))
}

pub(super) async fn add(State(desk): State<Desk>, request: Request<Body>) -> Response {
    match add_worker(&desk, request).await {
        Ok((pool, name)) => {
            tracing::info!(worker = name, pool, "worker added by an operator");
            let mut response = answer(&json!({ "pool": pool, "name": name }));
            *response.status_mut() = StatusCode::CREATED;
            response
        }
        Err(error) => refuse(&error),
    }
}

async fn add_worker(desk: &Desk, request: Request<Body>) -> Result<(String, String), ApiError> {
    let (parts, body) = request.into_parts();
    let body = read_json_body(&parts.headers, body).await?;
    let mut spec: WorkerSpec = serde_json::from_slice(&body).map_err(|error| {
        ApiError::new(
            ErrorKind::InvalidRequest,
            format!("{error}; send {{\"url\": \"http://host:port\", \"pool\": …}}"),
        )
    })?;
    let pools = desk.operations.pools();
    // Where there is one pool, nobody need name it.
    let pool = match pools.as_slice() {
        [only] if spec.pool == DEFAULT_POOL => only,
        pools => pools
            .iter()
            .find(|pool| pool.name() == spec.pool)
            .ok_or_else(|| no_such("pool", &spec.pool))?,
    };
    spec.pool = pool.name().to_owned();
    let name = spec.name().to_owned();
    pool.fleet()
        .registry()
        .add(spec, Instant::now())
        .map_err(|error| ApiError::new(ErrorKind::InvalidRequest, error.to_string()))?;
    Ok((pool.name().to_owned(), name))
}

pub(super) async fn remove(State(desk): State<Desk>, Path(name): Path<String>) -> Response {
    let removed = pool_of(&desk, &name).and_then(|(pool, _)| {
        let removed = pool.fleet().registry().remove(&name, Instant::now());
        removed.map_err(|error: FleetError| ApiError::new(ErrorKind::NotFound, error.to_string()))
    });
    match removed {
        Ok(_) => {
            tracing::info!(worker = name, "worker removed by an operator");
            answer(&json!({ "name": name, "removed": true }))
        }
        Err(error) => refuse(&error),
    }
}

pub(super) async fn drain(State(desk): State<Desk>, Path(name): Path<String>) -> Response {
    tell(&desk, &name, |worker| {
        worker.drain(DrainReason::Operator, Instant::now())
    })
}

pub(super) async fn undrain(State(desk): State<Desk>, Path(name): Path<String>) -> Response {
    tell(&desk, &name, |worker| worker.undrain(Instant::now()))
}

fn tell(desk: &Desk, name: &str, what: impl FnOnce(&Worker)) -> Response {
    match pool_of(desk, name) {
        Ok((_, worker)) => {
            what(&worker);
            answer(&json!({
                "name": name,
                "draining": worker.draining().map(|draining| draining.reason.word()),
                "in_flight": worker.in_flight(),
            }))
        }
        Err(error) => refuse(&error),
    }
}

fn pool_of(desk: &Desk, name: &str) -> Result<(Arc<Pool>, Arc<Worker>), ApiError> {
    let found = desk.operations.pools().into_iter().find_map(|pool| {
        let worker = pool.snapshot().by_name(name).cloned()?;
        Some((pool, worker))
    });
    found.ok_or_else(|| no_such("worker", name))
}

fn no_such(what: &str, name: &str) -> ApiError {
    ApiError::new(
        ErrorKind::NotFound,
        format!("there is no {what} {name:?}; GET /admin/workers lists them"),
    )
}
