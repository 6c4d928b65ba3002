//! What can be said on the command line: one file for each command's flags, and one for what several take. Every flag of
//! `serve` and `engine` also has a variable, `FORESPEAK_` and its name.

mod check;
mod engine;
mod examples;
mod explain;
mod render;
mod serve;
mod values;
mod workers;

use clap::{Parser, Subcommand};

pub(crate) use check::CheckOptions;
pub(crate) use engine::{CpuTier, KvDtype, ModelOptions, QuantizeTo};
pub(crate) use explain::ExplainOptions;
pub(crate) use render::{RenderTarget, RenderVllmOptions};
pub(crate) use serve::{
    CacheOptions, HttpOptions, KvEventOptions, LogFormat, ServeOptions, SharedOptions,
};
pub(crate) use workers::FleetOptions;

/// Serves language models, as OpenAI's clients expect it: on this machine, or from a fleet of workers.
#[derive(Debug, Parser)]
#[command(name = "forespeak", version, arg_required_else_help = true)]
#[command(
    after_help = "Start with `forespeak serve`, then ask it something:\n\n  \
    curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\\n    \
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is a Kubernetes Pod?\"}]}'"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer requests: with a model on this machine, or from workers elsewhere
    #[command(after_help = examples::SERVE)]
    Serve(Box<ServeOptions>),
    /// Say whether a configuration and its workers are in order, and what to do if not
    #[command(after_help = examples::CHECK)]
    Check(Box<CheckOptions>),
    /// Say where a request would go, and why there; nothing is sent
    #[command(after_help = examples::EXPLAIN)]
    Explain(Box<ExplainOptions>),
    /// The same engine alone, as a worker for a gateway elsewhere
    #[command(after_help = examples::ENGINE)]
    Engine(Box<ServeOptions>),
    /// Load for a server, and what came of it
    #[command(after_help = examples::BENCH)]
    Bench(Box<bench::Options>),
    /// Print how to start other servers, so that a gateway can make the most of them
    Render {
        #[command(subcommand)]
        target: RenderTarget,
    },
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;
    use fleet::WorkerUrl;
    use routing::Policy;
    use speculation::{Drafters, LawSpec};

    use super::*;
    use crate::size::ByteSize;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_people_know_are_understood() {
        let cli = Cli::try_parse_from([
            "forespeak",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--model",
            "m.gguf",
            "--served-model-name",
            "a,b",
            "--kv-cache-memory",
            "2GiB",
            "--kv-dtype",
            "int8",
            "--quantize",
            "q4_k",
            "--drain-timeout",
            "2.5",
            "--tier",
            "avx2",
            "--draft",
            "d.gguf",
            "--draft-quantize",
            "q8_0",
            "--drafter",
            "model",
            "--speculation",
            "fixed:3",
        ])
        .unwrap();
        let Command::Serve(options) = cli.command else {
            panic!("not serve");
        };
        assert_eq!(options.model.served_model_name, ["a", "b"]);
        assert_eq!(options.engine.kv_cache_memory, Some(ByteSize(2 << 30)));
        assert_eq!(options.engine.kv_dtype, KvDtype::Int8);
        assert_eq!(options.model.quantize, Some(QuantizeTo::Q4K));
        assert_eq!(
            options.http.drain_timeout,
            Some(Duration::from_millis(2500))
        );
        assert_eq!(options.engine.tier, Some(CpuTier::Avx2));
        assert_eq!(options.speculation.draft_quantize, Some(QuantizeTo::Q8_0));
        assert_eq!(options.speculation.drafter, Drafters::Model);
        assert_eq!(options.speculation.speculation, LawSpec::Fixed(3));
    }

    #[test]
    fn workers_are_named_one_by_one() {
        let arguments = "forespeak serve --worker http://a:1 --worker http://b:2 --policy lmetric";
        let cli = Cli::try_parse_from(arguments.split(' ')).unwrap();
        let Command::Serve(options) = cli.command else {
            panic!("not serve");
        };
        let urls: Vec<_> = options
            .fleet
            .worker
            .iter()
            .map(WorkerUrl::to_string)
            .collect();
        assert_eq!(urls, ["http://a:1", "http://b:2"]);
        assert_eq!(options.fleet.policy, Some(Policy::Lmetric));
    }

    #[test]
    fn a_cache_may_be_told_to_keep_nothing_in_memory() {
        let arguments = "forespeak serve --cache redis://h --cache-memory 0 --shared redis://h";
        let cli = Cli::try_parse_from(arguments.split(' ')).unwrap();
        let Command::Serve(options) = cli.command else {
            panic!("not serve");
        };
        assert_eq!(options.cache.cache_memory, Some(ByteSize(0)));
        assert_eq!(options.shared.shared.as_deref(), Some("redis://h"));
        let lots = "forespeak serve --cache-memory lots";
        assert!(Cli::try_parse_from(lots.split(' ')).is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for arguments in [
            ["serve", "--worker", "https://a"],
            ["serve", "--policy", "fit"],
            ["check", "--worker", "a:8000"],
            ["serve", "--threads", "0"],
            ["serve", "--listen", "here"],
            ["serve", "--kv-cache-memory", "lots"],
            ["serve", "--drain-timeout", "-1"],
            ["serve", "--drafter", "crystal-ball"],
            ["serve", "--speculation", "fixed:99"],
        ] {
            let arguments = std::iter::once("forespeak").chain(arguments);
            assert!(Cli::try_parse_from(arguments).is_err());
        }
    }
}
