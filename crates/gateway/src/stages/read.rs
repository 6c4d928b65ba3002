//! The body is read, and who serves it follows from the model it names.

use std::sync::Arc;

use bytes::Bytes;
use protocol::limits::MAX_NAME_BYTES;
use protocol::survey::Survey;
use protocol::{ApiError, ErrorKind};

use super::identify::Identified;
use crate::catalog::FleetModel;
use crate::gateway::{Embedded, Gateway};
use crate::http_io::read_json_body;
use crate::near::{QUICK_BYTES, run_far};
use crate::tenants::Tenant;

/// Who serves a request.
pub(crate) enum Server {
    /// The engine in this process, which reads the body in full.
    Engine(Arc<Embedded>),
    /// Workers elsewhere, which get the body as it came.
    Fleet {
        model: Arc<FleetModel>,
        survey: Survey,
    },
}

/// A request whose body is here.
pub(crate) struct Read {
    pub(crate) identified: Identified,
    pub(crate) body: Bytes,
    pub(crate) server: Server,
}

/// Bytes of a body that make a token, roughly: what is reserved before anybody has counted is settled later.
const BYTES_PER_TOKEN: u64 = 4;

impl Read {
    /// What it may take of its tenant's tokens: the prompt, and the answer as far as it says.
    pub(crate) fn likely_tokens(&self) -> u64 {
        let asked = match &self.server {
            Server::Engine(_) => 0,
            Server::Fleet { survey, .. } => {
                let answers = survey.n.max(1).saturating_mul(survey.prompts.max(1));
                survey.max_tokens.unwrap_or(0).saturating_mul(answers)
            }
        };
        (self.body.len() as u64 / BYTES_PER_TOKEN).saturating_add(asked)
    }
}

pub(crate) async fn read(gateway: &Gateway, mut identified: Identified) -> Result<Read, ApiError> {
    let body = std::mem::take(&mut identified.request.body);
    let body = read_json_body(&identified.request.headers, body).await?;
    let server = server_of(gateway, &identified.tenant, &body).await?;
    Ok(Read {
        identified,
        body,
        server,
    })
}

async fn server_of(gateway: &Gateway, tenant: &Tenant, body: &Bytes) -> Result<Server, ApiError> {
    let catalog = gateway.catalog();
    if catalog.is_empty()
        && let Some(embedded) = gateway.embedded()
    {
        return Ok(Server::Engine(Arc::clone(embedded)));
    }
    let survey = survey(body).await?;
    let model = match survey.model.as_deref() {
        Some(name) => catalog.get(name),
        None if gateway.embedded().is_some() => None,
        None => catalog.only(),
    };
    match (model, gateway.embedded(), survey.model.as_deref()) {
        (Some(model), _, _) => Ok(Server::Fleet {
            model: Arc::clone(model),
            survey,
        }),
        (None, Some(embedded), _) => Ok(Server::Engine(Arc::clone(embedded))),
        (None, None, Some(name)) => Err(not_served(gateway, tenant, name)),
        (None, None, None) => Err(ApiError::invalid(
            "model",
            "model is missing; say which of /v1/models is to answer",
        )),
    }
}

/// A survey of megabytes goes to a blocking thread, like other work on large bodies.
async fn survey(body: &Bytes) -> Result<Survey, ApiError> {
    if body.len() <= QUICK_BYTES {
        return Survey::read(body);
    }
    let shared = body.clone();
    run_far(move || Survey::read(&shared)).await
}

/// The refusal of a model that is not there, or not for this tenant: which of the two nobody learns.
pub(crate) fn no_such_model(name: &str, other: Option<&str>) -> ApiError {
    let shown: String = name.chars().take(MAX_NAME_BYTES).collect();
    let message = match other {
        Some(other) => format!("the model {shown:?} is not served here; use {other:?}"),
        None => format!("the model {shown:?} is not served here"),
    };
    ApiError::new(ErrorKind::NotFound, message)
        .about("model")
        .with_code("model_not_found")
}

/// The same, with a name that the tenant may use instead.
pub(crate) fn not_served(gateway: &Gateway, tenant: &Tenant, name: &str) -> ApiError {
    let models = gateway.models_for(tenant);
    no_such_model(name, models.first().map(|(other, _)| other.as_str()))
}
