//! Texts of which only the chances of guesses are known.

use super::engine::{Said, Stream, drive};
use super::machine::Machine;
use super::noise::Noise;
use super::run::Run;
use super::text::{Guesses, Text};
use crate::controller::Controller;
use crate::cost::Costs;
use crate::law::LawSpec;
use crate::source::Source;
use crate::step::{Candidate, Draft, Looked, Lookup, Verified};

/// Tokens of an answer; then the stream begins another sequence.
const ANSWER: usize = 256;

/// Tokens of a prompt.
const PROMPT: usize = 200;

/// Longest lookup.
const LOOKUP: usize = 12;

/// What is simulated.
#[derive(Debug, Clone)]
pub struct World {
    /// What steps take.
    pub machine: Machine,
    /// Texts by stream (repeated over the streams) and, within, by time.
    pub texts: Vec<Vec<Text>>,
    /// Seconds after which a stream's text changes to its next.
    pub shift: f64,
    /// Streams.
    pub streams: usize,
    /// Seed of everything drawn.
    pub seed: u64,
}

impl World {
    /// One kind of text for all streams.
    pub fn steady(machine: Machine, text: Text, streams: usize) -> Self {
        Self {
            machine,
            texts: vec![vec![text]],
            shift: f64::INFINITY,
            streams,
            seed: 1,
        }
    }

    /// All streams change from text to text every `seconds`.
    pub fn shifting(machine: Machine, texts: &[Text], seconds: f64, streams: usize) -> Self {
        Self {
            machine,
            texts: vec![texts.to_vec()],
            shift: seconds,
            streams,
            seed: 1,
        }
    }

    /// Each stream has a text of its own.
    pub fn mixed(machine: Machine, texts: &[Text], streams: usize) -> Self {
        Self {
            texts: texts.iter().map(|&text| vec![text]).collect(),
            ..Self::steady(machine, Text::PROSE, streams)
        }
    }

    /// The text of a stream at a time.
    pub fn text(&self, stream: usize, at: f64) -> Text {
        let texts = self.texts.get(stream % self.texts.len().max(1));
        let texts = texts.map_or(&[][..], Vec::as_slice);
        let phase = (at / self.shift) as usize % texts.len().max(1);
        texts.get(phase).copied().unwrap_or(Text::RANDOM)
    }

    /// Runs a law for `seconds`.
    pub fn run(&self, law: LawSpec, seconds: f64) -> Run {
        let costs = Costs::default();
        let mut controller = Controller::new(law, costs);
        self.run_with(&mut controller, seconds)
    }

    /// Runs a controller for `seconds`.
    pub fn run_with(&self, controller: &mut Controller, seconds: f64) -> Run {
        let mut noise = Noise::new(self.seed);
        let mut streams: Vec<Box<dyn Stream + '_>> = (0..self.streams)
            .map(|place| Box::new(Drawn::new(self, place)) as Box<dyn Stream + '_>)
            .collect();
        drive(&self.machine, &mut streams, &mut noise, controller, seconds)
    }
}

/// A stream whose tokens are never known, only whether they were guessed.
struct Drawn<'a> {
    world: &'a World,
    /// Which of the world's streams it is.
    place: usize,
    id: u64,
    emitted: usize,
    context: usize,
    /// Tokens that the draft model has not read.
    behind: usize,
    /// Whether its text is in a hard stretch.
    hard: bool,
    /// What a lookup has found for the present step.
    found: Option<Lookup>,
}

impl<'a> Drawn<'a> {
    /// Answers of different streams end at different times.
    fn new(world: &'a World, place: usize) -> Self {
        Self {
            emitted: place * ANSWER / world.streams.max(1),
            ..Self::beginning(world, place, place as u64)
        }
    }

    fn beginning(world: &'a World, place: usize, id: u64) -> Self {
        Self {
            world,
            place,
            id,
            emitted: 0,
            context: PROMPT,
            behind: PROMPT,
            hard: false,
            found: None,
        }
    }

    /// By some tokens; says how many the draft model had to read first.
    fn advance(&mut self, tokens: usize, by_model: bool) -> usize {
        let read = if by_model { self.behind } else { 0 };
        self.behind = if by_model { 0 } else { self.behind + tokens };
        self.emitted += tokens;
        self.context += tokens;
        read
    }
}

impl Stream for Drawn<'_> {
    fn candidate(&mut self, at: f64, noise: &mut Noise) -> Candidate {
        let text = self.world.text(self.place, at);
        let hit = noise.uniform() < text.hits;
        self.found = hit.then_some(Lookup {
            length: LOOKUP,
            strength: text.strength,
        });
        Candidate {
            id: self.id,
            context: self.context,
            max_depth: 16,
            model: text.model.is_some(),
            behind: self.behind,
            lookup: self.found,
        }
    }

    fn go_on(&mut self, at: f64, draft: &Draft, noise: &mut Noise) -> Said {
        let text = self.world.text(self.place, at);
        let chances = chances(&text, draft.source, self.hard);
        let accepted = (0..draft.depth)
            .take_while(|&position| noise.uniform() < chances.at(position))
            .count();
        let lookup = self
            .found
            .map(|found| looked(found, &text.lookup, draft, accepted, noise));
        let by_model = draft.source == Source::Model && draft.depth > 0;
        let read = self.advance(accepted + 1, by_model);
        self.hard = text.hard.is_some_and(|hard| {
            self.hard != (noise.uniform() * hard.length < (accepted + 1) as f64)
        });
        Said {
            verified: Verified {
                id: self.id,
                source: draft.source,
                planned: draft.depth,
                drafted: draft.depth,
                accepted,
                lookup,
            },
            read,
        }
    }

    fn begin_next(&mut self, id: u64) -> Option<u64> {
        if self.emitted < ANSWER {
            return None;
        }
        let ended = self.id;
        *self = Self::beginning(self.world, self.place, id);
        Some(ended)
    }
}

/// What a lookup found, held against the `accepted + 1` tokens that came: as many as were drafted of it are known to agree.
fn looked(
    found: Lookup,
    chances: &Guesses,
    draft: &Draft,
    accepted: usize,
    noise: &mut Noise,
) -> Looked {
    let compared = found.length.min(accepted + 1);
    let drafted = draft.depth > 0 && draft.source != Source::Model;
    let known = if drafted { accepted } else { 0 };
    let rejected = drafted && accepted < draft.depth;
    let more = (known..compared)
        .take_while(|&position| !rejected && noise.uniform() < chances.at(position))
        .count();
    Looked {
        strength: found.strength,
        compared,
        agreed: known + more,
    }
}

fn chances(text: &Text, source: Source, hard: bool) -> Guesses {
    let nothing = Guesses {
        first: 0.0,
        fade: 0.0,
    };
    match source {
        Source::Model => {
            let stretch = text.hard.filter(|_| hard).map(|hard| hard.model);
            stretch.or(text.model).unwrap_or(nothing)
        }
        Source::Ngram(_) => text.lookup,
    }
}
