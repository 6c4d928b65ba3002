//! One request over HTTP/1.1: connections that are kept, and clocks that are read when bytes arrive.

mod answer;
mod events;
mod pool;

pub use answer::{Answered, Limits, send};
pub use pool::{Address, Pool};
