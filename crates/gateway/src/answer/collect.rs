//! All of an answer in one JSON object.

use axum::response::Response;
use engine::{Generation, Token, Update};
use protocol::chat::{ChatAnswer, ChatChoice};
use protocol::completions::{CompletionAnswer, CompletionChoice};
use protocol::finish::Finish;
use protocol::{ApiError, Usage};

use super::engine_failure;
use crate::convert;
use crate::gateway::{Embedded, unix_seconds};
use crate::http_io;
use crate::record::Record;
use crate::stages::Form;
use crate::stages::{Dispatched, DispatchedPrompt, Shape};
use crate::worker::Codec;

pub(super) async fn collect(own: &Embedded, request: Dispatched, mut record: Record) -> Response {
    let mut answers = Vec::with_capacity(request.prompts.len());
    for mut prompt in request.prompts {
        match read_to_end(&mut prompt.generation, request.n, &mut record).await {
            Ok((prompt_tokens, choices)) => answers.push(Answer {
                prompt,
                prompt_tokens,
                choices,
            }),
            Err(error) => {
                record.refused(&error);
                return http_io::refuse(&error);
            }
        }
    }
    record.answered();
    let head = Head {
        id: &request.id,
        created: unix_seconds(),
        model: own.model.name(),
        usage: record.usage,
    };
    let codec = own.model.codec.as_ref();
    match request.shape.form {
        Form::Chat => http_io::json(&chat(codec, request.shape, head, answers)),
        Form::Completions => http_io::json(&completion(codec, request.shape, head, answers)),
    }
}

struct Head<'a> {
    id: &'a str,
    created: u64,
    model: &'a str,
    usage: Usage,
}

/// What was generated for one prompt.
struct Answer {
    prompt: DispatchedPrompt,
    prompt_tokens: Vec<Token>,
    choices: Vec<Choice>,
}

#[derive(Default, Clone)]
struct Choice {
    text: String,
    tokens: Vec<Token>,
    finish: Option<Finish>,
}

impl Choice {
    fn token_ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

async fn read_to_end(
    generation: &mut Generation,
    n: usize,
    record: &mut Record,
) -> Result<(Vec<Token>, Vec<Choice>), ApiError> {
    let mut prompt_tokens = Vec::new();
    let mut choices = vec![Choice::default(); n];
    while let Some(update) = generation.recv().await {
        match update {
            Update::Started {
                cached_tokens,
                prompt,
            } => {
                record.read(cached_tokens);
                prompt_tokens = prompt;
            }
            Update::Delta {
                choice,
                text,
                tokens,
            } => {
                record.generated(tokens.len());
                if let Some(choice) = choices.get_mut(choice) {
                    choice.text.push_str(&text);
                    choice.tokens.extend(tokens);
                }
            }
            Update::Finished {
                choice,
                text,
                reason,
                stop,
                drafts,
            } => {
                record.drafted(drafts);
                if let Some(choice) = choices.get_mut(choice) {
                    choice.text.push_str(&text);
                    choice.finish = Some(convert::finish(reason, stop));
                }
            }
            Update::Failed(reason) => return Err(engine_failure(reason)),
        }
    }
    Ok((prompt_tokens, choices))
}

/// An answer that ended without saying why was cut short.
fn finish_of(choice: &mut Choice) -> Finish {
    choice.finish.take().unwrap_or(Finish {
        reason: protocol::finish::FinishReason::Length,
        stop: None,
    })
}

fn chat<'a>(
    codec: &dyn Codec,
    shape: Shape,
    head: Head<'a>,
    answers: Vec<Answer>,
) -> ChatAnswer<'a> {
    let mut body = ChatAnswer {
        id: head.id,
        created: head.created,
        model: head.model,
        choices: Vec::new(),
        usage: head.usage,
        prompt_logprobs: None,
        prompt_token_ids: None,
    };
    for answer in answers {
        if shape.prompt_logprobs {
            body.prompt_logprobs = Some(convert::prompt_logprobs(codec, &answer.prompt_tokens));
        }
        body.prompt_token_ids = answer.prompt.tokens;
        for (index, mut choice) in answer.choices.into_iter().enumerate() {
            body.choices.push(ChatChoice {
                index,
                logprobs: shape
                    .logprobs
                    .then(|| convert::chat_logprobs(codec, &choice.tokens)),
                finish: finish_of(&mut choice),
                token_ids: shape.return_token_ids.then(|| choice.token_ids()),
                text: choice.text,
            });
        }
    }
    body
}

fn completion<'a>(
    codec: &dyn Codec,
    shape: Shape,
    head: Head<'a>,
    answers: Vec<Answer>,
) -> CompletionAnswer<'a> {
    let mut choices = Vec::new();
    for answer in answers {
        for mut choice in answer.choices {
            let logprobs = shape.logprobs.then(|| {
                let mut shown = Vec::new();
                if shape.echo {
                    shown.clone_from(&answer.prompt_tokens);
                }
                shown.extend_from_slice(&choice.tokens);
                convert::completion_logprobs(codec, &shown, &mut 0)
            });
            let prompt_ids = answer.prompt.tokens.clone();
            choices.push(CompletionChoice {
                index: choices.len(),
                text: format!("{}{}", answer.prompt.echo, choice.text),
                logprobs,
                finish: finish_of(&mut choice),
                prompt_logprobs: shape
                    .prompt_logprobs
                    .then(|| convert::prompt_logprobs(codec, &answer.prompt_tokens)),
                token_ids: prompt_ids.map(|ids| (ids, choice.token_ids())),
            });
        }
    }
    CompletionAnswer {
        id: head.id,
        created: head.created,
        model: head.model,
        choices,
        usage: head.usage,
    }
}
