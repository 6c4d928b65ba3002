//! One binary: gateway and engine. One module per command.

#[cfg(feature = "engine")]
mod banner;
#[cfg(feature = "engine")]
mod bundled;
mod cli;
#[cfg(feature = "engine")]
mod commands;
#[cfg(feature = "engine")]
mod load;
mod logging;
#[cfg(feature = "engine")]
mod machine;
#[cfg(feature = "engine")]
mod signals;
mod size;
#[cfg(feature = "engine")]
mod sizing;
#[cfg(feature = "engine")]
mod status_line;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (Command::Serve(options) | Command::Engine(options)) = &cli.command;
    logging::start(options.log_format);
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            tracing::error!("{reason}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(feature = "engine")]
fn run(command: Command) -> Result<(), String> {
    let outcome = match command {
        Command::Serve(options) => commands::serve(&options),
        Command::Engine(options) => commands::engine(&options),
    };
    outcome.map_err(|error| error.to_string())
}

#[cfg(not(feature = "engine"))]
fn run(_command: Command) -> Result<(), String> {
    Err("this binary was built without the engine; build it with `--features engine`".to_owned())
}
