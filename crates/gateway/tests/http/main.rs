//! The gateway as its clients see it: over real sockets, in front of a real engine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking, and clippy does not take helpers for tests"
)]

mod caching;
mod chat;
mod completions;
mod connections;
mod errors;
mod isolation;
mod kv_events;
mod leaving;
mod limits;
mod speculation;
mod streaming;
mod support;
