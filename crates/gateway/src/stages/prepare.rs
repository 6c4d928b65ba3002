//! A request to a fleet gets its place in it: what its tenant may ask for, whose cache it may share, how
//! much it matters, and what of it the worker will see.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use protocol::survey::{Edits, Pieces, Survey};
use protocol::{ApiError, headers};
use routing::Priority;
use tokio::time::Instant;
use twox_hash::XxHash3_64;

use super::identify::Identified;
use super::read::not_served;
use super::receive::Received;
use crate::catalog::FleetModel;
use crate::gateway::Gateway;
use crate::placement::{Ask, PromptSpans};
use crate::route::Route;
use crate::tenants::Tenant;

/// Headers of distributed tracing, which go on as they are.
const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// Fields that tie requests together, the most telling first.
const SESSION_FIELDS: [&str; 3] = ["session_id", "prompt_cache_key", "user"];

/// A request that is ready to be placed.
pub(crate) struct Prepared {
    pub(crate) id: Arc<str>,
    /// By which the worker knows it: no two requests have the same, or one could end the other.
    pub(crate) worker_id: http::HeaderValue,
    pub(crate) route: Route,
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) model: Arc<FleetModel>,
    pub(crate) survey: Survey,
    /// As it came.
    pub(crate) body: Bytes,
    /// What [`crate::placement`] needs to know.
    pub(crate) ask: Ask,
    /// What the worker calls the model, where that is not what the client said.
    upstream_name: Option<String>,
    /// Whether the usage at the end of a stream is for more than the client.
    pub(crate) keeps_usage: bool,
    pub(crate) trace: Vec<(http::HeaderName, http::HeaderValue)>,
}

/// What was said of an answer that is to be continued.
pub(crate) struct SoFar<'a> {
    /// As it stood in JSON, with its escapes.
    pub(crate) text: &'a [u8],
    /// About how many tokens that is.
    pub(crate) tokens: u64,
}

pub(crate) fn prepare(
    gateway: &Gateway,
    Identified { request, tenant }: Identified,
    model: Arc<FleetModel>,
    survey: Survey,
    body: Bytes,
) -> Result<Prepared, ApiError> {
    let own_name = model.names.first().map_or("", String::as_str);
    let name = survey.model.as_deref().unwrap_or(own_name);
    if !tenant.models.allow(name) {
        return Err(not_served(gateway, &tenant, name));
    }
    survey.require_allowed(&tenant.extra_fields)?;

    let adapter = model.adapter(name);
    let upstream_name = match (&model.upstream_name, adapter) {
        (Some(upstream), None) if upstream != name => Some(upstream.clone()),
        (None, None) if survey.model.is_none() => Some(own_name.to_owned()),
        _ => None,
    };
    let asked = asked_priority(&request.headers, &survey)?;
    let salt = tenant.cache_salt(survey.cache_salt.as_deref());
    let ask = Ask {
        tenant: Arc::clone(&tenant.name),
        salt: salt.unwrap_or_default(),
        lora: adapter.map(Arc::from),
        prompt: prompt_spans(request.route, &survey, &body),
        body: body.clone(),
        max_tokens: survey.max_tokens,
        answers: u32::try_from(survey.n.max(1) * survey.prompts).unwrap_or(u32::MAX),
        priority: tenant.priority(asked),
        session: session(&request.headers, &survey, &body),
        deadline: Instant::now() + longest(&model),
    };
    let trace = TRACE_HEADERS
        .iter()
        .filter_map(|name| {
            let value = request.headers.get(*name)?.clone();
            Some((http::HeaderName::from_static(name), value))
        })
        .collect();
    Ok(Prepared {
        worker_id: worker_id(&request),
        id: request.id,
        route: request.route,
        tenant,
        model,
        survey,
        body,
        ask,
        upstream_name,
        keeps_usage: false,
        trace,
    })
}

/// vLLM puts its own prefix before it, so that the ids of its chunks are ours, whichever worker says them.
fn worker_id(request: &Received) -> http::HeaderValue {
    let id = request.id.strip_prefix(request.route.id_prefix());
    let id = id.unwrap_or(&request.id);
    let unique = if request.is_named_by_client {
        http::HeaderValue::try_from(format!("{id}-{}", uuid::Uuid::new_v4().simple()))
    } else {
        http::HeaderValue::try_from(id)
    };
    // Made of printable characters, so there is no other case.
    unique.unwrap_or_else(|_| http::HeaderValue::from_static("unnamed"))
}

fn longest(model: &FleetModel) -> Duration {
    model.timeouts.longest_total
}

impl Prepared {
    /// The body as the worker is to see it, from the start or from where another worker broke off.
    pub(crate) fn outgoing(&self, so_far: Option<&SoFar<'_>>) -> Pieces {
        let mut edits = Edits::new(&self.survey, &self.body);
        if let Some(name) = &self.upstream_name {
            edits.set("model", name);
        }
        if self.ask.salt.is_empty() || self.route.is_about_tokens() {
            edits.remove("cache_salt");
        } else {
            edits.set("cache_salt", &*self.ask.salt);
        }
        // Spoken to the gateway, not to the worker.
        edits.remove("service_tier");
        edits.remove("session_id");
        if self.model.forwards_priority && !self.route.is_about_tokens() {
            edits.set("priority", &vllm_priority(self.ask.priority));
        } else {
            edits.remove("priority");
        }
        if self.asks_for_usage() {
            edits.ask_for_usage();
        }
        if let Some(so_far) = so_far {
            self.continue_from(&mut edits, so_far);
        }
        edits.finish()
    }

    /// Whether the usage at the end of the stream is there for us alone.
    pub(crate) fn hides_usage(&self) -> bool {
        !self.keeps_usage && self.asks_for_usage() && !self.survey.include_usage
    }

    /// Without it nobody knows what a streamed answer cost.
    fn asks_for_usage(&self) -> bool {
        let counts = matches!(self.route, Route::Chat | Route::Completions);
        counts && self.survey.stream && !self.survey.include_usage
    }

    fn continue_from(&self, edits: &mut Edits<'_>, so_far: &SoFar<'_>) {
        if let Some(max_tokens) = self.survey.max_tokens {
            let field = if self.survey.has("max_completion_tokens") {
                "max_completion_tokens"
            } else {
                "max_tokens"
            };
            edits.set(field, &max_tokens.saturating_sub(so_far.tokens).max(1));
        }
        if self.route == Route::Completions {
            edits.insert_before_end("prompt", Bytes::copy_from_slice(so_far.text));
            return;
        }
        let mut message = b",{\"role\":\"assistant\",\"content\":\"".to_vec();
        message.extend_from_slice(so_far.text);
        message.extend_from_slice(b"\"}");
        edits.insert_before_end("messages", message.into());
        edits.set("add_generation_prompt", &false);
        edits.set("continue_final_message", &true);
    }
}

/// For vLLM lower goes first.
fn vllm_priority(priority: Priority) -> i64 {
    match priority {
        Priority::High => -1,
        Priority::Normal => 0,
        Priority::Low => 1,
    }
}

/// What a request says about its urgency: in a header, in vLLM's words or in OpenAI's.
fn asked_priority(headers: &HeaderMap, survey: &Survey) -> Result<Option<Priority>, ApiError> {
    if let Some(value) = headers.get(headers::PRIORITY) {
        return match value.as_bytes() {
            b"low" => Ok(Some(Priority::Low)),
            b"normal" => Ok(Some(Priority::Normal)),
            b"high" => Ok(Some(Priority::High)),
            _ => Err(ApiError::invalid(
                headers::PRIORITY,
                format!(
                    "the header {} must be low, normal or high",
                    headers::PRIORITY
                ),
            )),
        };
    }
    // Zero is what clients send who think nothing of it.
    match survey.priority {
        Some(..=-1) => return Ok(Some(Priority::High)),
        Some(1..) => return Ok(Some(Priority::Low)),
        Some(0) | None => {}
    }
    Ok(match survey.service_tier.as_deref() {
        Some("flex" | "batch") => Some(Priority::Low),
        Some("priority") => Some(Priority::High),
        _ => None,
    })
}

/// The same number for all requests of one session.
fn session(headers: &HeaderMap, survey: &Survey, body: &[u8]) -> Option<u64> {
    let named = headers.get(headers::SESSION_ID).map(|id| id.as_bytes());
    let written = || {
        let field = SESSION_FIELDS
            .iter()
            .find_map(|field| survey.value(field))?;
        body.get(field)
    };
    named.or_else(written).map(XxHash3_64::oneshot)
}

fn prompt_spans(route: Route, survey: &Survey, body: &[u8]) -> PromptSpans {
    match route {
        Route::Chat => PromptSpans::chat(survey, body),
        Route::Completions => PromptSpans::completion(survey, body),
        Route::Tokenize | Route::Detokenize | Route::Other(_) => PromptSpans::Opaque,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn asked(header: Option<&'static str>, body: &str) -> Option<Priority> {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(headers::PRIORITY, HeaderValue::from_static(value));
        }
        asked_priority(&headers, &Survey::read(body.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn priority_is_asked_for_in_a_header_or_in_the_body() {
        assert_eq!(
            asked(Some("high"), r#"{"priority": 3}"#),
            Some(Priority::High)
        );
        assert_eq!(asked(None, r#"{"priority": 3}"#), Some(Priority::Low));
        assert_eq!(asked(None, r#"{"priority": -3}"#), Some(Priority::High));
        assert_eq!(
            asked(None, r#"{"service_tier": "flex"}"#),
            Some(Priority::Low)
        );
        assert_eq!(
            asked(None, r#"{"priority": 0, "service_tier": "auto"}"#),
            None
        );
    }

    #[test]
    fn one_session_has_one_number() {
        let session = |body: &str| {
            let survey = Survey::read(body.as_bytes()).unwrap();
            session(&HeaderMap::new(), &survey, body.as_bytes())
        };
        assert_eq!(session(r#"{"n": 1}"#), None);
        let first = session(r#"{"user": "u", "n": 1}"#);
        assert_eq!(first, session(r#"{"n": 2, "user": "u"}"#));
        assert_ne!(first, session(r#"{"user": "v"}"#));
        assert_ne!(first, session(r#"{"user": "u", "session_id": "s"}"#));
    }
}
