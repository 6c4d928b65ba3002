//! From a metrics page to one [`Observation`], whatever the engine and its age.
//!
//! ```text
//! page -> samples -> names (which quantity is this?) -> tally (ranks together, best name wins)
//!      -> Observation -> Rates (against the one before)
//! ```
//!
//! Every name that is read stands in [`names`], with the order in which old and new ones are looked up.
//! Ranks of a data-parallel worker print the same names with different labels: counts, counters and
//! capacities are added up, the usage is the mean (so that usage times capacity is what is in use) and
//! the fullest rank is told beside it.
//!
//! ```
//! # use forespeak_fleet as fleet;
//! use fleet::observe::{Dialect, Observation};
//!
//! let page = "vllm:num_requests_running{engine=\"0\"} 3\n\
//!             vllm:num_requests_running{engine=\"1\"} 5\n\
//!             vllm:gpu_cache_usage_perc{engine=\"0\"} 0.2\n\
//!             vllm:gpu_cache_usage_perc{engine=\"1\"} 0.6\n";
//! let seen = Observation::from_page(page).unwrap();
//! assert_eq!(seen.dialect, Dialect::Vllm);
//! assert_eq!(seen.running, Some(8));
//! assert_eq!(seen.kv_usage, Some(0.4));
//! assert_eq!(seen.kv_usage_fullest, Some(0.6));
//! ```

pub mod names;
mod observation;
pub mod orca;
mod rates;
mod tally;

pub use names::Dialect;
pub use observation::{
    CacheFacts, Counters, MAX_DRAFT_POSITIONS, Observation, SleepState, SpecCounters, SumCount,
};
pub use rates::{Rates, Smoothed};
