//! `forespeak bench`: load for a server, and what came of it.

use std::io::Write;

use bench::{BenchError, Options, Summary, report};

use crate::machine::prefer_small_pages;

pub(crate) fn bench(options: &Options) -> Result<(), BenchError> {
    // What waits for memory to be cleared reads a clock too late.
    prefer_small_pages();
    let outcomes = bench::run(options)?;
    let summary = Summary::of(&outcomes.records, outcomes.lasted);
    if let Some(path) = &options.json {
        report::write_json(path, &summary)?;
    }
    if let Some(path) = &options.jsonl {
        report::write_jsonl(path, &outcomes.records)?;
    }
    // Without anyone to read it there is nobody to tell.
    let _ = write!(std::io::stdout(), "{}", report::table(&summary));
    Ok(())
}
