//! A newcomer's share of work.
//!
//! `weight = from + (1 − from)·min(1, up_for/slow_start)`: a cold worker has compiled nothing and cached
//! nothing, and being empty it would otherwise look best to every policy and get the whole of a burst.

use std::time::Duration;

use super::HealthConfig;

/// The least share: a weight of zero would keep a newcomer from ever warming up.
const LEAST: f64 = 0.01;

pub(super) fn slow_start(up_for: Duration, config: &HealthConfig) -> f64 {
    let from = config.slow_start_from.clamp(LEAST, 1.0);
    if up_for >= config.slow_start {
        return 1.0;
    }
    let done = up_for.as_secs_f64() / config.slow_start.as_secs_f64();
    from + (1.0 - from) * done
}
