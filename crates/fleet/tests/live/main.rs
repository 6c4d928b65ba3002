//! The fleet on real sockets.

mod kv_events;
mod support;
mod workers;
