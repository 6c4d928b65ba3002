//! Reading one prompt, from the beginning or from where it is new.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use protocol::ApiError;
use routing::keys::{Root, TokenChain};
use routing::memo::{Trail, fingerprint};
use serde_json::{Map, Value};

use super::standins::{Messages, Piece, Rendered, Skeleton};
use super::{How, Prompt, Reader, chat, chat_flags, hour};
use crate::near::{NEAR_BYTES, QUICK_BYTES, run_far};
use crate::placement::ask::{ChatSpans, PromptSpans};
use crate::worker::{Codec, JsonChat};

/// The seams from the end of a prompt at which its chain is remembered. The last parts change when the
/// chat goes on: the opening of an answer becomes the answer, an empty thought before it is dropped.
const SEAMS_REMEMBERED: usize = 4;

/// Parts of a first message: what its opening token begins, and what its closing one does.
const FIRST_MESSAGE_PARTS: usize = 2;

/// Reads here what is short or mostly known: finding that out is quick. What is long and new takes a thread of its own.
pub(super) async fn read_near_or_far(work: Work) -> Result<(Prompt, How), ApiError> {
    let here = if work.body.len() <= QUICK_BYTES {
        work.read(NEAR_BYTES)?
    } else {
        None
    };
    match here {
        Some(read) => Ok(read),
        None => run_far(move || work.read(usize::MAX))
            .await?
            .ok_or_else(|| unreadable("it is too long")),
    }
}

/// Reading that may take long, with all that it needs to do so on another thread.
pub(super) struct Work {
    pub(super) reader: Reader,
    pub(super) codec: Arc<dyn Codec>,
    pub(super) root: Root,
    pub(super) body: Bytes,
    pub(super) spans: PromptSpans,
}

impl Work {
    /// `None` if that would mean to render or tokenise more than so many bytes.
    fn read(&self, most: usize) -> Result<Option<(Prompt, How)>, ApiError> {
        match &self.spans {
            PromptSpans::Chat(spans) => self.chat(spans, most),
            PromptSpans::Completion { prompt, .. } if prompt.len() > most => Ok(None),
            PromptSpans::Completion {
                prompt,
                add_special_tokens,
            } => self.completion(prompt, *add_special_tokens).map(Some),
            PromptSpans::Opaque => Err(unreadable("this route has no prompt")),
        }
    }

    fn chat(&self, spans: &ChatSpans, most: usize) -> Result<Option<(Prompt, How)>, ApiError> {
        let json = self.body.get(spans.messages.clone()).unwrap_or_default();
        if let Ok(messages) = Messages::read(json)
            && let Some(skeleton) = self.skeleton(spans, &messages)?
        {
            let texts = messages.texts;
            return self.rendered(spans, &Rendered { skeleton, texts }, most);
        }
        if json.len() > most {
            return Ok(None);
        }
        let messages: Vec<Value> = self.json(&spans.messages)?;
        let text = self.render(spans, messages)?;
        let seams = self.codec.seams(&text);
        match Skeleton::of(text, 0, seams) {
            Some(skeleton) => {
                let (skeleton, texts) = (Arc::new(skeleton), Vec::new());
                self.rendered(spans, &Rendered { skeleton, texts }, most)
            }
            // Without texts that stand back there is nothing to find in vain.
            None => Err(unreadable("the chat could not be read")),
        }
    }

    /// What the template makes of messages whose texts stand back; `None` if there are none or it does not leave them alone.
    fn skeleton(
        &self,
        spans: &ChatSpans,
        messages: &Messages<'_>,
    ) -> Result<Option<Arc<Skeleton>>, ApiError> {
        if messages.texts.is_empty() {
            return Ok(None);
        }
        let (flags, hour) = (chat_flags(spans), hour());
        let get = |span: &Option<Range<usize>>| {
            let bytes = span.as_ref().and_then(|span| self.body.get(span.clone()));
            bytes.unwrap_or_default()
        };
        let around = [
            &flags[..],
            &hour[..],
            get(&spans.template_arguments),
            get(&spans.tools),
        ];
        let print = fingerprint(self.root, around.into_iter().chain(messages.shape()));
        let known = self
            .reader
            .with_memory(|memory| memory.skeletons.get(print));
        if known.is_some() {
            return Ok(known);
        }
        let shown = messages.shown();
        let shown = shown.map_err(|error| unreadable(error.to_string()))?;
        let short = self.render(spans, shown)?;
        let seams = self.codec.seams(&short);
        let skeleton = Skeleton::of(short, messages.texts.len(), seams).map(Arc::new);
        if let Some(skeleton) = &skeleton {
            let skeleton = Arc::clone(skeleton);
            self.reader
                .with_memory(|memory| memory.skeletons.put(print, skeleton));
        }
        Ok(skeleton)
    }

    fn render(&self, spans: &ChatSpans, messages: Vec<Value>) -> Result<String, ApiError> {
        let tools: Option<Vec<Value>> = spans
            .tools
            .as_ref()
            .map(|span| self.json(span))
            .transpose()?;
        let arguments: Option<Map<String, Value>> = spans
            .template_arguments
            .as_ref()
            .map(|span| self.json(span))
            .transpose()?;
        let messages = chat::messages(messages).map_err(unreadable)?;
        let tools = tools.map(chat::tools).filter(|tools| !tools.is_empty());
        self.codec
            .render_json(&JsonChat {
                messages: &messages,
                tools: tools.as_deref(),
                add_generation_prompt: spans.add_generation_prompt,
                continue_final_message: spans.continue_final_message,
                template_arguments: arguments.as_ref(),
            })
            .map_err(unreadable)
    }

    /// Tokenises a rendered prompt from where it is new.
    fn rendered(
        &self,
        spans: &ChatSpans,
        rendered: &Rendered<'_>,
        most: usize,
    ) -> Result<Option<(Prompt, How)>, ApiError> {
        if spans.add_special_tokens {
            // Whatever is added stands before the first part and after the last: no part is what it was.
            let whole = [rendered.whole()];
            if bytes(&whole) > most {
                return Ok(None);
            }
            let prompt = self.encode(&written(&whole), true)?;
            return Ok(Some((prompt, How::Whole)));
        }
        let parts = rendered.parts();
        let trail = Trail::over_pieces(self.root, parts.iter().map(|part| printed(part)));
        let known = self
            .reader
            .with_memory(|memory| memory.chains.longest(&trail));
        let how = if known.is_some() {
            How::Grown
        } else {
            How::Whole
        };
        let (known, mut chain) =
            known.unwrap_or_else(|| (0, TokenChain::new(self.root, self.reader.block_tokens)));
        if bytes(parts.get(known..).unwrap_or_default()) > most {
            return Ok(None);
        }
        let mut read = known;
        for end in stops(known, parts.len()) {
            // What lies between two stops is one text for the tokenizer.
            let text = written(parts.get(read..end).unwrap_or_default());
            let tokens = self.codec.encode(&text, false);
            chain.extend(&tokens.map_err(unreadable)?);
            read = end;
            if end < parts.len()
                && let Some(print) = trail.print(end)
            {
                let chain = chain.clone();
                self.reader
                    .with_memory(|memory| memory.chains.put(print, chain));
            }
        }
        let tokens = chain.tokens() as u64;
        let keys = chain.into_keys();
        Ok(Some((Prompt { keys, tokens }, how)))
    }

    fn completion(
        &self,
        span: &Range<usize>,
        add_special_tokens: bool,
    ) -> Result<(Prompt, How), ApiError> {
        let prompt = match self.json::<Value>(span)? {
            Value::String(text) => self.encode(&text, add_special_tokens)?,
            Value::Array(list) if list.iter().all(Value::is_u64) => self.chain_of(&ids(&list)?),
            // Of several prompts the first decides where all go: a worker gets them together.
            Value::Array(list) => {
                let mut first = None;
                let mut tokens = 0;
                for prompt in &list {
                    let one = match prompt {
                        Value::String(text) => self.encode(text, add_special_tokens)?,
                        Value::Array(list) => self.chain_of(&ids(list)?),
                        _ => return Err(unreadable("prompt is neither text nor tokens")),
                    };
                    tokens += one.tokens;
                    first.get_or_insert(one);
                }
                let first = first.ok_or_else(|| unreadable("there is no prompt"))?;
                Prompt { tokens, ..first }
            }
            _ => return Err(unreadable("prompt is neither text nor tokens")),
        };
        Ok((prompt, How::Whole))
    }

    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Prompt, ApiError> {
        let tokens = self.codec.encode(text, add_special_tokens);
        Ok(self.chain_of(&tokens.map_err(unreadable)?))
    }

    fn chain_of(&self, tokens: &[u32]) -> Prompt {
        let mut chain = TokenChain::new(self.root, self.reader.block_tokens);
        chain.extend(tokens);
        Prompt {
            tokens: tokens.len() as u64,
            keys: chain.into_keys(),
        }
    }

    fn json<T: serde::de::DeserializeOwned>(&self, span: &Range<usize>) -> Result<T, ApiError> {
        let bytes = self.body.get(span.clone()).unwrap_or_default();
        serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))
    }
}

/// What a part is known by. A text that stood back counts as it stands in its JSON, and says so.
fn printed<'a>(part: &'a [Piece<'a>]) -> impl Iterator<Item = &'a [u8]> {
    part.iter().flat_map(|piece| match piece {
        Piece::Plain(text) => [text.as_bytes(), &[]],
        Piece::Quoted(json) => [json.as_bytes(), b"json"],
    })
}

fn bytes(parts: &[Vec<Piece<'_>>]) -> usize {
    parts.iter().flatten().map(Piece::bytes).sum()
}

fn written(parts: &[Vec<Piece<'_>>]) -> String {
    let mut text = String::with_capacity(bytes(parts));
    for piece in parts.iter().flatten() {
        piece.write_to(&mut text);
    }
    text
}

/// Where reading stops to remember, after so many parts: behind the first message, which many chats
/// share, at the last few seams, and at the end.
fn stops(known: usize, parts: usize) -> impl Iterator<Item = usize> {
    let last = parts.saturating_sub(SEAMS_REMEMBERED);
    (known + 1..=parts).filter(move |end| *end == FIRST_MESSAGE_PARTS || *end >= last)
}

fn ids(list: &[Value]) -> Result<Vec<u32>, ApiError> {
    list.iter()
        .map(|id| {
            id.as_u64()
                .and_then(|id| u32::try_from(id).ok())
                .ok_or_else(|| unreadable("a token id is no number"))
        })
        .collect()
}

fn unreadable(why: impl Into<String>) -> ApiError {
    ApiError::invalid("messages", why)
}
