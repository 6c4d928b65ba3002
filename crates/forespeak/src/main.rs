//! One binary: gateway and engine. One module per command.

#[cfg(feature = "engine")]
mod banner;
#[cfg(feature = "engine")]
mod bundled;
mod cli;
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

use cli::{Cli, Command, LogFormat};

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::start(match &cli.command {
        Command::Serve(options) | Command::Engine(options) => options.log_format,
        Command::Bench(_) => LogFormat::default(),
    });
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
        #[cfg(feature = "engine")]
        Command::Serve(options) => commands::serve(&options).map_err(|error| error.to_string()),
        #[cfg(feature = "engine")]
        Command::Engine(options) => commands::engine(&options).map_err(|error| error.to_string()),
        #[cfg(not(feature = "engine"))]
        Command::Serve(_) | Command::Engine(_) => Err(
            "this binary was built without the engine; build it with `--features engine`"
                .to_owned(),
        ),
        Command::Bench(options) => commands::bench(&options).map_err(|error| error.to_string()),
    }
}
