//! What a model in this process can be told: which it is, how it computes, how it guesses ahead.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use speculation::{Drafters, LawSpec};

use super::values::at_least_one;
use crate::size::ByteSize;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelOptions {
    /// A GGUF file or a Hugging Face folder [default: the bundled model]
    #[arg(long, value_name = "PATH", env = "FORESPEAK_MODEL")]
    pub(crate) model: Option<PathBuf>,
    /// The name clients ask for; may be repeated [default: the name of the file or folder]
    #[arg(
        long,
        value_name = "NAME",
        env = "FORESPEAK_SERVED_MODEL_NAME",
        value_delimiter = ','
    )]
    pub(crate) served_model_name: Vec<String>,
    /// Shrink float weights while loading
    #[arg(long, value_enum, value_name = "FORMAT", env = "FORESPEAK_QUANTIZE")]
    pub(crate) quantize: Option<QuantizeTo>,
    /// A Jinja chat template instead of the model's own
    #[arg(long, value_name = "FILE", env = "FORESPEAK_CHAT_TEMPLATE")]
    pub(crate) chat_template: Option<PathBuf>,
    /// Most tokens of prompt and answer together [default: the model's length]
    #[arg(long, value_name = "TOKENS", value_parser = at_least_one, env = "FORESPEAK_MAX_MODEL_LEN")]
    pub(crate) max_model_len: Option<usize>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineOptions {
    /// Threads that compute [default: physical cores]
    #[arg(long, value_name = "N", value_parser = at_least_one, env = "FORESPEAK_THREADS")]
    pub(crate) threads: Option<usize>,
    /// Instructions to compute with [default: the best this CPU has]
    #[arg(long, value_enum, value_name = "TIER", env = "FORESPEAK_TIER")]
    pub(crate) tier: Option<CpuTier>,
    /// Most sequences in one step
    #[arg(long, value_name = "N", default_value = "64", value_parser = at_least_one, env = "FORESPEAK_MAX_NUM_SEQS")]
    pub(crate) max_num_seqs: usize,
    /// Most tokens in one step: smaller keeps streams smooth beside long prompts, larger reads prompts
    /// faster [default: 64 to 512, fewer for larger models]
    #[arg(long, value_name = "TOKENS", value_parser = at_least_one, env = "FORESPEAK_MAX_NUM_BATCHED_TOKENS")]
    pub(crate) max_num_batched_tokens: Option<usize>,
    /// Most requests that wait; one more is answered with 429
    #[arg(long, value_name = "N", default_value = "1024", value_parser = at_least_one, env = "FORESPEAK_MAX_QUEUED")]
    pub(crate) max_queued: usize,
    /// Memory for keys and values, such as 2GiB [default: half of what is free, or what can be used]
    #[arg(long, value_name = "SIZE", env = "FORESPEAK_KV_CACHE_MEMORY")]
    pub(crate) kv_cache_memory: Option<ByteSize>,
    /// How keys and values are stored; int8 takes half the memory and changes answers a little
    #[arg(long, value_enum, default_value_t, env = "FORESPEAK_KV_DTYPE")]
    pub(crate) kv_dtype: KvDtype,
    /// Forget prefixes instead of sharing them between requests
    #[arg(long, env = "FORESPEAK_NO_PREFIX_CACHING")]
    pub(crate) no_prefix_caching: bool,
    /// Where KV blocks go that do not fit into that memory, or that other instances may want; may be repeated, or
    /// separated by semicolons.
    ///
    /// memory:4GiB keeps evicted blocks in this process, disk:PATH on this machine, for a restart too. dir:PATH (a
    /// folder that instances share) and redis://host:6379 get every block as soon as it is computed, so that an
    /// instance that never saw a prompt loads it instead of computing it. Each takes ?size=20GiB as its bound
    /// [10GiB for folders, 1GiB for Redis]. Loading is chosen where it measures faster than computing; a lost or
    /// damaged block costs time, never another text. Instances share blocks only with the same weights, quantisation,
    /// KV type and CPU instructions, and with the same FORESPEAK_KV_STORE_SECRET, if it is set
    #[arg(
        long,
        value_name = "WHERE",
        value_delimiter = ';',
        env = "FORESPEAK_KV_STORE",
        hide_env_values = true
    )]
    pub(crate) kv_store: Vec<String>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Speculation (faster, never another text)")]
pub(crate) struct SpeculationOptions {
    /// A small model that drafts for the other, with the same tokenizer; loaded whatever --drafter says, so that an
    /// operator can switch it on later [default: the bundled one for the bundled model, none for others]
    #[arg(long, value_name = "PATH", env = "FORESPEAK_DRAFT")]
    pub(crate) draft: Option<PathBuf>,
    /// Shrink the draft model's float weights while loading [default: as --quantize does the other's]
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        env = "FORESPEAK_DRAFT_QUANTIZE"
    )]
    pub(crate) draft_quantize: Option<QuantizeTo>,
    /// Who drafts at first: auto (whoever is worth more at the moment), model, ngram (looks up what the text said before)
    /// or off
    #[arg(
        long,
        value_name = "WHO",
        default_value = "auto",
        env = "FORESPEAK_DRAFTER"
    )]
    pub(crate) drafter: Drafters,
    /// How deep: goodput follows what it measures, threshold or threshold:SECONDS follows acceptance alone, at
    /// intervals of 10 s or of SECONDS (0.1 to 3600), fixed:K stays at K (0 to 16)
    #[arg(
        long,
        value_name = "LAW",
        default_value = "goodput",
        env = "FORESPEAK_SPECULATION"
    )]
    pub(crate) speculation: LawSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QuantizeTo {
    /// 8 bits: hardly distinguishable
    #[value(name = "q8_0")]
    Q8_0,
    /// 4 bits: half the memory again, a little worse
    #[value(name = "q4_k")]
    Q4K,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CpuTier {
    Scalar,
    Avx2,
    Avx512,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum KvDtype {
    #[default]
    F16,
    Int8,
}
