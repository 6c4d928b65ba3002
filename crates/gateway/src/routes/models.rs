//! `/v1/models`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use protocol::models::{ModelCard, ModelList};

use crate::gateway::Gateway;
use crate::http_io::{json, refuse};
use crate::stages::{require_model, require_tenant};

pub(super) async fn list(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    let tenant = match require_tenant(&gateway.tenants(), &headers) {
        Ok(tenant) => tenant,
        Err(error) => return refuse(&error),
    };
    let cards: Vec<_> = gateway
        .names_for(&tenant)
        .map(|name| card(&gateway, name))
        .collect();
    json(&ModelList::from(cards))
}

pub(super) async fn one(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    // A name that is not UTF-8 is nobody's name.
    let id = path.map_or_else(|_| String::new(), |Path(id)| id);
    let allowed = require_tenant(&gateway.tenants(), &headers)
        .and_then(|tenant| require_model(&gateway, &tenant, Some(&id)));
    match allowed {
        Ok(()) => json(&card(&gateway, &id)),
        Err(error) => refuse(&error),
    }
}

fn card(gateway: &Gateway, name: &str) -> ModelCard {
    ModelCard::new(name, gateway.created, gateway.model.max_model_len)
}
