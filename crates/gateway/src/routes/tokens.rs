//! `/tokenize` and `/detokenize`.

use std::sync::Arc;

use bytes::Bytes;
use protocol::ApiError;
use protocol::tokenize::{
    DetokenizeAnswer, DetokenizeRequest, TokenizeAnswer, TokenizeInput, TokenizeRequest,
};

use crate::gateway::Embedded;
use crate::near::run_near;
use crate::stages::{encode_conversation, encode_text, require_model};
use crate::tenants::Tenant;

pub(crate) async fn tokenize(
    own: &Embedded,
    tenant: &Tenant,
    body: Bytes,
) -> Result<TokenizeAnswer, ApiError> {
    let bytes = body.len();
    let request = TokenizeRequest::parse(&body)?.validate()?;
    require_model(own, tenant, request.model.as_deref())?;

    let codec = Arc::clone(&own.model.codec);
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
        max_model_len: own.model.max_model_len,
        tokens,
        token_strs,
    })
}

pub(crate) fn detokenize(
    own: &Embedded,
    tenant: &Tenant,
    body: &[u8],
) -> Result<DetokenizeAnswer, ApiError> {
    let request = DetokenizeRequest::parse(body)?;
    require_model(own, tenant, request.model.as_deref())?;
    let prompt = own
        .model
        .codec
        .decode(&request.tokens)
        .map_err(|reason| ApiError::invalid("tokens", reason))?;
    Ok(DetokenizeAnswer { prompt })
}
