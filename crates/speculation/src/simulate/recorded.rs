//! Texts that were really said, token by token, with the lookups that an engine makes in them.
//!
//! A model's tokens do not depend on drafts, so a text that was recorded once can be said again under every law. What is
//! looked up is found as an engine finds it; only the time of steps is made up. Recorded texts have what drawn ones lack: matches
//! that hold or break in runs, and strengths that say more or less from one text to the next.
//!
//! # Example
//! ```
//! use forespeak_speculation::LawSpec;
//! use forespeak_speculation::simulate::{Machine, Recorded, Telling};
//!
//! let refrain = Telling { prompt: 40, tokens: (0..400).map(|at| at % 40).collect() };
//! let recorded = Recorded::steady(Machine::CPU, &[refrain], 1);
//! let rate = |law| recorded.run(law, 20.0).tokens_per_second();
//! assert!(rate(LawSpec::Goodput) > 3.0 * rate(LawSpec::Fixed(0)));
//! ```

use super::engine::{Said, Stream, drive};
use super::machine::Machine;
use super::noise::Noise;
use super::run::Run;
use crate::acceptance::MAX_DEPTH;
use crate::controller::Controller;
use crate::cost::Costs;
use crate::law::LawSpec;
use crate::ngram::{Found, SuffixIndex};
use crate::source::Source;
use crate::step::{Candidate, Draft, Looked, Verified};

/// A text that was said once.
#[derive(Debug, Clone, Default)]
pub struct Telling {
    /// How many of its tokens, from the first, were the prompt.
    pub prompt: usize,
    /// All of them.
    pub tokens: Vec<u32>,
}

impl Telling {
    /// Reads a line: a text's kind, the tokens of its prompt, then all tokens.
    pub fn read(line: &str) -> Option<(&str, Self)> {
        let mut words = line.split_whitespace();
        let kind = words.next()?;
        let prompt = words.next()?.parse().ok()?;
        let tokens = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some((kind, Self { prompt, tokens }))
    }
}

/// Streams that say recorded texts, one after the other.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// What steps take.
    pub machine: Machine,
    /// Kinds of texts; streams change from one to the next.
    pub kinds: Vec<Vec<Telling>>,
    /// Seconds after which they do, at the end of an answer.
    pub shift: f64,
    /// Streams.
    pub streams: usize,
    /// Seed of the unevenness of steps.
    pub seed: u64,
}

impl Recorded {
    /// Texts of one kind.
    pub fn steady(machine: Machine, texts: &[Telling], streams: usize) -> Self {
        Self::shifting(machine, vec![texts.to_vec()], f64::INFINITY, streams)
    }

    /// Texts of several kinds.
    pub fn shifting(
        machine: Machine,
        kinds: Vec<Vec<Telling>>,
        shift: f64,
        streams: usize,
    ) -> Self {
        Self {
            machine,
            kinds,
            shift,
            streams,
            seed: 1,
        }
    }

    /// Runs a law for `seconds`.
    pub fn run(&self, law: LawSpec, seconds: f64) -> Run {
        let mut controller = Controller::new(law, Costs::default());
        let mut noise = Noise::new(self.seed);
        let mut streams: Vec<Box<dyn Stream + '_>> = (0..self.streams)
            .map(|place| Box::new(Speaker::new(self, place)) as Box<dyn Stream + '_>)
            .collect();
        drive(
            &self.machine,
            &mut streams,
            &mut noise,
            &mut controller,
            seconds,
        )
    }

    /// The text that a stream begins with at a time.
    fn text(&self, at: f64, number: usize) -> Option<&Telling> {
        let kind = (at / self.shift) as usize % self.kinds.len().max(1);
        let texts = self.kinds.get(kind)?;
        texts.get(number % texts.len().max(1))
    }
}

/// A stream that says recorded texts.
struct Speaker<'a> {
    recorded: &'a Recorded,
    id: u64,
    /// Texts begun so far by all streams, as far as this one knows: every stream begins another one.
    number: usize,
    tokens: &'a [u32],
    /// Tokens said, those of the prompt included.
    said: usize,
    index: SuffixIndex,
    found: Option<Found>,
    at: f64,
}

impl<'a> Speaker<'a> {
    fn new(recorded: &'a Recorded, place: usize) -> Self {
        let mut speaker = Self {
            recorded,
            id: place as u64,
            number: place,
            tokens: &[],
            said: 0,
            index: SuffixIndex::default(),
            found: None,
            at: 0.0,
        };
        speaker.begin();
        // Answers of different streams end at different times.
        let left = speaker.tokens.len() - speaker.said;
        speaker.say(left * place / recorded.streams.max(1) / 2);
        speaker
    }

    fn begin(&mut self) {
        self.said = 0;
        self.index = SuffixIndex::default();
        if let Some(text) = self.recorded.text(self.at, self.number) {
            self.tokens = &text.tokens;
            self.say(text.prompt);
        }
    }

    fn say(&mut self, tokens: usize) {
        let from = self.said;
        self.said = (from + tokens).min(self.tokens.len());
        self.index
            .extend(self.tokens.get(from..self.said).unwrap_or_default());
    }

    fn left(&self) -> &'a [u32] {
        self.tokens.get(self.said..).unwrap_or_default()
    }
}

impl Stream for Speaker<'_> {
    fn candidate(&mut self, at: f64, _: &mut Noise) -> Candidate {
        self.at = at;
        // The last token of an answer is never drafted.
        let max_depth = MAX_DEPTH.min(self.left().len().saturating_sub(1));
        self.found = self.index.propose(max_depth);
        Candidate {
            id: self.id,
            context: self.said,
            max_depth,
            model: false,
            behind: 0,
            lookup: self.found.as_ref().map(Found::lookup),
        }
    }

    fn go_on(&mut self, _: f64, draft: &Draft, _: &mut Noise) -> Said {
        let found = self.found.take();
        let guessed = match (&found, draft.source) {
            (Some(found), Source::Ngram(_)) => found.tokens.as_slice(),
            _ => &[],
        };
        let drafted = draft.depth.min(guessed.len());
        let pairs = guessed.iter().zip(self.left()).take(drafted);
        let accepted = pairs.take_while(|(guess, token)| guess == token).count();
        let came = self.left().get(..accepted + 1).unwrap_or_default();
        let lookup =
            found.map(|found| Looked::compare(found.lookup().strength, &found.tokens, came));
        self.say(accepted + 1);
        Said {
            verified: Verified {
                id: self.id,
                source: draft.source,
                planned: drafted,
                drafted,
                accepted,
                lookup,
            },
            read: 0,
        }
    }

    fn begin_next(&mut self, id: u64) -> Option<u64> {
        if !self.left().is_empty() {
            return None;
        }
        self.number += self.recorded.streams;
        self.begin();
        Some(std::mem::replace(&mut self.id, id))
    }
}
