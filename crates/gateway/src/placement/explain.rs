//! What would become of a request, for people to read.

use std::fmt;

use routing::Decision;
use routing::admission::{Pressure, Verdict};
use routing::decision::{Candidate, Exclusion};
use serde::Serialize;

use super::report::WorkerReport;

/// What would become of a request now, and why.
#[derive(Debug, Clone, Serialize)]
pub struct Explained {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// How they were counted: `whole`, `grown`, `repeat`, or by length alone as `text`.
    pub read: &'static str,
    /// Whether it would be let in.
    pub verdict: Verdict,
    /// How full the workers are.
    pub pressure: Pressure,
    /// Where it would go.
    pub decision: Option<Decision>,
    /// The workers that decisions number.
    pub workers: Vec<WorkerReport>,
}

/// ```text
/// prompt of 1600 tokens (whole); KV usage 12 %; would be admitted
///
///    # worker   score cached_tokens prefill …
/// -> 0 a:8000   0.043          1536   0.006 …
///    1 b:8000   1.030             0   0.160 …
///    2 c:8000   does not fit
///
/// fit chose worker 0 (a:8000): it holds 96 % of the prompt and should answer within 0.02 s
/// ```
impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = match self.read {
            "text" => "by its length, without a tokenizer",
            other => other,
        };
        write!(
            f,
            "prompt of {} tokens ({counted}); KV usage {:.0} %; ",
            self.prompt_tokens,
            self.pressure.usage * 100.0
        )?;
        match &self.verdict {
            Verdict::Admit => writeln!(f, "would be admitted")?,
            Verdict::Wait { .. } => writeln!(f, "would have to wait for room")?,
            Verdict::Refuse(refusal) => writeln!(f, "would be refused: {:?}", refusal.cause)?,
        }
        let Some(decision) = &self.decision else {
            return write!(f, "\nno worker may be given anything now");
        };
        let width = self.workers.iter().map(|worker| worker.name.len()).max();
        let width = width.unwrap_or(0).max("worker".len());
        let terms: Vec<&str> = decision
            .candidates
            .iter()
            .find(|candidate| candidate.excluded.is_none())
            .map(|candidate| candidate.terms.iter().map(|(name, _)| name).collect())
            .unwrap_or_default();
        write!(f, "\n     # {:<width$} {:>10}", "worker", "score")?;
        for term in &terms {
            write!(f, " {term:>9}")?;
        }
        for candidate in &decision.candidates {
            let arrow = if candidate.worker == decision.chosen {
                "->"
            } else {
                "  "
            };
            let name = self.name(candidate.worker.0);
            write!(f, "\n{arrow} {:>3} {name:<width$} ", candidate.worker.0)?;
            row(f, candidate, &terms)?;
        }
        if decision.not_shown > 0 {
            write!(f, "\n       and {} more", decision.not_shown)?;
        }
        let chosen = decision.chosen;
        write!(
            f,
            "\n\n{} chose {chosen} ({}): {}",
            decision.policy,
            self.name(chosen.0),
            decision.reason
        )
    }
}

impl Explained {
    fn name(&self, number: u16) -> &str {
        let worker = self.workers.iter().find(|worker| worker.number == number);
        worker.map_or("?", |worker| worker.name.as_str())
    }
}

fn row(f: &mut fmt::Formatter<'_>, candidate: &Candidate, terms: &[&str]) -> fmt::Result {
    match candidate.excluded {
        Some(Exclusion::NoTraffic) => return write!(f, "{:>10}", "gets no traffic"),
        Some(Exclusion::DoesNotFit) => write!(f, "{:>10}", "no room")?,
        Some(Exclusion::Overloaded) => write!(f, "{:>10}", "overloaded")?,
        None => write!(f, "{:>10.4}", candidate.score)?,
    }
    for term in terms {
        let width = term.len().max(9);
        match candidate.terms.get(term) {
            Some(value) if value == value.trunc() => write!(f, " {value:>width$.0}")?,
            Some(value) => write!(f, " {value:>width$.4}")?,
            None => write!(f, " {:>width$}", "")?,
        }
    }
    Ok(())
}
