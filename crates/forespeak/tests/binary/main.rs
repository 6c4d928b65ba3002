//! The binary as people start it: what it says, what it answers, how it ends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking, and clippy does not take helpers for tests"
)]

mod blocks;
mod check;
mod engine;
mod gateway;
mod support;
