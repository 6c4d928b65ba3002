//! Streams, a clock, and the loop of an engine.

use std::time::Duration;

use super::machine::Machine;
use super::noise::Noise;
use super::text::{Guesses, Text};
use crate::controller::Controller;
use crate::cost::Costs;
use crate::law::{LawSpec, Reason};
use crate::source::Source;
use crate::step::{Candidate, Draft, Looked, Lookup, Outcome, Plan, Step, Verified};

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

/// What the law did at one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sight {
    /// When, in seconds.
    pub at: f64,
    /// Mean depth planned, probes included.
    pub depth: f64,
    /// Tokens that came out.
    pub tokens: usize,
    /// Expected speed-up.
    pub speedup: f64,
    /// Whether it was a probe.
    pub probe: bool,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// Tokens in all.
    pub tokens: usize,
    /// Seconds in all, as if every step had taken its mean time: comparing laws by luck helps nobody.
    pub seconds: f64,
    /// Step by step.
    pub sights: Vec<Sight>,
}

impl Run {
    /// Tokens per second.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// How often the depth changed, probes left out.
    pub fn changes(&self) -> usize {
        let planned: Vec<f64> = self
            .sights
            .iter()
            .filter(|sight| !sight.probe)
            .map(|sight| sight.depth)
            .collect();
        planned
            .windows(2)
            .filter(|pair| pair.first() != pair.last())
            .count()
    }

    /// Mean depth between two times, probes left out.
    pub fn depth_between(&self, from: f64, to: f64) -> f64 {
        let depths: Vec<f64> = self
            .sights
            .iter()
            .filter(|sight| !sight.probe && (from..to).contains(&sight.at))
            .map(|sight| sight.depth)
            .collect();
        depths.iter().sum::<f64>() / depths.len().max(1) as f64
    }

    /// Tokens per second between two times.
    pub fn rate_between(&self, from: f64, to: f64) -> f64 {
        let within = self.sights.iter().filter(|s| (from..to).contains(&s.at));
        within.map(|sight| sight.tokens).sum::<usize>() as f64 / (to - from)
    }
}

struct Stream {
    id: u64,
    emitted: usize,
    context: usize,
    /// Tokens that the draft model has not read.
    behind: usize,
    /// Whether its text is in a hard stretch.
    hard: bool,
}

impl Stream {
    fn new(id: u64, emitted: usize) -> Self {
        Self {
            id,
            emitted,
            context: PROMPT,
            behind: PROMPT,
            hard: false,
        }
    }

    /// Goes on by some tokens; says how many the draft model had to read first.
    fn go_on(&mut self, tokens: usize, by_model: bool) -> usize {
        let read = if by_model { self.behind } else { 0 };
        self.behind = if by_model { 0 } else { self.behind + tokens };
        self.emitted += tokens;
        self.context += tokens;
        read
    }
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
        let mut next_id = self.streams as u64;
        let mut streams: Vec<Stream> = (0..self.streams)
            // Answers end at different times.
            .map(|stream| Stream::new(stream as u64, stream * ANSWER / self.streams.max(1)))
            .collect();
        let mut run = Run::default();
        let mut clock = 0.0f64;
        let mut mean_clock = 0.0f64;
        let mut paused_until = 0.0f64;
        let mut plain_steps = usize::MAX;
        while clock < seconds {
            let candidates: Vec<Candidate> = streams
                .iter()
                .enumerate()
                .map(|(index, stream)| self.candidate(stream, index, clock, &mut noise))
                .collect();
            let now = Duration::from_secs_f64(clock);
            let asked = clock >= paused_until;
            let plan = if asked {
                controller.plan(now, &Step::decoding(&candidates))
            } else {
                Plan::plain(&candidates, Reason::Off)
            };
            paused_until = paused_until.max(clock + plan.pause.as_secs_f64());
            let mut verified = Vec::with_capacity(streams.len());
            let (mut tokens, mut read) = (0, 0);
            for (index, (stream, draft)) in streams.iter_mut().zip(&plan.drafts).enumerate() {
                let text = self.text(index, clock);
                let chances = chances(&text, draft.source, stream.hard);
                let accepted = (0..draft.depth)
                    .take_while(|&position| noise.uniform() < chances.at(position))
                    .count();
                let lookup = candidates
                    .get(index)
                    .and_then(|candidate| candidate.lookup)
                    .map(|found| looked(found, &text.lookup, draft, accepted, &mut noise));
                let by_model = draft.source == Source::Model && draft.depth > 0;
                read += stream.go_on(accepted + 1, by_model);
                stream.hard = text.hard.is_some_and(|hard| {
                    stream.hard != (noise.uniform() * hard.length < (accepted + 1) as f64)
                });
                tokens += accepted + 1;
                verified.push(Verified {
                    id: stream.id,
                    source: draft.source,
                    planned: draft.depth,
                    drafted: draft.depth,
                    accepted,
                    lookup,
                });
            }
            let (verify, draft) = self.mean_times(&verified);
            let by_model = verified.iter().filter(|v| v.source == Source::Model);
            let passes = by_model.clone().map(|v| v.drafted).max().unwrap_or(0);
            let pass_rows = by_model.map(|v| v.drafted).sum();
            let drafts = verified.iter().any(|v| v.drafted > 0);
            let recovering = match drafts {
                true => 1.0,
                false => self.machine.recovering(plain_steps),
            };
            plain_steps = if drafts {
                0
            } else {
                plain_steps.saturating_add(1)
            };
            let tempo = self.machine.tempo(clock);
            let (verify, draft) = (verify * tempo * recovering, draft * tempo);
            let catch_up = self.machine.read(read) * tempo;
            mean_clock += verify + draft + catch_up;
            let verify = verify * self.machine.unevenness(&mut noise);
            let draft = draft * self.machine.unevenness(&mut noise);
            clock += verify + draft + catch_up;
            if asked {
                controller.observe(
                    Duration::from_secs_f64(clock),
                    &Outcome {
                        drafts: &verified,
                        context: candidates.iter().map(|c| c.context).sum(),
                        prefill_rows: 0,
                        verify: Duration::from_secs_f64(verify),
                        draft: Duration::from_secs_f64(draft),
                        passes,
                        pass_rows,
                        catch_up: Duration::from_secs_f64(catch_up),
                        caught_up: read,
                        read_along: 0,
                    },
                );
            }
            for stream in streams.iter_mut().filter(|s| s.emitted >= ANSWER) {
                controller.forget(stream.id);
                *stream = Stream::new(next_id, 0);
                next_id += 1;
            }
            run.tokens += tokens;
            run.sights.push(Sight {
                at: clock,
                depth: plan.decision.depth,
                tokens,
                speedup: plan.decision.speedup,
                probe: plan.decision.reason.name().starts_with("probe"),
            });
        }
        run.seconds = mean_clock;
        run
    }

    fn candidate(&self, stream: &Stream, index: usize, at: f64, noise: &mut Noise) -> Candidate {
        let text = self.text(index, at);
        let hit = noise.uniform() < text.hits;
        Candidate {
            id: stream.id,
            context: stream.context,
            max_depth: 16,
            model: text.model.is_some(),
            behind: stream.behind,
            lookup: hit.then_some(Lookup {
                length: LOOKUP,
                strength: text.strength,
            }),
        }
    }

    fn mean_times(&self, verified: &[Verified]) -> (f64, f64) {
        let drafted = verified.iter().map(|v| v.drafted).sum();
        let verify = self.machine.verify(verified.len(), drafted);
        let deepest = verified.iter().map(|v| v.drafted).max().unwrap_or(0);
        let draft = (1..=deepest)
            .map(|depth| {
                let in_pass = verified
                    .iter()
                    .filter(|v| v.source == Source::Model && v.drafted >= depth)
                    .count();
                self.machine.pass(in_pass)
            })
            .sum::<f64>();
        (verify, draft)
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
