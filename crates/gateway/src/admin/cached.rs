//! What the response cache holds, and how it forgets on an operator's word.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use cache::{Cache, Scope};
use http::Request;
use protocol::{ApiError, ErrorKind};
use serde::Deserialize;
use serde_json::json;

use super::Desk;
use crate::http_io::{json as answer, read_json_body, refuse};

pub(super) async fn show(State(desk): State<Desk>) -> Response {
    match cache_of(&desk) {
        Err(error) => refuse(&error),
        Ok(cache) => {
            let (counts, saved) = (cache.counts(), cache.saved());
            answer(&json!({
                "entries": counts.entries,
                "bytes": counts.bytes,
                "hits": counts.hits.iter().sum::<u64>(),
                "misses": counts.misses,
                "coalesced": counts.coalesced,
                "bypassed": counts.bypassed.iter().sum::<u64>(),
                "rejected": counts.rejected,
                "in_flight": counts.flights,
                "prompt_tokens_saved": saved.iter().map(|saved| saved.prompt_tokens).sum::<u64>(),
                "completion_tokens_saved": saved.iter().map(|saved| saved.completion_tokens).sum::<u64>(),
            }))
        }
    }
}

/// What is to be forgotten.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(default)]
    all: bool,
    tenant: Option<String>,
    model: Option<String>,
    context: Option<String>,
}

impl Wanted {
    fn scope(&self) -> Option<Scope<'_>> {
        let named = (
            self.tenant.as_deref(),
            self.model.as_deref(),
            self.context.as_deref(),
        );
        match (self.all, named) {
            (true, (None, None, None)) => Some(Scope::All),
            (false, (Some(tenant), None, None)) => Some(Scope::Tenant(tenant)),
            (false, (None, Some(model), None)) => Some(Scope::Model(model)),
            (false, (Some(tenant), None, Some(tag))) => Some(Scope::Context { tenant, tag }),
            _ => None,
        }
    }
}

pub(super) async fn invalidate(State(desk): State<Desk>, request: Request<Body>) -> Response {
    match forget(&desk, request).await {
        Ok(response) => response,
        Err(error) => refuse(&error),
    }
}

async fn forget(desk: &Desk, request: Request<Body>) -> Result<Response, ApiError> {
    let cache = cache_of(desk)?;
    let (parts, body) = request.into_parts();
    let body = read_json_body(&parts.headers, body).await?;
    let wanted: Option<Wanted> = serde_json::from_slice(&body).ok();
    let scope = wanted.as_ref().and_then(Wanted::scope).ok_or_else(|| {
        ApiError::new(
            ErrorKind::InvalidRequest,
            "send {\"all\": true}, {\"tenant\": …}, {\"model\": …} or {\"tenant\": …, \"context\": …}",
        )
    })?;
    let told = cache.invalidate(scope).await;
    tracing::info!(?scope, told, "answers invalidated by an operator");
    Ok(answer(&json!({ "invalidated": true, "others_told": told })))
}

fn cache_of(desk: &Desk) -> Result<&Cache, ApiError> {
    let recall = desk.gateway.recall.as_ref();
    recall.map(|recall| recall.cache.as_ref()).ok_or_else(|| {
        ApiError::new(
            ErrorKind::NotFound,
            "there is no response cache; start with --cache memory",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_scope_at_a_time() {
        let scope = |text: &str| {
            let wanted = serde_json::from_str::<Wanted>(text).unwrap();
            wanted.scope().map(|scope| format!("{scope:?}"))
        };
        assert_eq!(scope(r#"{"all": true}"#).as_deref(), Some("All"));
        assert_eq!(scope(r#"{"model": "m"}"#).as_deref(), Some("Model(\"m\")"));
        assert!(
            scope(r#"{"tenant": "t", "context": "c"}"#)
                .unwrap()
                .starts_with("Context")
        );
        for unclear in [
            "{}",
            r#"{"all": true, "model": "m"}"#,
            r#"{"context": "c"}"#,
        ] {
            assert_eq!(scope(unclear), None, "{unclear}");
        }
    }
}
