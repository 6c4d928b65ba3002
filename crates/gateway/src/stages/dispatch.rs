//! Every prompt is handed to the worker.

use std::sync::Arc;

use engine::{Format, Generation, RefusalKind, Request, SubmitError};
use protocol::{ApiError, ErrorKind};

use super::tokenize::Tokenized;
use super::validate::Shape;
use crate::gateway::Embedded;
use crate::worker::Worker;

/// A request that is being generated. Dropping it cancels everything.
pub(crate) struct Dispatched {
    pub(crate) id: Arc<str>,
    pub(crate) prompts: Vec<DispatchedPrompt>,
    /// Answers to each prompt.
    pub(crate) n: usize,
    pub(crate) shape: Shape,
}

pub(crate) struct DispatchedPrompt {
    pub(crate) generation: Generation,
    pub(crate) length: usize,
    /// Kept only if the answer shows them.
    pub(crate) tokens: Option<Vec<u32>>,
    pub(crate) echo: String,
}

pub(crate) async fn dispatch(own: &Embedded, request: Tokenized) -> Result<Dispatched, ApiError> {
    let n = request.sampling.n;
    let mut prompts = Vec::with_capacity(request.prompts.len());
    for prompt in request.prompts {
        let length = prompt.tokens.len();
        let tokens = request
            .shape
            .return_token_ids
            .then(|| prompt.tokens.clone());
        let work = Request {
            id: Arc::clone(&request.id),
            prompt: prompt.tokens,
            sampling: request.sampling.clone(),
            priority: request.priority,
            cache_salt: request.cache_salt.clone(),
        };
        let generation = submit(&own.worker, work)
            .await
            .map_err(|error| refusal(&error))?;
        prompts.push(DispatchedPrompt {
            generation,
            length,
            tokens,
            echo: prompt.echo,
        });
    }
    Ok(Dispatched {
        id: request.id,
        prompts,
        n,
        shape: request.shape,
    })
}

/// A format is compiled during submission, which is too slow for the runtime's few workers.
async fn submit(worker: &Arc<dyn Worker>, work: Request) -> Result<Generation, SubmitError> {
    if work.sampling.format == Format::Text {
        return worker.submit(work);
    }
    let worker = Arc::clone(worker);
    tokio::task::spawn_blocking(move || worker.submit(work))
        .await
        .unwrap_or_else(|_| Err(SubmitError::Format("compiling it failed".to_owned())))
}

fn refusal(error: &SubmitError) -> ApiError {
    let kind = match error.kind() {
        RefusalKind::Invalid => ErrorKind::InvalidRequest,
        RefusalKind::Busy => ErrorKind::Overloaded,
        RefusalKind::Unavailable => ErrorKind::Unavailable,
    };
    let refusal = ApiError::new(kind, error.to_string());
    match error {
        SubmitError::PromptTooLong { .. } | SubmitError::PromptExceedsCache { .. } => {
            refusal.about("prompt").with_code("context_length_exceeded")
        }
        SubmitError::EmptyPrompt | SubmitError::UnknownToken { .. } => refusal.about("prompt"),
        SubmitError::NoChoices => refusal.about("n"),
        SubmitError::Format(_) => refusal.about("response_format"),
        SubmitError::NoDraftModel => refusal.about("speculative"),
        SubmitError::QueueFull { .. } | SubmitError::Draining => refusal,
    }
}
