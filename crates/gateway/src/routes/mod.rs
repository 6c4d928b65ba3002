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
use crate::pipeline::serve;
use crate::route::{RELAYED_PATHS, Route};
pub(crate) use tokens::{detokenize, tokenize};

pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    let own = [
        Route::Chat,
        Route::Completions,
        Route::Tokenize,
        Route::Detokenize,
    ];
    let relayed = RELAYED_PATHS.map(Route::Other);
    let served = own
        .into_iter()
        .chain(relayed)
        .fold(Router::new(), |router, route| {
            let serve = move |State(gateway): State<Arc<Gateway>>, request: Request<Body>| {
                serve(gateway, route, request)
            };
            router.route(route.path(), post(serve))
        });
    served
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::one))
        .route("/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/version", get(status::version))
        .route("/metrics", get(status::metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(gateway)
}

async fn unknown_path(request: Request<Body>) -> Response {
    refuse(&no_such_path(request.uri().path()))
}

/// The refusal of a path that leads nowhere.
pub(crate) fn no_such_path(path: &str) -> ApiError {
    ApiError::new(
        ErrorKind::NotFound,
        format!(
            "there is nothing at {path}; try /v1/chat/completions, /v1/completions or /v1/models"
        ),
    )
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
