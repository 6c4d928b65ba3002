//! What is wrong between the workers of a pool: models, tokenizers, time-outs.

use std::collections::BTreeMap;
use std::time::Duration;

use config::{Config, Model};
use fleet::WorkerSpec;
use routing::{ASSUMED_INTER_TOKEN, ASSUMED_PREFILL_TOKENS_PER_SECOND};

use super::ask::{SAMPLE, Said, ask};
use super::report::Report;
use super::worker;
use crate::wiring::{codec_of, model_of, workers_now};

pub(super) async fn look_at(config: &Config, pool: &config::Pool, report: &mut Report) {
    let model = model_of(config, pool);
    let mut heard: Vec<(WorkerSpec, Said)> = Vec::new();
    for found in workers_now(pool).await {
        let spec = match found {
            Ok(spec) => spec,
            Err((whence, error)) => {
                report.failure(&whence, error.to_string(), "correct it");
                continue;
            }
        };
        let said = ask(&spec).await;
        let mut found = Report::default();
        if worker::look_at(&spec, pool, &said, &mut found).await {
            heard.push((spec, said));
        }
        report.append(found);
    }
    let about = format!("pool {}", pool.name);
    if heard.is_empty() {
        report.failure(
            &about,
            "none of its workers answers".to_owned(),
            "start some; until then its requests are refused",
        );
        return;
    }
    look_at_models(&about, &model, &heard, report);
    look_at_tokenizers(&about, &model, &heard, report);
    look_at_timeouts(&about, pool, &model, &heard, report);
}

fn look_at_models(about: &str, model: &Model, heard: &[(WorkerSpec, Said)], report: &mut Report) {
    let mut offers: BTreeMap<Vec<String>, Vec<&str>> = BTreeMap::new();
    for (spec, said) in heard {
        match &said.models {
            Ok(models) => {
                let lacks = |wanted: &str| {
                    !models
                        .names
                        .iter()
                        .chain(&models.adapters)
                        .any(|name| name == wanted)
                };
                let wanted = (!model.name.is_empty()).then(|| model.served_as());
                for missing in wanted
                    .into_iter()
                    .chain(model.loras.iter().map(String::as_str))
                    .filter(|name| lacks(name))
                {
                    report.failure(
                        spec.name(),
                        format!("it does not serve {missing:?} but {}", models.names.join(", ")),
                        "set served_as of the model to its name there, or start it with --served-model-name",
                    );
                }
                offers
                    .entry(models.names.clone())
                    .or_default()
                    .push(spec.name());
            }
            Err(error) => report.failure(
                spec.name(),
                error.clone(),
                "it must list its models at /v1/models",
            ),
        }
    }
    match offers.len() {
        0 => {}
        1 => {
            let names = offers.keys().flatten().cloned().collect::<Vec<_>>();
            report.ok(about, format!("all workers serve {}", names.join(", ")));
        }
        _ => {
            let lines = offers
                .iter()
                .map(|(names, workers)| format!("{} on {}", names.join(", "), workers.join(", ")));
            report.failure(
                about,
                format!(
                    "its workers serve different models:\n{}",
                    lines.collect::<Vec<_>>().join("\n")
                ),
                "put each model's workers into a pool of their own",
            );
        }
    }
}

fn look_at_tokenizers(
    about: &str,
    model: &Model,
    heard: &[(WorkerSpec, Said)],
    report: &mut Report,
) {
    let mut cuts: BTreeMap<&[u32], Vec<&str>> = BTreeMap::new();
    for (spec, said) in heard {
        match &said.tokens {
            Ok(tokens) => cuts.entry(tokens).or_default().push(spec.name()),
            Err(error) => report.warning(
                spec.name(),
                format!("its tokenizer cannot be compared: {error}"),
                "nothing, if it offers no /tokenize",
            ),
        }
    }
    match cuts.len() {
        0 => {}
        1 => report.ok(
            about,
            "all workers cut a sample text into the same tokens".to_owned(),
        ),
        _ => {
            let lines = cuts.iter().map(|(tokens, workers)| {
                format!("{} tokens on {}", tokens.len(), workers.join(", "))
            });
            report.failure(
                about,
                format!(
                    "its workers have different tokenizers:\n{}",
                    lines.collect::<Vec<_>>().join("\n")
                ),
                "start all of them with the same model and --tokenizer",
            );
        }
    }
    match codec_of(model) {
        Ok(None) => report.warning(
            about,
            "it has no tokenizer here: prompts are compared as text, and KV events are of no use"
                .to_owned(),
            "set tokenizer of the model (--tokenizer) to a folder with its tokenizer.json",
        ),
        Err(error) => report.failure(about, error.to_string(), "correct tokenizer of the model"),
        Ok(Some(codec)) => match codec.encode(SAMPLE, false) {
            Ok(ours) if cuts.is_empty() || cuts.keys().all(|theirs| *theirs == ours) => {
                report.ok(
                    about,
                    format!(
                        "the tokenizer here cuts the sample text into the same {} tokens",
                        ours.len()
                    ),
                );
            }
            Ok(ours) => report.failure(
                about,
                format!(
                    "the tokenizer here is not the workers': it makes {} tokens of the sample text",
                    ours.len()
                ),
                "take the tokenizer of the very model that the workers serve",
            ),
            Err(error) => report.failure(about, error, "take another tokenizer"),
        },
    }
}

fn look_at_timeouts(
    about: &str,
    pool: &config::Pool,
    model: &Model,
    heard: &[(WorkerSpec, Said)],
    report: &mut Report,
) {
    let longest = model.max_model_len.or_else(|| {
        let told = heard
            .iter()
            .filter_map(|(_, said)| said.models.as_ref().ok()?.max_model_len);
        told.max()
    });
    let Some(longest) = longest else {
        report.warning(
            about,
            "nobody says how many tokens a request may have".to_owned(),
            "set max_model_len of the model",
        );
        return;
    };
    let inter_token = heard
        .iter()
        .filter_map(|(_, said)| {
            let itl = said.metrics.as_ref().ok()?.counters.itl?;
            (itl.count > 0.0).then(|| itl.sum / itl.count)
        })
        .fold(ASSUMED_INTER_TOKEN.as_secs_f64(), f64::max);
    let speaking = Duration::from_secs_f64(inter_token * longest as f64);
    let reading = Duration::from_secs_f64(longest as f64 / ASSUMED_PREFILL_TOKENS_PER_SECOND);
    let (total, first): (Duration, Duration) = (
        pool.timeouts.total_at_most.into(),
        pool.timeouts.first_token.into(),
    );
    if speaking > total {
        report.warning(
            about,
            format!(
                "an answer of {longest} tokens takes about {} s, more than timeouts.total_at_most ({})",
                speaking.as_secs(),
                pool.timeouts.total_at_most
            ),
            "raise total_at_most, or ask for fewer max_tokens",
        );
    } else if reading > first {
        report.warning(
            about,
            format!(
                "a prompt of {longest} tokens takes about {} s to read, more than timeouts.first_token ({})",
                reading.as_secs(),
                pool.timeouts.first_token
            ),
            "raise first_token",
        );
    } else {
        report.ok(
            about,
            format!(
                "the time-outs leave room for {longest} tokens at {:.0} ms each",
                inter_token * 1e3
            ),
        );
    }
}
