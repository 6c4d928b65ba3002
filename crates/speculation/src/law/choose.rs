//! Who drafts for whom, where both a lookup and the draft model could.
//!
//! A draft's worth is `sum of survivals - price * (time for its rows + its share of passes + what there is to read
//! first)`. A lookup costs no passes, so it wins unless the model is better by what its passes cost: n-gram where it
//! hits, the model where not, and where both would do, by what was measured of each for this sequence.
//!
//! The price is the tokens per second of the very step that is being planned. It depends on the choice and the choice
//! on it, so it is found in rounds: from that of a step without drafts, each time what the best choices at the last one
//! achieve. (The price of the step before would be wrong: behind a copy that brought eight tokens at once no draft of
//! the model seems worth its time, and nothing would be drafted at all.)

use super::Evidence;
use super::arm::Arm;
use super::turns::Turns;
use crate::acceptance::MAX_DEPTH;
use crate::cost::StepShape;
use crate::source::Source;
use crate::step::Candidate;

/// Rounds in which the price is found. The first gives a price that is too low, the second one near enough.
const ROUNDS: usize = 2;

/// What the draft of a sequence would be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    pub(super) source: Source,
    pub(super) arm: Arm,
    /// Whether the model's draft would be the best if there were nothing to read.
    pub(super) wants_model: bool,
}

/// What sequences would cost on their own beside the others.
struct Shares {
    /// The target, by drafted rows of one sequence.
    verify: Vec<f64>,
    /// A share of a pass.
    pass: f64,
}

/// One choice for each candidate, `None` where nobody can draft.
pub(super) fn choose_sources(
    candidates: &[Candidate],
    evidence: &Evidence,
    turns: &Turns,
    shape: &StepShape,
) -> Vec<Option<Choice>> {
    let sequences = shape.sequences.max(1);
    let options: Vec<[Option<Choice>; 2]> = candidates
        .iter()
        .map(|candidate| options(candidate, evidence, turns))
        .collect();
    if options.iter().all(|[_, by_model]| by_model.is_none()) {
        return options.iter().map(|[lookup, _]| *lookup).collect();
    }
    let shares = Shares {
        verify: evidence.costs.verify_curve(shape, MAX_DEPTH),
        pass: evidence.costs.draft_pass(sequences, shape.context) / sequences as f64,
    };
    let plain = shares.verify.first().copied().unwrap_or(0.0);
    let mut price = sequences as f64 / plain.max(f64::MIN_POSITIVE);
    let mut chosen = Vec::new();
    for _ in 0..ROUNDS {
        let (mut tokens, mut seconds) = (sequences as f64, plain);
        chosen.clear();
        for options in &options {
            let best = better(options, &shares, price);
            if let Some((_, best)) = best {
                tokens += best.tokens;
                seconds += best.seconds;
            }
            chosen.push(best.map(|(choice, _)| choice));
        }
        let achieved = tokens / seconds.max(f64::MIN_POSITIVE);
        if achieved <= price {
            break;
        }
        price = achieved;
    }
    chosen
}

/// The option that is worth more at a price, the first of equals, and what it is worth.
fn better(options: &[Option<Choice>; 2], shares: &Shares, price: f64) -> Option<(Choice, Best)> {
    let [lookup, by_model] =
        options.map(|option| option.map(|choice| (choice, best_draft(&choice.arm, shares, price))));
    let Some((choice, read)) = by_model else {
        return lookup;
    };
    let found = lookup.map_or(0.0, |(_, found)| found.worth);
    let begun = best_draft(&choice.arm.begun(), shares, price);
    let (choice, best) = match lookup {
        Some(lookup) if read.worth <= found => lookup,
        _ => (choice, read),
    };
    let wants_model = begun.worth > found;
    Some((
        Choice {
            wants_model,
            ..choice
        },
        best,
    ))
}

/// The lookup first: of equals it is taken, for it can be tried without reading anything.
fn options(candidate: &Candidate, evidence: &Evidence, turns: &Turns) -> [Option<Choice>; 2] {
    let choice = |source: Source, length: usize| {
        let limit = length.min(candidate.max_depth).min(MAX_DEPTH);
        let arm = Arm::new(evidence, candidate.id, source, limit);
        let arm = arm.behind(evidence, candidate.behind, turns.expected(candidate.id));
        (limit > 0).then_some(Choice {
            source,
            arm,
            wants_model: false,
        })
    };
    [
        candidate
            .lookup
            .and_then(|found| choice(Source::Ngram(found.strength), found.length)),
        candidate
            .model
            .then(|| choice(Source::Model, MAX_DEPTH))
            .flatten(),
    ]
}

/// The best depth of an arm at a price, and what it brings and takes.
#[derive(Debug, Clone, Copy, Default)]
struct Best {
    worth: f64,
    tokens: f64,
    seconds: f64,
}

fn best_draft(arm: &Arm, shares: &Shares, price: f64) -> Best {
    let pass = if arm.runs_a_model { shares.pass } else { 0.0 };
    let mut before = shares.verify.first().copied().unwrap_or(0.0);
    let mut best = Best::default();
    let (mut tokens, mut seconds, mut reached) = (0.0, arm.instalment, 1.0);
    let rows = shares.verify.iter().skip(1).take(arm.limit);
    for (survival, verify) in arm.survival.iter().zip(rows) {
        tokens += survival;
        seconds += pass * reached;
        reached *= arm.goes_on;
        seconds += reached * (verify - before);
        before = *verify;
        let worth = tokens - price * seconds;
        if worth > best.worth {
            best = Best {
                worth,
                tokens,
                seconds,
            };
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::source::Strength;
    use crate::step::Lookup;

    fn candidate(strength: Strength) -> Candidate {
        Candidate {
            id: 1,
            context: 100,
            max_depth: 8,
            model: true,
            behind: 0,
            lookup: Some(Lookup {
                length: 8,
                strength,
            }),
        }
    }

    fn choose(evidence: &Evidence, candidate: Candidate) -> Option<Source> {
        let shape = StepShape {
            sequences: 1,
            context: 100,
            ..StepShape::default()
        };
        let chosen = choose_sources(&[candidate], evidence, &Turns::default(), &shape);
        chosen[0].map(|choice| choice.source)
    }

    fn evidence() -> Evidence {
        let mut evidence = Evidence::default();
        for _ in 0..60 {
            let mut observe = |source, drafted, accepted| {
                let acceptance = &mut evidence.acceptance;
                acceptance.observe(Duration::ZERO, 1, source, drafted, accepted);
            };
            observe(Source::Model, 4, 3);
            observe(Source::Ngram(Strength::Strong), 6, 5);
            observe(Source::Ngram(Strength::Weak), 4, 0);
        }
        evidence
    }

    #[test]
    fn auto_takes_lookups_that_hit_and_the_model_where_they_do_not() {
        let evidence = evidence();
        let strong = candidate(Strength::Strong);
        let weak = candidate(Strength::Weak);
        assert_eq!(
            choose(&evidence, strong),
            Some(Source::Ngram(Strength::Strong))
        );
        assert_eq!(choose(&evidence, weak), Some(Source::Model));
        let without = Candidate {
            lookup: None,
            ..strong
        };
        assert_eq!(choose(&evidence, without), Some(Source::Model));
        let alone = Candidate {
            model: false,
            ..weak
        };
        assert_eq!(
            choose(&evidence, alone),
            Some(Source::Ngram(Strength::Weak))
        );
        let full = Candidate {
            max_depth: 0,
            ..strong
        };
        assert_eq!(choose(&evidence, full), None);
    }

    #[test]
    fn a_model_that_has_all_to_read_first_is_left_to_who_has_not() {
        let mut evidence = evidence();
        // A token that is read takes as long as a step of the target.
        for step in 0..50 {
            let now = Duration::from_millis(20 * step);
            let shape = StepShape {
                sequences: 1,
                context: 100,
                ..StepShape::default()
            };
            let took = Duration::from_millis(20);
            evidence.costs.observe_verify(now, &shape, took);
            evidence.costs.observe_catch_up(1, took);
        }
        let fair = |behind| Candidate {
            behind,
            ..candidate(Strength::Fair)
        };
        assert_eq!(choose(&evidence, fair(0)), Some(Source::Model));
        assert_eq!(
            choose(&evidence, fair(10_000)),
            Some(Source::Ngram(Strength::Fair))
        );
    }
}
