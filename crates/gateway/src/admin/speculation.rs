//! How the engine in this process speculates, and how it is told to do otherwise.

use std::sync::PoisonError;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use engine::{Drafters, LawSpec, MAX_DEPTH, SpeculationConfig, SpeculationStatus};
use http::Request;
use protocol::{ApiError, ErrorKind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Desk;
use crate::http_io::{json as answer, read_json_body, refuse};
use crate::worker::Worker;

const SEND: &str = "send {\"drafter\": \"auto|model|ngram|off\"}, {\"law\": \"goodput|threshold|threshold:SECONDS|fixed:K\"}, \
                    {\"depth\": K} for fixed:K, or a drafter and one of both";

pub(super) async fn show(State(desk): State<Desk>) -> Response {
    match speculating(&desk) {
        Ok((_, status)) => answer(&shown(&status)),
        Err(error) => refuse(&error),
    }
}

pub(super) async fn change(State(desk): State<Desk>, request: Request<Body>) -> Response {
    match apply(&desk, request).await {
        Ok(status) => answer(&shown(&status)),
        Err(error) => refuse(&error),
    }
}

/// What is to change; what is not named stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    drafter: Option<String>,
    law: Option<String>,
    depth: Option<usize>,
}

impl Wanted {
    fn over(&self, status: &SpeculationStatus) -> Result<SpeculationConfig, String> {
        let mut config = status.config;
        match (&self.law, self.depth) {
            (Some(_), Some(_)) => {
                return Err(format!("law and depth exclude each other; {SEND}"));
            }
            (Some(law), None) => config.law = law.parse().map_err(|error| format!("{error}"))?,
            (None, Some(depth)) if depth > MAX_DEPTH => {
                return Err(format!("depth must be at most {MAX_DEPTH}, not {depth}"));
            }
            (None, Some(depth)) => config.law = LawSpec::Fixed(depth),
            (None, None) if self.drafter.is_none() => return Err(SEND.to_owned()),
            (None, None) => {}
        }
        if let Some(drafter) = &self.drafter {
            config.drafters = drafter.parse().map_err(|error| format!("{error}"))?;
        }
        if config.drafters == Drafters::Model && !status.draft_model {
            return Err(
                "there is no draft model, or it has failed (see the log); start with --draft PATH, or take auto or ngram"
                    .to_owned(),
            );
        }
        Ok(config)
    }
}

async fn apply(desk: &Desk, request: Request<Body>) -> Result<SpeculationStatus, ApiError> {
    let (parts, body) = request.into_parts();
    let body = read_json_body(&parts.headers, body).await?;
    let invalid = |text: String| ApiError::new(ErrorKind::InvalidRequest, text);
    let wanted: Wanted =
        serde_json::from_slice(&body).map_err(|error| invalid(format!("{error}; {SEND}")))?;
    let _alone = desk.changing.lock().unwrap_or_else(PoisonError::into_inner);
    let (worker, status) = speculating(desk)?;
    let config = wanted.over(&status).map_err(invalid)?;
    worker.set_speculation(config);
    tracing::info!(drafter = %config.drafters, law = %config.law, "speculation changed by an operator");
    Ok(SpeculationStatus {
        config,
        // The latest one was made by the old law.
        decision: None,
        ..status
    })
}

fn speculating(desk: &Desk) -> Result<(&dyn Worker, SpeculationStatus), ApiError> {
    let worker = desk.gateway.worker();
    let status = worker.and_then(|worker| Some((worker, worker.speculation()?)));
    status.ok_or_else(|| {
        ApiError::new(
            ErrorKind::NotFound,
            "no engine runs in this process; ask its workers, which answer this where they were started with --admin-listen",
        )
    })
}

fn shown(status: &SpeculationStatus) -> Value {
    let acceptance = (status.draft_tokens > 0)
        .then(|| status.accepted_tokens as f64 / status.draft_tokens as f64);
    json!({
        "drafter": status.config.drafters.to_string(),
        "law": status.config.law.to_string(),
        "draft_model": status.draft_model,
        "depth": status.decision.map(|decision| decision.depth),
        "deepest": status.decision.map(|decision| decision.deepest),
        "expected_speedup": status.decision.map(|decision| decision.speedup),
        "reason": status.decision.map(|decision| decision.reason.to_string()),
        "drafts": status.drafts,
        "draft_tokens": status.draft_tokens,
        "accepted_tokens": status.accepted_tokens,
        "acceptance": acceptance,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(draft_model: bool) -> SpeculationStatus {
        SpeculationStatus {
            config: SpeculationConfig {
                drafters: Drafters::Auto,
                law: LawSpec::Goodput,
            },
            draft_model,
            decision: None,
            drafts: 0,
            draft_tokens: 0,
            accepted_tokens: 0,
        }
    }

    fn over(text: &str, draft_model: bool) -> Result<String, String> {
        let wanted: Wanted = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let config = wanted.over(&status(draft_model))?;
        Ok(format!("{} {}", config.drafters, config.law))
    }

    #[test]
    fn what_is_not_named_stays() {
        assert_eq!(over(r#"{"depth": 3}"#, true).unwrap(), "auto fixed:3");
        assert_eq!(over(r#"{"drafter": "off"}"#, true).unwrap(), "off goodput");
        assert_eq!(
            over(r#"{"drafter": "model", "law": "threshold"}"#, true).unwrap(),
            "model threshold"
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        for (text, says) in [
            ("{}", "send"),
            (r#"{"depth": 17}"#, "at most 16"),
            (r#"{"depth": 1, "law": "goodput"}"#, "exclude"),
            (r#"{"law": "fast"}"#, "goodput"),
            (r#"{"drafter": "oracle"}"#, "auto"),
            (r#"{"drafter": "model"}"#, "--draft"),
            (r#"{"depths": 2}"#, "depths"),
        ] {
            let error = over(text, false).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
