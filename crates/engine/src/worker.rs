//! The engine's thread.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use tokio::sync::mpsc;

use crate::blocks::KvEventBatch;
use crate::config::EngineConfig;
use crate::door::Message;
use crate::executor::Executor;
use crate::metrics::Metrics;
use crate::request::Update;
use crate::vocabulary::Vocabulary;

pub(crate) struct Worker {
    messages: Receiver<Message>,
}

impl Worker {
    pub(crate) fn new(
        _config: &EngineConfig,
        _executor: Box<dyn Executor>,
        _vocabulary: Arc<dyn Vocabulary>,
        messages: Receiver<Message>,
        _metrics: Arc<Metrics>,
        _events: Option<mpsc::Sender<KvEventBatch>>,
    ) -> Self {
        Self { messages }
    }

    pub(crate) fn run(self) {
        for message in self.messages {
            match message {
                Message::Submit(submission) => {
                    drop(submission.place);
                    let _ = submission
                        .updates
                        .send(Update::Failed("not built yet".to_owned()));
                }
                Message::Cancel(_) | Message::ResetPrefixCache => {}
                Message::Drain | Message::Stop => return,
            }
        }
    }
}
