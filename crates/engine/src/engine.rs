//! The engine's face: start it, hand it requests, drain it. Everything else happens on its own thread.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use speculation::Drafters;
use tokio::sync::{mpsc, watch};

use crate::blocks::KvEventBatch;
use crate::config::EngineConfig;
use crate::door::{CancelOnDrop, Message, QueuePlace, RequestKey, Submission};
use crate::drafting::{SpeculationConfig, SpeculationStatus};
use crate::error::{StartError, SubmitError};
use crate::executor::Executors;
use crate::generation::Generation;
use crate::metrics::Metrics;
use crate::request::Request;
use crate::sampling::{self, Grammars};
use crate::store::{Clerk, Sharing};
use crate::vocabulary::Vocabulary;
use crate::worker::{Next, Worker};

/// A running engine. One thread owns all of its state; this is the door. Dropping it stops the thread
/// and fails what still runs; [`Engine::drain`] lets it finish first.
pub struct Engine {
    config: EngineConfig,
    vocab_size: usize,
    door: Sender<Message>,
    queued: Arc<AtomicUsize>,
    draining: AtomicBool,
    next_key: AtomicU64,
    /// Where the seeds of requests come from that bring none.
    luck: u64,
    grammars: Grammars,
    metrics: Arc<Metrics>,
    speculation: Mutex<SpeculationConfig>,
    kv_events: Mutex<Option<mpsc::Receiver<KvEventBatch>>>,
    ended: watch::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the engine's thread. `executors` is a boxed [`Executor`](crate::Executor), or
    /// [`Executors`] if one of them drafts.
    pub fn start(
        config: EngineConfig,
        executors: impl Into<Executors>,
        vocabulary: Arc<dyn Vocabulary>,
    ) -> Result<Self, StartError> {
        Self::start_sharing(config, executors, vocabulary, None)
    }

    /// The same, with a store for blocks beyond the executor's memory.
    pub fn start_sharing(
        config: EngineConfig,
        executors: impl Into<Executors>,
        vocabulary: Arc<dyn Vocabulary>,
        sharing: Option<Sharing>,
    ) -> Result<Self, StartError> {
        let (mut engine, stepper) = Self::manual_sharing(config, executors, vocabulary, sharing)?;
        let thread = std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || stepper.run())
            .map_err(StartError::Thread)?;
        engine.thread = Some(thread);
        Ok(engine)
    }

    /// An engine without a thread: the caller makes its steps. So a test or a simulation decides what
    /// arrives between which steps, and can do the same again.
    pub fn manual(
        config: EngineConfig,
        executors: impl Into<Executors>,
        vocabulary: Arc<dyn Vocabulary>,
    ) -> Result<(Self, Stepper), StartError> {
        Self::manual_sharing(config, executors, vocabulary, None)
    }

    /// The same, with a store for blocks beyond the executor's memory. Its threads are its own: when a load is
    /// done is not for the caller to decide.
    pub fn manual_sharing(
        config: EngineConfig,
        executors: impl Into<Executors>,
        vocabulary: Arc<dyn Vocabulary>,
        sharing: Option<Sharing>,
    ) -> Result<(Self, Stepper), StartError> {
        config.check()?;
        let executors = executors.into();
        let vocab_size = executors.target.vocab_size();
        if vocabulary.vocab_size() > vocab_size {
            return Err(StartError::VocabularyMismatch {
                tokenizer: vocabulary.vocab_size(),
                model: vocab_size,
            });
        }
        let grammars = Grammars::new(Arc::clone(&vocabulary));
        let (door, messages) = channel();
        let (running, ended) = watch::channel(());
        let (events, kv_events) = if config.kv_event_buffer == 0 {
            (None, None)
        } else {
            let (sender, receiver) = mpsc::channel(config.kv_event_buffer);
            (Some(sender), Some(receiver))
        };
        let metrics = Arc::new(Metrics::new(&config));
        let clerk = match (sharing, executors.target.block_bytes()) {
            (Some(sharing), Some(bytes)) if config.enable_prefix_caching => {
                let clerk = Clerk::start(sharing, bytes, metrics.store(), &door);
                Some(clerk.map_err(StartError::Thread)?)
            }
            (Some(_), _) => return Err(StartError::NothingToShare),
            (None, _) => None,
        };
        let worker = Worker::new(
            &config,
            executors,
            vocabulary,
            messages,
            Arc::clone(&metrics),
            events,
            clerk,
        );
        let by_chance = || RandomState::new().hash_one(0);
        let luck = config.seed.unwrap_or_else(by_chance);
        let engine = Self {
            speculation: Mutex::new(config.speculation),
            config,
            vocab_size,
            door,
            queued: Arc::default(),
            draining: AtomicBool::new(false),
            next_key: AtomicU64::new(0),
            luck,
            grammars,
            metrics,
            kv_events: Mutex::new(kv_events),
            ended,
            thread: None,
        };
        let stepper = Stepper {
            worker,
            _running: running,
        };
        Ok((engine, stepper))
    }

    /// Hands a request to the engine, or says at once why it can never be served.
    ///
    /// A response format is compiled here, on the caller's thread: milliseconds for a large schema.
    /// Asynchronous callers should submit such requests from a blocking thread.
    pub fn submit(&self, request: Request) -> Result<Generation, SubmitError> {
        if self.draining.load(Ordering::Acquire) {
            return Err(SubmitError::Draining);
        }
        let max_tokens = self.check(&request)?;
        let grammars = self
            .grammars
            .compile(&request.sampling.format, request.sampling.n)?;
        let place = QueuePlace::take(&self.queued, self.config.max_queued).ok_or_else(|| {
            self.metrics.refused_for_queue();
            SubmitError::QueueFull {
                limit: self.config.max_queued,
            }
        })?;
        let key = RequestKey(self.next_key.fetch_add(1, Ordering::Relaxed));
        let seed = request
            .sampling
            .seed
            .unwrap_or_else(|| sampling::drawn_seed(self.luck, key.0));
        let (sender, updates) = mpsc::unbounded_channel();
        let id = Arc::clone(&request.id);
        let choices = request.sampling.n;
        self.door
            .send(Message::Submit(Box::new(Submission {
                key,
                request,
                max_tokens,
                seed,
                grammars,
                submitted: Instant::now(),
                updates: sender,
                place,
            })))
            .map_err(|_| SubmitError::Draining)?;
        let cancel = CancelOnDrop::new(key, self.door.clone());
        Ok(Generation::new(id, choices, updates, cancel))
    }

    /// What only the engine knows of a request. Gives the most tokens that each choice may generate.
    fn check(&self, request: &Request) -> Result<usize, SubmitError> {
        let sampling = &request.sampling;
        let prompt = request.prompt.len();
        if prompt == 0 {
            return Err(SubmitError::EmptyPrompt);
        }
        if sampling.n == 0 {
            return Err(SubmitError::NoChoices);
        }
        if sampling.speculative_drafters == Drafters::Model && !self.metrics.has_draft_model() {
            return Err(SubmitError::NoDraftModel);
        }
        if let Some(&id) = request
            .prompt
            .iter()
            .find(|&&id| id as usize >= self.vocab_size)
        {
            return Err(SubmitError::UnknownToken {
                id,
                vocab: self.vocab_size,
            });
        }
        let wanted = sampling.max_tokens.unwrap_or(usize::MAX);
        let room_needed = prompt + wanted.min(1);
        if room_needed > self.config.max_model_len {
            return Err(SubmitError::PromptTooLong {
                prompt,
                limit: self.config.max_model_len,
            });
        }
        let longest = self.config.longest_sequence();
        if room_needed > longest {
            return Err(SubmitError::PromptExceedsCache {
                prompt,
                capacity: longest,
            });
        }
        Ok(wanted.min(longest - prompt))
    }

    /// Whether its thread still runs. It ends when it has drained or was stopped, and at no other time
    /// unless its bookkeeping is broken beyond repair.
    pub fn is_alive(&self) -> bool {
        self.ended.has_changed().is_ok()
    }

    /// The sizes it was started with.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// What it measures of itself.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Changes of the prefix cache, one batch for each step that changed it. There is one receiver:
    /// the first caller gets it. `None` for later callers, or when `kv_event_buffer` is 0.
    pub fn kv_events(&self) -> Option<mpsc::Receiver<KvEventBatch>> {
        self.kv_events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Forgets all cached prefixes that no running request uses.
    pub fn reset_prefix_cache(&self) {
        // An engine that has ended has nothing to forget.
        let _ = self.door.send(Message::ResetPrefixCache);
    }

    /// Speculates in another way from the next step on; no promise to a request changes by it.
    pub fn set_speculation(&self, config: SpeculationConfig) {
        *self
            .speculation
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = config;
        // An engine that has ended speculates no more.
        let _ = self.door.send(Message::Speculate(config));
    }

    /// How it speculates, and how that goes.
    pub fn speculation(&self) -> SpeculationStatus {
        let config = self
            .speculation
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        SpeculationStatus {
            config: *config,
            draft_model: self.metrics.has_draft_model(),
            decision: self.metrics.latest_decision(),
            drafts: self.metrics.drafts(),
            draft_tokens: self.metrics.draft_tokens(),
            accepted_tokens: self.metrics.accepted_tokens(),
        }
    }

    /// Takes no more requests, and returns when all that were taken have finished. Wrap it in a timeout
    /// and drop the engine to end sooner.
    pub async fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        let _ = self.door.send(Message::Drain);
        let mut ended = self.ended.clone();
        // The thread never sends; it drops its end when it is done.
        while ended.changed().await.is_ok() {}
    }

    /// Fails what still runs and ends. Returns at once; dropping the engine waits for its thread.
    pub fn stop(&self) {
        self.draining.store(true, Ordering::Release);
        let _ = self.door.send(Message::Stop);
    }
}

/// Makes the steps of an engine without a thread.
pub struct Stepper {
    worker: Worker,
    /// Dropped with the stepper: then the engine has ended.
    _running: watch::Sender<()>,
}

impl Stepper {
    /// Takes what was submitted and cancelled, and makes one step, or waits for blocks if nobody can go on
    /// without. `false` when there is nothing to do.
    pub fn step(&mut self) -> bool {
        match self.worker.take_messages() {
            Next::Step => self.worker.step(),
            Next::Wait(until) => self.worker.wait(until),
            Next::Sleep | Next::End => return false,
        }
        true
    }

    fn run(self) {
        self.worker.run();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the engine's thread ended by a panic");
        }
    }
}
