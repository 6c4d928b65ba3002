//! Which path leads where.

mod models;
mod status;
mod tokens;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use http::Request;
use protocol::{ApiError, ErrorKind};

use crate::gateway::Gateway;
use crate::http_io::refuse;
use crate::pipeline::generate;
use crate::record::Route;

pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route(Route::Chat.path(), post(chat))
        .route(Route::Completions.path(), post(completions))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::one))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/version", get(status::version))
        .route("/metrics", get(status::metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(gateway)
}

async fn chat(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response {
    generate(gateway, Route::Chat, request).await
}

async fn completions(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response {
    generate(gateway, Route::Completions, request).await
}

async fn unknown_path(request: Request<Body>) -> Response {
    refuse(&ApiError::new(
        ErrorKind::NotFound,
        format!(
            "there is nothing at {}; try /v1/chat/completions, /v1/completions or /v1/models",
            request.uri().path()
        ),
    ))
}

async fn wrong_method(request: Request<Body>) -> Response {
    refuse(&ApiError::new(
        ErrorKind::MethodNotAllowed,
        format!(
            "{} does not take {}",
            request.uri().path(),
            request.method()
        ),
    ))
}
