//! One binary: gateway and engine.

fn main() {}
