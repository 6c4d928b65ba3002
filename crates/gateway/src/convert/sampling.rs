//! How tokens are chosen: from the wire to the engine.

use protocol::format::Format;
use protocol::sampling::{Drafter, Priority, Sampling};

use crate::tenants::Tenant;

/// Everything but `logprobs`, which each route asks for in its own way.
pub(crate) fn sampling(wire: Sampling) -> engine::Sampling {
    engine::Sampling {
        n: wire.n,
        temperature: wire.temperature,
        top_p: wire.top_p,
        top_k: wire.top_k,
        min_p: wire.min_p,
        presence_penalty: wire.presence_penalty,
        frequency_penalty: wire.frequency_penalty,
        repetition_penalty: wire.repetition_penalty,
        logit_bias: wire.logit_bias,
        seed: wire.seed,
        stop: wire.stop,
        stop_token_ids: wire.stop_token_ids,
        include_stop: wire.include_stop,
        max_tokens: wire.max_tokens,
        min_tokens: wire.min_tokens,
        ignore_eos: wire.ignore_eos,
        logprobs: None,
        prompt_logprobs: wire.prompt_logprobs,
        skip_special_tokens: wire.skip_special_tokens,
        format: match wire.format {
            Format::Text => engine::Format::Text,
            Format::JsonObject => engine::Format::JsonObject,
            Format::JsonSchema(schema) => engine::Format::JsonSchema(schema),
        },
        speculative_depth: wire.speculative_depth,
        speculative_drafters: match wire.speculative_drafter {
            Drafter::Auto => engine::Drafters::Auto,
            Drafter::Model => engine::Drafters::Model,
            Drafter::Ngram => engine::Drafters::Ngram,
            Drafter::Off => engine::Drafters::Off,
        },
    }
}

/// What a request asks for, as far as its tenant may. vLLM's 0, the normal case, asks for nothing.
pub(crate) fn priority(tenant: &Tenant, wire: Priority) -> engine::Priority {
    let asked = match wire {
        Priority::High => Some(routing::Priority::High),
        Priority::Normal => None,
        Priority::Low => Some(routing::Priority::Low),
    };
    match tenant.priority(asked) {
        routing::Priority::High => engine::Priority::High,
        routing::Priority::Normal => engine::Priority::Normal,
        routing::Priority::Low => engine::Priority::Low,
    }
}
