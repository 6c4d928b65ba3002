//! The caller's end of a generation: updates come out, and dropping it gives everything back.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::mpsc::UnboundedReceiver;

use crate::door::CancelOnDrop;
use crate::request::Update;

/// A running generation. Dropping it cancels what is still running and frees its blocks before the
/// next step.
///
/// The queue behind it has no bound of its own: it holds at most `n * max_tokens` tokens, which the
/// request asked for.
#[derive(Debug)]
pub struct Generation {
    id: Arc<str>,
    updates: UnboundedReceiver<Update>,
    /// Received while looking for more to merge, not yet handed out.
    ahead: Option<Update>,
    /// Choices that have not finished; 0 also after a failure.
    unfinished: usize,
    cancel: CancelOnDrop,
}

impl Generation {
    pub(crate) fn new(
        id: Arc<str>,
        choices: usize,
        updates: UnboundedReceiver<Update>,
        cancel: CancelOnDrop,
    ) -> Self {
        Self {
            id,
            updates,
            ahead: None,
            unfinished: choices,
            cancel,
        }
    }

    /// The request's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The next update, `None` when all choices have finished. A reader that is slower than the engine
    /// gets consecutive deltas of a choice as one.
    ///
    /// Cancel safe: an update is either returned or still in the queue.
    pub async fn recv(&mut self) -> Option<Update> {
        std::future::poll_fn(|context| self.poll_recv(context)).await
    }

    /// The same for a hand-written future, such as the body of a streamed answer.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Update>> {
        if self.unfinished == 0 {
            return Poll::Ready(None);
        }
        let first = match self.ahead.take() {
            Some(update) => Some(update),
            None => ready!(self.updates.poll_recv(context)),
        };
        Poll::Ready(Some(self.hand_out(first)))
    }

    /// The same for a thread that may block, as tests and benches do.
    pub fn blocking_recv(&mut self) -> Option<Update> {
        if self.unfinished == 0 {
            return None;
        }
        let first = match self.ahead.take() {
            Some(update) => Some(update),
            None => self.updates.blocking_recv(),
        };
        Some(self.hand_out(first))
    }

    fn hand_out(&mut self, received: Option<Update>) -> Update {
        let update = match received {
            Some(Update::Delta {
                choice,
                text,
                tokens,
            }) => self.merge_waiting(choice, text, tokens),
            Some(update) => update,
            None => Update::Failed("the engine stopped".to_owned()),
        };
        match update {
            Update::Finished { .. } => self.unfinished = self.unfinished.saturating_sub(1),
            Update::Failed(_) => self.unfinished = 0,
            Update::Started { .. } | Update::Delta { .. } => {}
        }
        if self.unfinished == 0 {
            self.cancel.disarm();
        }
        update
    }

    fn merge_waiting(
        &mut self,
        choice: usize,
        mut text: String,
        mut tokens: Vec<crate::Token>,
    ) -> Update {
        while let Ok(next) = self.updates.try_recv() {
            match next {
                Update::Delta {
                    choice: other,
                    text: more,
                    tokens: further,
                } if other == choice => {
                    text.push_str(&more);
                    tokens.extend(further);
                }
                other => {
                    self.ahead = Some(other);
                    break;
                }
            }
        }
        Update::Delta {
            choice,
            text,
            tokens,
        }
    }
}
