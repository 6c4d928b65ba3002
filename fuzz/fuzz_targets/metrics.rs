//! Whatever a worker prints at `/metrics`, reading it ends in an observation, nothing or an error, and what
//! is observed can be reckoned with.
#![no_main]

use fleet::exposition::Samples;
use fleet::observe::{Observation, Rates};
use libfuzzer_sys::fuzz_target;
use std::time::Duration;

fuzz_target!(|page: &str| {
    for sample in Samples::new(page).flatten() {
        let _ = sample.labels.iter().map(|label| label.value().len()).sum::<usize>();
    }
    if let Ok(Some(seen)) = Observation::try_from_page(page) {
        assert!(seen.kv_usage.is_none_or(|usage| (0.0..=1.0).contains(&usage)));
        let _ = Rates::between(&seen, &seen, Duration::from_secs(1));
    }
});
