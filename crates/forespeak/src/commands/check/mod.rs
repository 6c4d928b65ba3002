//! `forespeak check`: whether a configuration and its workers are in order, and what to do if not.
//!
//! ```text
//! report    the lines: ok, warning or failure, each with what to do
//! ask       what a worker says of itself
//! worker    what is wrong with one worker
//! pool      what is wrong between those of one pool: models, tokenizers, time-outs
//! ```

mod ask;
mod pool;
mod report;
mod worker;

use std::io::Write;
use std::path::Path;

use config::{Config, EXAMPLE};
use model::Language;

use super::error::CommandError;
use crate::cli::CheckOptions;
use crate::settings::fleet_settings;
use report::Report;

pub(crate) fn check(options: &CheckOptions) -> Result<(), CommandError> {
    let mut out = std::io::stdout();
    if options.schema {
        // Without anyone to read it there is nobody to tell, here and below.
        let _ = writeln!(out, "{:#}", config::schema());
        return Ok(());
    }
    if options.example {
        let _ = write!(out, "{EXAMPLE}");
        return Ok(());
    }
    let mut report = Report::default();
    let config = match fleet_settings(&options.fleet) {
        Ok(config) => config,
        Err(error) => {
            report.failure("configuration", error.to_string(), "correct the file");
            return conclude(&report);
        }
    };
    if let Some(path) = &options.fleet.config {
        report.ok("configuration", format!("{} is in order", path.display()));
    }
    look_at_config(&config, &mut report);
    if let (Some(target), Some(draft)) = (&options.model, &options.draft) {
        look_at_draft(target, draft, &mut report);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        for section in &config.pools {
            pool::look_at(&config, section, &mut report).await;
        }
    });
    if config.pools.is_empty() && options.draft.is_none() {
        report.warning(
            "pools",
            "there are none; a model in this process will answer".to_owned(),
            "name workers with --worker, or a file with --config",
        );
    }
    conclude(&report)
}

fn conclude(report: &Report) -> Result<(), CommandError> {
    let _ = write!(std::io::stdout(), "{report}");
    match report.failures() {
        0 => Ok(()),
        failures => Err(CommandError::Failed { failures }),
    }
}

/// Whether one model can draft for another: a draft is verified token by token, so both must mean the same by each.
fn look_at_draft(target: &Path, draft: &Path, report: &mut Report) {
    let about = "draft";
    let load = |path: &Path| Language::load(path, None).map(|language| language.tokenizer);
    match (load(target), load(draft)) {
        (Ok(target), Ok(draft)) => match target.first_difference(&draft) {
            None => report.ok(about, "draft and target have the same tokenizer".to_owned()),
            Some(difference) => report.failure(
                about,
                format!("draft and target have different tokenizers: {difference}"),
                "take a draft of the same family",
            ),
        },
        (Err(error), _) | (_, Err(error)) => {
            report.failure(about, error.to_string(), "correct the path");
        }
    }
}

/// What can be wrong without being an error.
fn look_at_config(config: &Config, report: &mut Report) {
    let open = config.tenants.is_empty() && config.server.api_key_file.is_none();
    if open && !config.server.listen.ip().is_loopback() {
        report.warning(
            "tenants",
            format!("everyone who reaches {} may ask", config.server.listen),
            "add [[tenants]] or server.api_key_file, or listen on 127.0.0.1",
        );
    }
    if config.salt_secret.is_none() && !config.pools.is_empty() {
        report.warning(
            "salt_secret",
            "it is made up at every start: restarts and other gateways do not share the workers' caches".to_owned(),
            "set salt_secret = { env = \"…\" } or { file = \"…\" }",
        );
    }
}
