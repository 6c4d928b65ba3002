//! An engine under one policy, with streams that never run dry.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use forespeak_engine::{
    Engine, EngineConfig, Generation, Priority, Request, Sampling, Stepper, Update,
};

use crate::Failure;
use crate::options::Policy;
use crate::pair::{BLOCKS, Pair};
use crate::texts::{Texts, Workload};

pub(crate) struct Arena {
    engine: Engine,
    stepper: Stepper,
    texts: Arc<Texts>,
    streams: Vec<Stream>,
    /// Whether requests bring a seed.
    seeded: bool,
    /// Requests so far: no two share a salt, so nobody finds what another one was told.
    asked: usize,
    /// Where complete answers go, if anywhere.
    record: Option<Arc<File>>,
}

/// More texts than a stream is asked for in a phase.
const PHASE_TEXTS: usize = 1 << 16;

/// When a turn is over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// When so many seconds have passed.
    Seconds(f64),
    /// When so many have passed in steps that only decode: a large model reads prompts for longer than a turn takes.
    Decoding(f64),
    /// When the engine has said so many tokens since it began.
    Said(u64),
}

/// Somebody who asks again as soon as the answer is complete.
#[derive(Default)]
struct Stream {
    asked: usize,
    open: Option<Generation>,
    /// The workload, how many tokens its prompt has, and those of prompt and answer.
    told: Option<(Workload, usize, Vec<u32>)>,
}

/// What happened in a stretch of time. Steps that read a prompt count apart: no policy changes what they cost, and
/// they would only blur what it does to decoding.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Slice {
    /// Steps that only decode.
    pub(crate) seconds: f64,
    /// All steps.
    pub(crate) whole_seconds: f64,
    pub(crate) whole_tokens: u64,
    pub(crate) steps: u64,
    pub(crate) tokens: u64,
    pub(crate) drafted: u64,
    pub(crate) accepted: u64,
}

impl Slice {
    pub(crate) fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.whole_seconds += other.whole_seconds;
        self.whole_tokens += other.whole_tokens;
        self.steps += other.steps;
        self.tokens += other.tokens;
        self.drafted += other.drafted;
        self.accepted += other.accepted;
    }

    pub(crate) fn rate(&self) -> f64 {
        self.tokens as f64 / self.seconds.max(1e-9)
    }

    /// Tokens drafted for a sequence in a step.
    pub(crate) fn depth(&self, streams: usize) -> f64 {
        self.drafted as f64 / (self.steps.max(1) as f64 * streams as f64)
    }

    pub(crate) fn acceptance(&self) -> Option<f64> {
        (self.drafted > 0).then(|| self.accepted as f64 / self.drafted as f64)
    }
}

impl Arena {
    pub(crate) fn start(
        pair: &Pair,
        policy: &Policy,
        texts: &Arc<Texts>,
        streams: usize,
    ) -> Result<Self, Failure> {
        let (engine, stepper) = engine(pair, policy)?;
        Ok(Self {
            engine,
            stepper,
            texts: Arc::clone(texts),
            streams: (0..streams).map(|_| Stream::default()).collect(),
            seeded: policy.seeded,
            asked: 0,
            record: None,
        })
    }

    /// Complete answers are written down from now on.
    pub(crate) fn record_into(&mut self, file: &Arc<File>) {
        self.record = Some(Arc::clone(file));
    }

    /// Tokens said since the engine began.
    pub(crate) fn said(&self) -> u64 {
        self.engine.metrics().generation_tokens()
    }

    /// Lets all streams run.
    pub(crate) fn run(&mut self, workload: Workload, until: Until) -> Result<Slice, Failure> {
        let mut slice = Slice::default();
        let mut before = self.counted();
        let began = Instant::now();
        let mut last = began;
        while match until {
            Until::Seconds(seconds) => (last - began).as_secs_f64() < seconds,
            Until::Decoding(seconds) => slice.seconds < seconds,
            Until::Said(tokens) => self.said() < tokens,
        } {
            if self.engine.metrics().running() < self.streams.len() {
                self.refill(workload)?;
                last = Instant::now();
            }
            self.stepper.step();
            let now = Instant::now();
            let after = self.counted();
            let [prompts, tokens, drafted, accepted] =
                std::array::from_fn(|place| after[place] - before[place]);
            let took = (now - last).as_secs_f64();
            slice.whole_seconds += took;
            slice.whole_tokens += tokens;
            if prompts == 0 {
                slice.seconds += took;
                slice.steps += 1;
                slice.tokens += tokens;
                slice.drafted += drafted;
                slice.accepted += accepted;
            }
            (before, last) = (after, now);
        }
        Ok(slice)
    }

    /// Everybody leaves, and goes on with a phase's first texts: all policies are asked the same at its beginning.
    pub(crate) fn begin(&mut self, phase: usize) {
        for stream in &mut self.streams {
            // What it has said is no answer.
            (stream.open, stream.told) = (None, None);
            stream.asked = phase * PHASE_TEXTS;
        }
        // Takes the cancellations; there is nothing to compute then.
        self.stepper.step();
    }

    fn counted(&self) -> [u64; 4] {
        let metrics = self.engine.metrics();
        [
            metrics.prompt_tokens(),
            metrics.generation_tokens(),
            metrics.draft_tokens(),
            metrics.accepted_tokens(),
        ]
    }

    fn refill(&mut self, workload: Workload) -> Result<(), Failure> {
        let count = self.streams.len();
        for (index, stream) in self.streams.iter_mut().enumerate() {
            if !stream.is_over() {
                continue;
            }
            stream.record(self.record.as_deref())?;
            let (prompt, mut sampling) = self.texts.ask(workload, index + stream.asked * count);
            if stream.asked == 0 {
                // The first answers end at different times, and so do all after them.
                sampling.max_tokens = sampling
                    .max_tokens
                    .map(|most| most - most * index / count / 2);
            }
            sampling.seed = sampling.seed.filter(|_| self.seeded);
            stream.asked += 1;
            stream.told = Some((workload, prompt.len(), prompt.clone()));
            self.asked += 1;
            let request = request(prompt, sampling, self.asked);
            stream.open = Some(self.engine.submit(request)?);
        }
        Ok(())
    }
}

fn engine(pair: &Pair, policy: &Policy) -> Result<(Engine, Stepper), Failure> {
    let config = EngineConfig {
        num_blocks: BLOCKS,
        max_model_len: pair.target.config().context_length,
        // The longest prompt and the drafts of everybody else fit into a step: one that read a part of a prompt would be taken for
        // one that only decodes.
        max_num_batched_tokens: 2048,
        speculation: policy.config,
        ..EngineConfig::default()
    };
    let vocabulary = Arc::clone(&pair.tokenizer);
    Ok(Engine::manual(config, pair.executors()?, vocabulary)?)
}

fn request(prompt: Vec<u32>, sampling: Sampling, salt: usize) -> Request {
    Request {
        id: "bench".into(),
        prompt,
        sampling,
        priority: Priority::Normal,
        cache_salt: Some(salt.to_string().into()),
    }
}

impl Stream {
    /// Reads what has come; whether it was all.
    fn is_over(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let Some(open) = &mut self.open else {
            return true;
        };
        loop {
            match open.poll_recv(&mut context) {
                Poll::Ready(Some(Update::Delta { tokens, .. })) => {
                    if let Some((_, _, told)) = &mut self.told {
                        told.extend(tokens.iter().map(|token| token.id));
                    }
                }
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return true,
                Poll::Pending => return false,
            }
        }
    }

    /// A line: the workload, the tokens of the prompt, then all tokens.
    fn record(&mut self, file: Option<&File>) -> Result<(), Failure> {
        let (Some(mut file), Some((workload, prompt, tokens))) = (file, self.told.take()) else {
            return Ok(());
        };
        let tokens: Vec<String> = tokens.iter().map(u32::to_string).collect();
        writeln!(file, "{} {prompt} {}", workload.name(), tokens.join(" "))?;
        Ok(())
    }
}
