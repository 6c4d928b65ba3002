//! Shows what the fleet knows of one worker, as it learns it.
//!
//! ```text
//! cargo run -p forespeak-fleet --example watch -- http://127.0.0.1:8000 tcp://127.0.0.1:5557 tcp://127.0.0.1:5558
//! ```
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::{Duration, Instant};

use forespeak_fleet::{EventsSpec, Fleet, FleetConfig, KvChange, WorkerSpec, WorkerUrl};

/// How often the worker's condition is printed.
const PRINT_EVERY: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or(
        "give the worker's address, and that of its kv events and their replay if it has them",
    )?;
    let mut worker = WorkerSpec::new(WorkerUrl::parse(&url)?);
    worker.events = arguments.next().map(|endpoint| EventsSpec {
        endpoint,
        replay: arguments.next(),
        topic: String::new(),
        ranks: 1,
    });
    let config = FleetConfig {
        workers: vec![worker],
        ..FleetConfig::default()
    };
    let (fleet, mut updates) = Fleet::start(config)?;
    let mut tick = tokio::time::interval(PRINT_EVERY);
    loop {
        tokio::select! {
            _ = tick.tick() => show(&fleet),
            update = updates.recv() => match update.map(|update| update.change) {
                Some(KvChange::Batch(batch)) => println!("events: {:?}", batch.events),
                Some(other) => println!("events: {other:?}"),
                None => return Ok(()),
            },
        }
    }
}

fn show(fleet: &Fleet) {
    for worker in fleet.snapshot().workers() {
        let condition = worker.condition(Instant::now());
        println!(
            "{}: {condition:?}, {:?}",
            worker.name(),
            worker.events.read()
        );
        if let Some(seen) = worker.sighting() {
            println!("  {:?}\n  {:?}", seen.observation, seen.rates);
        }
    }
}
