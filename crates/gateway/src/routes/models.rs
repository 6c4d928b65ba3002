//! `/v1/models`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use protocol::models::{ModelCard, ModelList};

use crate::gateway::Gateway;
use crate::http_io::{json, refuse};
use crate::stages::{not_served, require_tenant};

pub(super) async fn list(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    let tenant = match require_tenant(&gateway.tenants(), &headers) {
        Ok(tenant) => tenant,
        Err(error) => return refuse(&error),
    };
    let models = gateway.models_for(&tenant).into_iter();
    let cards: Vec<_> = models.map(|model| card(&gateway, model)).collect();
    json(&ModelList::from(cards))
}

pub(super) async fn one(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    // A name that is not UTF-8 is nobody's name.
    let id = path.map_or_else(|_| String::new(), |Path(id)| id);
    let tenant = match require_tenant(&gateway.tenants(), &headers) {
        Ok(tenant) => tenant,
        Err(error) => return refuse(&error),
    };
    let mut models = gateway.models_for(&tenant).into_iter();
    match models.find(|(name, _)| *name == id) {
        Some(model) => json(&card(&gateway, model)),
        None => refuse(&not_served(&gateway, &tenant, &id)),
    }
}

fn card(gateway: &Gateway, (name, max_model_len): (String, Option<usize>)) -> ModelCard {
    ModelCard::new(name, gateway.created, max_model_len)
}
