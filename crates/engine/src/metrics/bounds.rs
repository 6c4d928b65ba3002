//! The bounds of the histograms.

/// vLLM's bounds for the time to the first token. Used for all times of a request: vLLM's own bounds
/// for the others begin at 0.3 s, too coarse for a queue that is usually empty.
pub(super) const DURATIONS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];

/// vLLM's bounds for the time of a token, and three below: a small model is faster than 10 ms.
pub(super) const TOKEN_DURATIONS: [f64; 22] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];

pub(super) const STEP_TOKENS: [f64; 13] = [
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];

pub(super) const PREEMPTION_COUNTS: [f64; 7] = [0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 50.0];

/// 1, 2, 5, 10, 20, 50, … up to `highest`, as vLLM counts tokens.
pub(super) fn one_two_five(highest: usize) -> Vec<f64> {
    let highest = highest as f64;
    (0..)
        .flat_map(|exponent| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(exponent)))
        .take_while(|&bound| bound <= highest)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_bounds_reach_to_the_models_length() {
        assert_eq!(one_two_five(60), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
    }
}
