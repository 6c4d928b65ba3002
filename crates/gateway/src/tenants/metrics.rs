//! What each tenant asks for and gets, counted under its name.
//!
//! Names come from a configuration that may list thousands, and every name is a handful of series for whoever scrapes: the
//! first few to ask are counted by name, all others together.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use protocol::Usage;

/// Tenants that are counted by name.
const MAX_NAMED: usize = 100;

/// What the others are counted under.
const OTHERS: &str = "other";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTenant {
    tenant: String,
}

/// The counters of one tenant.
#[derive(Debug, Clone)]
struct Counters {
    requests: Counter,
    refused: Counter,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    completion_tokens: Counter,
}

/// Counts by tenant.
#[derive(Debug, Default)]
pub(crate) struct TenantMetrics {
    requests: Family<OfTenant, Counter>,
    refused: Family<OfTenant, Counter>,
    prompt_tokens: Family<OfTenant, Counter>,
    cached_tokens: Family<OfTenant, Counter>,
    completion_tokens: Family<OfTenant, Counter>,
    named: RwLock<HashMap<Arc<str>, Counters>>,
}

impl TenantMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        for (name, help, family) in [
            ("requests", "Requests to generate", &self.requests),
            (
                "requests_refused",
                "Of these, not answered: 4xx and 5xx",
                &self.refused,
            ),
            ("prompt_tokens", "Tokens of prompts", &self.prompt_tokens),
            (
                "cached_tokens",
                "Of these, found in a cache",
                &self.cached_tokens,
            ),
            (
                "completion_tokens",
                "Tokens of answers",
                &self.completion_tokens,
            ),
        ] {
            let name = format!("forespeak_tenant_{name}");
            registry.register(name, format!("{help}, by tenant"), family.clone());
        }
    }

    /// A request is over.
    pub(crate) fn finished(&self, tenant: &Arc<str>, status: u16, usage: &Usage) {
        let counters = self.counters(tenant);
        counters.requests.inc();
        counters.refused.inc_by(u64::from(status >= 400));
        counters.prompt_tokens.inc_by(usage.prompt_tokens as u64);
        counters.cached_tokens.inc_by(usage.cached_tokens as u64);
        counters
            .completion_tokens
            .inc_by(usage.completion_tokens as u64);
    }

    fn counters(&self, tenant: &Arc<str>) -> Counters {
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = named.get(tenant) {
            return counters.clone();
        }
        let is_full = named.len() >= MAX_NAMED;
        drop(named);
        if is_full {
            return self.under(OTHERS);
        }
        let counters = self.under(tenant);
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        named.insert(Arc::clone(tenant), counters.clone());
        counters
    }

    fn under(&self, tenant: &str) -> Counters {
        let label = OfTenant {
            tenant: tenant.to_owned(),
        };
        Counters {
            requests: self.requests.get_or_create(&label).clone(),
            refused: self.refused.get_or_create(&label).clone(),
            prompt_tokens: self.prompt_tokens.get_or_create(&label).clone(),
            cached_tokens: self.cached_tokens.get_or_create(&label).clone(),
            completion_tokens: self.completion_tokens.get_or_create(&label).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode_registry;

    #[test]
    fn the_first_few_are_counted_by_name_and_the_others_together() {
        let metrics = TenantMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let usage = Usage {
            prompt_tokens: 10,
            completion_tokens: 2,
            cached_tokens: 8,
            drafts: None,
        };
        for round in 0..2 {
            for number in 0..MAX_NAMED + 50 {
                let name: Arc<str> = format!("t{number}").into();
                metrics.finished(&name, if round == 0 { 200 } else { 429 }, &usage);
            }
        }
        let mut text = String::new();
        encode_registry(&mut text, &registry).unwrap();
        assert!(text.contains("forespeak_tenant_requests_total{tenant=\"t0\"} 2\n"));
        assert!(text.contains("forespeak_tenant_requests_refused_total{tenant=\"t0\"} 1\n"));
        assert!(text.contains("forespeak_tenant_cached_tokens_total{tenant=\"t99\"} 16\n"));
        assert!(text.contains("forespeak_tenant_requests_total{tenant=\"other\"} 100\n"));
        let series = text.matches("forespeak_tenant_requests_total{").count();
        assert_eq!(series, MAX_NAMED + 1);
    }
}
