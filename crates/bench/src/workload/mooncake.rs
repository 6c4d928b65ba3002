//! Recorded traffic, replayed: equal block ids become equal texts.

use simulator::mooncake::{self, MOONCAKE_BLOCK_TOKENS, MooncakeLine};
use simulator::workload::Arrival;

use super::{Due, Item, Prompt};

/// Numbers of texts that are nobody else's begin here.
const OWN_TEXTS: u64 = 1 << 34;

/// How a trace is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// How much faster than it was recorded.
    pub speed: f64,
    /// Tokens that one token stands for.
    pub scale: u64,
    /// How many requests from its beginning.
    pub requests: Option<usize>,
}

/// The requests of a trace.
pub fn mooncake(lines: &[MooncakeLine], replay: Replay) -> Vec<Item> {
    let scale = replay.scale.max(1);
    let block = u64::from(MOONCAKE_BLOCK_TOKENS);
    let lines = &lines[..replay.requests.unwrap_or(usize::MAX).min(lines.len())];
    mooncake::workload("", lines)
        .faster(replay.speed)
        .items
        .into_iter()
        .zip(0..)
        .map(|(planned, index): (_, u64)| {
            let full = (planned.prompt_tokens / block) as usize;
            let mut parts: Vec<(u64, u64)> = planned
                .blocks
                .iter()
                .take(full)
                .map(|id| (u64::from(*id), block / scale))
                .collect();
            let rest = (planned.prompt_tokens % block / scale).max(1);
            parts.push((OWN_TEXTS + index, rest));
            Item {
                due: match planned.arrival {
                    Arrival::At(at) => Due::At(at),
                    Arrival::After { think, .. } => Due::AfterPrevious(think),
                },
                session: index,
                prompt: Prompt::Parts(parts),
                output_tokens: (planned.output_tokens / scale).max(1),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_trace_can_be_replayed_smaller_and_faster() {
        let trace = r#"{"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 2500, "input_length": 1024, "output_length": 3, "hash_ids": [0, 7]}"#;
        let replay = Replay {
            speed: 2.0,
            scale: 8,
            requests: None,
        };
        let items = mooncake(&mooncake::parse(trace).unwrap(), replay);
        let Prompt::Parts(first) = &items[0].prompt else {
            panic!("{items:?}");
        };
        assert_eq!(first[..2], [(0, 64), (1, 64)]);
        assert_eq!(first[2].1, 9);
        assert_eq!(items[0].output_tokens, 62);
        assert_eq!(items[1].due, Due::At(Duration::from_millis(1_250)));
        assert_eq!(items[1].output_tokens, 1);
    }
}
