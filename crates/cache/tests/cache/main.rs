//! The cache from outside: questions, scripted sources, and a real `redis-server`.

mod isolation;
mod memory;
mod redis;
mod sharing;
mod support;
