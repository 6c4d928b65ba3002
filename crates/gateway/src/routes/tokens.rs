//! `/tokenize` and `/detokenize`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request;
use protocol::ApiError;
use protocol::tokenize::{
    DetokenizeAnswer, DetokenizeRequest, TokenizeAnswer, TokenizeInput, TokenizeRequest,
};

use crate::gateway::Gateway;
use crate::http_io::{json, read_json_body, refuse};
use crate::near::run_near;
use crate::stages::{encode_conversation, encode_text, require_model, require_tenant};

pub(super) async fn tokenize(
    State(gateway): State<Arc<Gateway>>,
    request: Request<Body>,
) -> Response {
    match tokens_of(&gateway, request).await {
        Ok(answer) => json(&answer),
        Err(error) => refuse(&error),
    }
}

pub(super) async fn detokenize(
    State(gateway): State<Arc<Gateway>>,
    request: Request<Body>,
) -> Response {
    match text_of(&gateway, request).await {
        Ok(answer) => json(&answer),
        Err(error) => refuse(&error),
    }
}

async fn tokens_of(gateway: &Gateway, request: Request<Body>) -> Result<TokenizeAnswer, ApiError> {
    let (parts, body) = request.into_parts();
    let tenant = require_tenant(&gateway.tenants(), &parts.headers)?;
    let body = read_json_body(&parts.headers, body).await?;
    let bytes = body.len();
    let request = TokenizeRequest::parse(&body)?.validate()?;
    require_model(gateway, &tenant, request.model.as_deref())?;

    let codec = Arc::clone(&gateway.model.codec);
    let (tokens, token_strs) = run_near(bytes, move || {
        let codec = codec.as_ref();
        let tokens = match &request.input {
            TokenizeInput::Text(text) => encode_text(codec, text, request.add_special_tokens),
            TokenizeInput::Chat(chat) => {
                encode_conversation(codec, chat, request.add_special_tokens)
            }
        }?;
        let shown = |&id: &u32| {
            String::from_utf8_lossy(codec.token_bytes(id).unwrap_or_default()).into_owned()
        };
        let token_strs = request
            .return_token_strs
            .then(|| tokens.iter().map(shown).collect());
        Ok((tokens, token_strs))
    })
    .await?;
    Ok(TokenizeAnswer {
        count: tokens.len(),
        max_model_len: gateway.model.max_model_len,
        tokens,
        token_strs,
    })
}

async fn text_of(gateway: &Gateway, request: Request<Body>) -> Result<DetokenizeAnswer, ApiError> {
    let (parts, body) = request.into_parts();
    let tenant = require_tenant(&gateway.tenants(), &parts.headers)?;
    let body = read_json_body(&parts.headers, body).await?;
    let request = DetokenizeRequest::parse(&body)?;
    require_model(gateway, &tenant, request.model.as_deref())?;
    let prompt = gateway
        .model
        .codec
        .decode(&request.tokens)
        .map_err(|reason| ApiError::invalid("tokens", reason))?;
    Ok(DetokenizeAnswer { prompt })
}
