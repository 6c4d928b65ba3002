//! The loop of an engine, without its arithmetic.

use std::time::Duration;

use super::machine::Machine;
use super::noise::Noise;
use super::run::{Run, Sight};
use crate::controller::Controller;
use crate::law::{LawSpec, Reason};
use crate::source::Source;
use crate::step::{Candidate, Draft, Outcome, Plan, Step, Verified};

/// Somebody who asks one thing after the other.
pub(super) trait Stream {
    /// What could be drafted for the present answer.
    fn candidate(&mut self, at: f64, noise: &mut Noise) -> Candidate;

    /// The answer goes on by what holds of the draft and a token more.
    fn go_on(&mut self, at: f64, draft: &Draft, noise: &mut Noise) -> Said;

    /// If the answer is complete, begins the next one under this name, and gives the old one.
    fn begin_next(&mut self, id: u64) -> Option<u64>;
}

/// What came of a draft.
pub(super) struct Said {
    pub(super) verified: Verified,
    /// Tokens that the draft model had to read before.
    pub(super) read: usize,
}

/// Runs a controller over streams for `seconds`.
pub(super) fn drive(
    machine: &Machine,
    streams: &mut [Box<dyn Stream + '_>],
    noise: &mut Noise,
    controller: &mut Controller,
    seconds: f64,
) -> Run {
    let mut run = Run::default();
    let mut next_id = streams.len() as u64;
    let (mut clock, mut mean_clock) = (0.0f64, 0.0f64);
    let mut paused_until = 0.0f64;
    let mut plain_steps = usize::MAX;
    while clock < seconds {
        let candidates: Vec<Candidate> = streams
            .iter_mut()
            .map(|stream| stream.candidate(clock, noise))
            .collect();
        let asked = clock >= paused_until;
        // Where nothing may ever be drafted there is nothing to plan.
        let plans = asked && controller.law() != LawSpec::Fixed(0);
        let planning = if plans {
            machine.plan(streams.len()) * machine.tempo(clock)
        } else {
            0.0
        };
        let plan = if asked {
            let now = Duration::from_secs_f64(clock);
            controller.plan(now, &Step::decoding(&candidates))
        } else {
            Plan::plain(&candidates, Reason::Off)
        };
        paused_until = paused_until.max(clock + plan.pause.as_secs_f64());
        let (verified, read) = say(streams, &plan, clock, noise);
        let drafts = verified.iter().any(|v| v.drafted > 0);
        let recovering = match drafts {
            true => 1.0,
            false => machine.recovering(plain_steps),
        };
        plain_steps = match drafts {
            true => 0,
            false => plain_steps.saturating_add(1),
        };
        let (verify, draft) = mean_times(machine, clock, &verified);
        let verify = verify * recovering;
        let catch_up = machine.read(read) * machine.tempo(clock);
        mean_clock += planning + verify + draft + catch_up;
        let verify = verify * machine.unevenness(noise);
        let draft = draft * machine.unevenness(noise);
        clock += planning + verify + draft + catch_up;
        if asked {
            let by_model = verified.iter().filter(|v| v.source == Source::Model);
            controller.observe(
                Duration::from_secs_f64(clock),
                &Outcome {
                    drafts: &verified,
                    draft_rows: verified.iter().map(|v| v.drafted).sum(),
                    tokens: verified.iter().map(|v| v.accepted + 1).sum(),
                    context: candidates.iter().map(|c| c.context).sum(),
                    prefill_rows: 0,
                    verify: Duration::from_secs_f64(verify),
                    draft: Duration::from_secs_f64(draft),
                    passes: by_model.clone().map(|v| v.drafted).max().unwrap_or(0),
                    pass_rows: by_model.map(|v| v.drafted).sum(),
                    catch_up: Duration::from_secs_f64(catch_up),
                    caught_up: read,
                    read_along: 0,
                    planning: Duration::from_secs_f64(planning),
                },
            );
        }
        for stream in streams.iter_mut() {
            if let Some(ended) = stream.begin_next(next_id) {
                controller.forget(ended);
                next_id += 1;
            }
        }
        let tokens = verified.iter().map(|v| v.accepted + 1).sum();
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

/// Lets all streams go on as planned; also how many tokens the draft model had to read.
fn say(
    streams: &mut [Box<dyn Stream + '_>],
    plan: &Plan,
    at: f64,
    noise: &mut Noise,
) -> (Vec<Verified>, usize) {
    let mut read = 0;
    let verified = streams
        .iter_mut()
        .zip(&plan.drafts)
        .map(|(stream, draft)| {
            let said = stream.go_on(at, draft, noise);
            read += said.read;
            said.verified
        })
        .collect();
    (verified, read)
}

fn mean_times(machine: &Machine, at: f64, verified: &[Verified]) -> (f64, f64) {
    let drafted = verified.iter().map(|v| v.drafted).sum();
    let verify = machine.verify_at(at, verified.len(), drafted);
    let deepest = verified.iter().map(|v| v.drafted).max().unwrap_or(0);
    let draft = (1..=deepest)
        .map(|depth| {
            let in_pass = verified
                .iter()
                .filter(|v| v.source == Source::Model && v.drafted >= depth)
                .count();
            machine.pass(in_pass)
        })
        .sum::<f64>();
    (verify, draft * machine.tempo(at))
}
