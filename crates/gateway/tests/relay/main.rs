//! The gateway in front of workers elsewhere: over real sockets, in front of workers that do what each test
//! tells them to.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking, and clippy does not take helpers for tests"
)]

mod bodies;
mod caching;
mod caching_in_redis;
mod continuing;
mod failing;
mod leaving;
mod passing;
mod sharing;
mod support;
