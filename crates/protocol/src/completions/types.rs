//! A completion as a client asked for it.

use super::prompt::Prompts;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::sampling::SamplingFields;
use crate::stream::StreamOptions;
use crate::unsupported::refuse_unsupported;

/// A request whose fields have the right types but are otherwise unchecked.
#[derive(Debug, Clone)]
pub struct CompletionRequest {
    pub(crate) model: Option<String>,
    pub(crate) prompts: Prompts,
    pub(crate) sampling: SamplingFields,
    pub(crate) logprobs: Option<usize>,
    pub(crate) echo: bool,
    pub(crate) stream: Option<StreamOptions>,
    pub(crate) return_token_ids: bool,
    pub(crate) add_special_tokens: bool,
}

impl CompletionRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let fields = Fields::parse(body)?;
        refuse_unsupported(&fields)?;
        Ok(Self {
            model: fields.optional("model")?,
            prompts: fields.required("prompt")?,
            sampling: SamplingFields::read(&fields)?,
            logprobs: fields.optional("logprobs")?,
            echo: fields.or("echo", false)?,
            stream: StreamOptions::read(&fields)?,
            return_token_ids: fields.or("return_token_ids", false)?,
            add_special_tokens: fields.or("add_special_tokens", true)?,
        })
    }
}
