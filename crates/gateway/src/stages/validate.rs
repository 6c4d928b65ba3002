//! The body is read and checked; from here on chats and completions are the same thing: prompts, a way
//! to continue them, and the shape of the answer.

use std::sync::Arc;

use bytes::Bytes;
use engine::{Priority, Sampling};
use protocol::ApiError;
use protocol::chat::{ChatRequest, Conversation, ValidChat};
use protocol::completions::{CompletionRequest, Prompt, ValidCompletion};
use protocol::stream::StreamOptions;

use super::identify::Identified;
use super::read::no_such_model;
use crate::convert;
use crate::gateway::Embedded;
use crate::near::run_near;
use crate::tenants::Tenant;

/// A request within all bounds.
pub(crate) struct Validated {
    pub(crate) id: Arc<str>,
    pub(crate) input: Input,
    pub(crate) sampling: Sampling,
    pub(crate) priority: Priority,
    pub(crate) cache_salt: Option<Arc<str>>,
    pub(crate) shape: Shape,
}

/// What is to be continued.
pub(crate) enum Input {
    Chat(Conversation),
    Prompts {
        prompts: Vec<Prompt>,
        add_special_tokens: bool,
    },
}

/// Whose answer it looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Chat,
    Completions,
}

/// What the answer looks like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) form: Form,
    pub(crate) stream: Option<StreamOptions>,
    pub(crate) echo: bool,
    pub(crate) logprobs: bool,
    pub(crate) prompt_logprobs: bool,
    pub(crate) return_token_ids: bool,
    /// Whether the usage tells how speculation did.
    pub(crate) draft_usage: bool,
}

pub(crate) async fn validate(
    own: &Embedded,
    form: Form,
    Identified { request, tenant }: Identified,
    body: Bytes,
) -> Result<Validated, ApiError> {
    let bytes = body.len();
    let validated = match form {
        Form::Chat => {
            let parse = move || ChatRequest::parse(&body)?.validate();
            chat(request.id, run_near(bytes, parse).await?, own, &tenant)
        }
        Form::Completions => {
            let parse = move || CompletionRequest::parse(&body)?.validate();
            completion(request.id, run_near(bytes, parse).await?, own, &tenant)
        }
    }?;
    require_known_tokens(own, &validated.sampling)?;
    Ok(validated)
}

fn chat(
    id: Arc<str>,
    chat: ValidChat,
    own: &Embedded,
    tenant: &Tenant,
) -> Result<Validated, ApiError> {
    require_model(own, tenant, chat.model.as_deref())?;
    let shape = Shape {
        form: Form::Chat,
        stream: chat.stream,
        echo: false,
        logprobs: chat.logprobs.is_some(),
        prompt_logprobs: chat.sampling.prompt_logprobs.is_some(),
        return_token_ids: chat.return_token_ids,
        draft_usage: chat.sampling.speculative_usage,
    };
    let priority = convert::priority(tenant, chat.sampling.priority);
    let cache_salt = tenant.cache_salt(chat.sampling.cache_salt.as_deref());
    let mut sampling = convert::sampling(chat.sampling);
    sampling.logprobs = chat.logprobs;
    Ok(Validated {
        id,
        input: Input::Chat(chat.conversation),
        sampling,
        priority,
        cache_salt,
        shape,
    })
}

fn completion(
    id: Arc<str>,
    completion: ValidCompletion,
    own: &Embedded,
    tenant: &Tenant,
) -> Result<Validated, ApiError> {
    require_model(own, tenant, completion.model.as_deref())?;
    let shape = Shape {
        form: Form::Completions,
        stream: completion.stream,
        echo: completion.echo,
        logprobs: completion.logprobs.is_some(),
        prompt_logprobs: completion.sampling.prompt_logprobs.is_some(),
        return_token_ids: completion.return_token_ids,
        draft_usage: completion.sampling.speculative_usage,
    };
    let priority = convert::priority(tenant, completion.sampling.priority);
    let cache_salt = tenant.cache_salt(completion.sampling.cache_salt.as_deref());
    let mut sampling = convert::sampling(completion.sampling);
    sampling.logprobs = completion.logprobs;
    if completion.echo {
        // An echoed prompt is shown like an answer, log-probabilities included.
        sampling.prompt_logprobs = sampling.prompt_logprobs.max(completion.logprobs);
    }
    Ok(Validated {
        id,
        input: Input::Prompts {
            prompts: completion.prompts,
            add_special_tokens: completion.add_special_tokens,
        },
        sampling,
        priority,
        cache_salt,
        shape,
    })
}

/// Whether the model asked for is the one behind the door, and the tenant may see it.
pub(crate) fn require_model(
    own: &Embedded,
    tenant: &Tenant,
    asked: Option<&str>,
) -> Result<(), ApiError> {
    let name = asked.unwrap_or(own.model.name());
    let served = asked.is_none() || own.model.answers_to(name);
    if served && tenant.models.allow(name) {
        return Ok(());
    }
    let mut names = own.model.names.iter();
    let other = names.find(|name| tenant.models.allow(name));
    Err(no_such_model(name, other.map(String::as_str)))
}

fn require_known_tokens(own: &Embedded, sampling: &Sampling) -> Result<(), ApiError> {
    let vocab_size = own.model.codec.vocab_size();
    let known = |id: &u32| (*id as usize) < vocab_size;
    let refuse = |field: &'static str, id: u32| {
        ApiError::invalid(
            field,
            format!("{field}: token id {id} is outside the vocabulary of {vocab_size} tokens"),
        )
    };
    if let Some(&id) = sampling.logit_bias.keys().find(|id| !known(id)) {
        return Err(refuse("logit_bias", id));
    }
    if let Some(&id) = sampling.stop_token_ids.iter().find(|id| !known(id)) {
        return Err(refuse("stop_token_ids", id));
    }
    Ok(())
}
