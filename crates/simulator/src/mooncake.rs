//! Reader for Mooncake's traces: one JSON object per line.
//!
//! `hash_ids` names 512-token blocks; an equal id means an equal prefix up to there. The last id of a request may
//! stand for a block that is not full, which engines do not cache.

use std::time::Duration;

use serde::Deserialize;

use crate::error::SimulatorError;
use crate::workload::{Arrival, WorkItem, Workload};

/// Tokens per id in these traces.
pub const MOONCAKE_BLOCK_TOKENS: u32 = 512;

/// No model reads or writes more in one request; a trace that says so is not a trace.
const MAX_TOKENS: u64 = 16 << 20;

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MooncakeLine {
    /// Milliseconds from the start.
    pub timestamp: u64,
    /// Tokens of the prompt.
    pub input_length: u64,
    /// Tokens of the answer.
    pub output_length: u64,
    /// Its blocks.
    pub hash_ids: Vec<u32>,
}

/// Parses a whole trace.
///
/// # Errors
/// With the number of the first line that is not a request.
pub fn parse(text: &str) -> Result<Vec<MooncakeLine>, SimulatorError> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(at, line)| {
            parse_line(line).map_err(|reason| SimulatorError::TraceLine {
                line: at + 1,
                reason,
            })
        })
        .collect()
}

fn parse_line(text: &str) -> Result<MooncakeLine, String> {
    let line: MooncakeLine = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if line.input_length.max(line.output_length) > MAX_TOKENS {
        return Err(format!("lengths beyond {MAX_TOKENS} tokens"));
    }
    Ok(line)
}

/// Makes a workload of a trace. Answers get blocks of their own: the trace does not say what they become.
pub fn workload(name: &str, lines: &[MooncakeLine]) -> Workload {
    let mut unused = lines
        .iter()
        .flat_map(|line| &line.hash_ids)
        .max()
        .map_or(0, |id| id.wrapping_add(1));
    let block = u64::from(MOONCAKE_BLOCK_TOKENS);
    let items = lines
        .iter()
        .map(|line| {
            let output_tokens = line.output_length.max(1);
            let prompt_tokens = line.input_length.max(1);
            let full = (prompt_tokens / block) as usize;
            let mut blocks: Vec<u32> = line.hash_ids.iter().copied().take(full).collect();
            let session = blocks.get(1).or(blocks.first()).copied().unwrap_or(unused);
            let all = ((prompt_tokens + output_tokens) / block) as usize;
            while blocks.len() < all {
                blocks.push(unused);
                unused = unused.wrapping_add(1);
            }
            WorkItem {
                arrival: Arrival::At(Duration::from_millis(line.timestamp)),
                session: u64::from(session),
                prompt_tokens,
                output_tokens,
                blocks,
            }
        })
        .collect();
    Workload {
        name: name.to_owned(),
        block_tokens: MOONCAKE_BLOCK_TOKENS,
        items,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"{"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]}

{"timestamp": 2500, "input_length": 1024, "output_length": 0, "hash_ids": [0, 7]}"#;

    #[test]
    fn only_full_blocks_of_the_prompt_can_be_shared() {
        let items = workload("t", &parse(TRACE).unwrap()).items;
        // 1,100 tokens fill two blocks; the answer completes a third that is nobody else's.
        assert_eq!(items[0].blocks, [0, 1, 8]);
        assert_eq!(items[1].blocks, [0, 7]);
        assert_eq!(items[1].arrival, Arrival::At(Duration::from_millis(2_500)));
        assert_eq!(items[1].output_tokens, 1);
    }

    #[test]
    fn a_line_that_is_no_request_is_named() {
        let error = parse("{\"timestamp\": 0}").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("line 1 of the trace is not a request"),
            "{error}"
        );
    }

    #[test]
    fn a_trace_with_impossible_numbers_is_refused_or_survived() {
        let line = |tokens: u64, id: u32| {
            format!(
                r#"{{"timestamp": 0, "input_length": {tokens}, "output_length": 600, "hash_ids": [{id}]}}"#
            )
        };
        assert!(parse(&line(u64::MAX, 0)).is_err());
        assert_eq!(
            workload("t", &parse(&line(10, u32::MAX)).unwrap()).items[0]
                .blocks
                .len(),
            1
        );
    }

    #[test]
    fn a_trace_can_be_replayed_faster() {
        let twice = workload("t", &parse(TRACE).unwrap()).faster(2.0);
        assert_eq!(
            twice.items[1].arrival,
            Arrival::At(Duration::from_millis(1_250))
        );
    }
}
