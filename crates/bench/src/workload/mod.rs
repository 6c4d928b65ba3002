//! What is asked, and when.

mod chats;
mod mooncake;
mod plain;

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

pub use chats::{Chats, chats};
pub use mooncake::{Replay, mooncake};
pub use plain::{Plain, plain};

use crate::arrivals::Gaps;
use crate::error::BenchError;
use crate::options::{Kind, Options};
use crate::text::{self, Style};

/// Requests of a random workload of which nothing else was said.
const REQUESTS: usize = 200;

/// The requests that the options ask for.
///
/// # Errors
/// If a trace is missing or cannot be read.
pub fn items(options: &Options) -> Result<Vec<Item>, BenchError> {
    let gaps = Gaps {
        rate: options.rate.unwrap_or(f64::INFINITY),
        burstiness: options.burstiness,
    };
    let turns = match options.workload {
        Kind::Documents => 1,
        _ => options.turns,
    };
    let mut items = match options.workload {
        Kind::Random => plain(
            Plain {
                requests: options.requests.unwrap_or(REQUESTS),
                prompt_tokens: options.prompt_tokens,
                shared_tokens: options.shared_tokens,
                groups: options.groups,
                output_tokens: options.output_tokens,
                as_chat: !options.token_ids,
            },
            gaps,
            options.seed,
        ),
        Kind::Chats | Kind::Documents => chats(&Chats {
            chats_per_second: options.rate.unwrap_or(CLOSED_LOOP_CHATS_PER_SECOND),
            lasting: Options::seconds(options.duration),
            turns,
            documents: options.documents,
            document_tokens: options.document_tokens,
            question_tokens: options.question_tokens,
            answer_tokens: options.output_tokens,
            think: Options::seconds(options.think),
            block_tokens: 1,
            seed: options.seed,
        }),
        Kind::Mooncake => mooncake(
            &read_trace(options)?,
            Replay {
                speed: options.speed,
                scale: options.scale,
                requests: options.requests,
            },
        ),
    };
    if options.rate.is_none() && options.workload != Kind::Mooncake {
        for item in &mut items {
            if let Due::At(at) = &mut item.due {
                *at = Duration::ZERO;
            }
        }
    }
    items.truncate(options.requests.unwrap_or(usize::MAX));
    Ok(items)
}

/// How many chats a closed loop has to choose from for each second that it may last.
const CLOSED_LOOP_CHATS_PER_SECOND: f64 = 10.0;

fn read_trace(options: &Options) -> Result<Vec<simulator::mooncake::MooncakeLine>, BenchError> {
    let path = options
        .trace
        .as_ref()
        .ok_or(BenchError::Options("say which trace with --trace FILE"))?;
    let text = std::fs::read_to_string(path).map_err(|source| BenchError::File {
        path: path.clone(),
        source,
    })?;
    Ok(simulator::mooncake::parse(&text)?)
}

/// When a request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// So long after the start.
    At(Duration),
    /// So long after the request before it in its chat was answered.
    AfterPrevious(Duration),
}

/// What a prompt is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Texts by number, one after the other: their numbers and lengths in tokens.
    Parts(Vec<(u64, u64)>),
    /// The next question of a chat: what was said before stands before it. The first one brings a document.
    Turn {
        /// Number and tokens of the document.
        document: Option<(u64, u64)>,
        /// Number and tokens of the question.
        question: (u64, u64),
    },
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// When.
    pub due: Due,
    /// Which chat it belongs to. Requests of one chat follow each other.
    pub session: u64,
    /// What is asked.
    pub prompt: Prompt,
    /// Tokens of the answer.
    pub output_tokens: u64,
}

/// How requests are written.
#[derive(Clone, Debug)]
pub struct Form {
    /// The model asked for.
    pub model: String,
    /// Streamed or in one piece.
    pub stream: bool,
    /// Whether answers have the length that is asked for, whatever the model says.
    pub ignore_eos: bool,
    /// Prompts as token ids, which only `/v1/completions` takes.
    pub token_ids: bool,
    /// What texts are made of.
    pub text: Style,
}

/// What has been said in one chat.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    messages: Vec<Value>,
}

impl Conversation {
    /// Takes the answer down, so that the next question stands after it.
    pub fn answered(&mut self, text: String) {
        self.messages
            .push(json!({"role": "assistant", "content": text}));
    }
}

impl Form {
    /// Where requests of this form go.
    pub fn path(&self) -> &'static str {
        if self.token_ids {
            "/v1/completions"
        } else {
            "/v1/chat/completions"
        }
    }

    /// The body of a request.
    pub fn body(&self, item: &Item, conversation: &mut Conversation) -> Bytes {
        let mut body = json!({
            "model": self.model, "stream": self.stream, "max_tokens": item.output_tokens, "temperature": 0,
        });
        if self.stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        if self.ignore_eos {
            body["ignore_eos"] = json!(true);
        }
        match &item.prompt {
            Prompt::Parts(parts) if self.token_ids => {
                let mut ids = Vec::new();
                for (number, tokens) in parts {
                    text::ids(&mut ids, *number, *tokens);
                }
                body["prompt"] = json!(ids);
            }
            Prompt::Parts(parts) => {
                let mut prompt = String::new();
                for (number, tokens) in parts {
                    self.text.write(&mut prompt, *number, *tokens);
                }
                body["messages"] = json!([{"role": "user", "content": prompt}]);
            }
            Prompt::Turn { document, question } => {
                if let Some(document) = document {
                    conversation.say("system", self.text, *document);
                }
                conversation.say("user", self.text, *question);
                body["messages"] = json!(conversation.messages);
            }
        }
        Bytes::from(body.to_string())
    }
}

impl Conversation {
    fn say(&mut self, role: &str, style: Style, (number, tokens): (u64, u64)) {
        let mut content = String::new();
        style.write(&mut content, number, tokens);
        self.messages
            .push(json!({"role": role, "content": content.trim_start()}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(token_ids: bool) -> Form {
        Form {
            model: "m".into(),
            stream: true,
            ignore_eos: true,
            token_ids,
            text: Style::default(),
        }
    }

    fn body(form: &Form, item: &Item, conversation: &mut Conversation) -> Value {
        serde_json::from_slice(&form.body(item, conversation)).unwrap()
    }

    #[test]
    fn a_later_turn_begins_with_everything_said_before() {
        let turn = |document, number| Item {
            due: Due::At(Duration::ZERO),
            session: 0,
            prompt: Prompt::Turn {
                document,
                question: (number, 5),
            },
            output_tokens: 7,
        };
        let mut conversation = Conversation::default();
        let first = body(&form(false), &turn(Some((9, 30)), 1), &mut conversation);
        conversation.answered(" one two".into());
        let second = body(&form(false), &turn(None, 2), &mut conversation);
        let (first, second) = (
            first["messages"].as_array().unwrap().clone(),
            second["messages"].as_array().unwrap().clone(),
        );
        assert_eq!((first.len(), second.len()), (2, 4));
        assert_eq!(second[..2], first[..]);
        assert_eq!(second[2]["content"], " one two");
    }

    #[test]
    fn equal_parts_are_equal_tokens() {
        let item = |parts: Vec<(u64, u64)>| Item {
            due: Due::At(Duration::ZERO),
            session: 0,
            prompt: Prompt::Parts(parts),
            output_tokens: 1,
        };
        let ids = |parts| {
            let body = body(&form(true), &item(parts), &mut Conversation::default());
            body["prompt"].as_array().unwrap().clone()
        };
        let (one, other) = (ids(vec![(3, 64), (4, 64)]), ids(vec![(3, 64), (5, 10)]));
        assert_eq!(one[..64], other[..64]);
        assert_eq!((one.len(), other.len()), (128, 74));
        assert_ne!(one[64..74], other[64..74]);
    }
}
