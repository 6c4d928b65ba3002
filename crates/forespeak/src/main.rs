//! One binary: gateway and engine. One module per command.

mod banner;
mod bundled;
mod cli;
mod commands;
mod kv_store;
mod load;
mod logging;
mod machine;
mod revision;
mod settings;
mod signals;
mod size;
mod sizing;
mod status_line;
mod wiring;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, LogFormat};

/// Requests are many small allocations of all sizes on several threads: half the time of the system's allocator, and memory that
/// a burst took is given back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let _log = logging::start(match &cli.command {
        Command::Serve(options) | Command::Engine(options) => options.log_format,
        Command::Bench(_) | Command::Check(_) | Command::Explain(_) | Command::Render { .. } => {
            LogFormat::default()
        }
    });
    machine::allow_many_files();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            tracing::error!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), String> {
    match command {
        Command::Serve(options) => commands::serve(options).map_err(|error| error.to_string()),
        Command::Engine(options) => commands::engine(options).map_err(|error| error.to_string()),
        Command::Check(options) => commands::check(&options).map_err(|error| error.to_string()),
        Command::Explain(options) => commands::explain(&options).map_err(|error| error.to_string()),
        Command::Render { target } => commands::render(&target).map_err(|error| error.to_string()),
        Command::Bench(options) => commands::bench(&options).map_err(|error| error.to_string()),
    }
}
