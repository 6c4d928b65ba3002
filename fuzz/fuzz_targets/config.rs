//! Whatever somebody writes into a configuration, reading it ends in a configuration or in problems with lines of the
//! file, and what was read can be written and shows no secret.
#![no_main]

use config::{Config, Context};
use libfuzzer_sys::fuzz_target;

const SECRET: &str = "the-secret-itself";

fuzz_target!(|text: &str| {
    if text.contains(SECRET) {
        return;
    }
    let env = |_: &str| Some(SECRET.to_owned());
    match Config::parse_in(text, &Context::with_env(&env)) {
        Ok(config) => {
            let shown = format!("{config:?}{}", serde_json::to_string(&config).expect("plain data"));
            assert!(!shown.contains(SECRET));
        }
        Err(problems) => {
            assert!(!problems.list.is_empty());
            let lines = text.split('\n').count();
            assert!(problems.list.iter().all(|problem| problem.line.is_none_or(|line| (1..=lines).contains(&line))));
            assert!(!problems.to_string().contains(SECRET));
        }
    }
});
