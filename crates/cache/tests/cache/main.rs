//! The cache from outside: questions, scripted sources, and a real `redis-server`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking, and clippy does not take helpers for tests"
)]

mod isolation;
mod memory;
mod redis;
mod redis_kinds;
mod sharing;
mod support;
