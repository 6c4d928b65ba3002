//! One who asks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use protocol::ApiError;
use replicas::Elsewhere;
use routing::Priority;

use super::KeyHash;
use super::meter::{Allowances, Meter, Pass, Told};
use super::salt::{SaltSecret, salt_within};

/// The tenant of everyone at an open door.
pub const ANONYMOUS: &str = "anonymous";

/// The tenant of everyone with a key from a key file.
pub const DEFAULT: &str = "default";

/// The models a tenant may ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Models {
    /// Every one.
    #[default]
    All,
    /// These, by the names that clients use.
    Only(BTreeSet<String>),
}

impl Models {
    /// Whether this one is among them.
    pub fn allow(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}

/// How much a tenant may ask for. `None` is without limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests per minute.
    pub requests_per_minute: Option<u32>,
    /// Tokens of prompts and answers per minute.
    pub tokens_per_minute: Option<u64>,
    /// Requests at a time.
    pub concurrent: Option<u32>,
}

/// A tenant as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantSpec {
    /// What it is called in logs and metrics; its salt follows from it.
    pub name: String,
    /// The keys that identify it.
    pub keys: Vec<KeyHash>,
    /// Whether requests without a key are its own.
    pub anonymous: bool,
    /// The models it may ask for.
    pub models: Models,
    /// The priority of its requests that ask for none.
    pub priority: Priority,
    /// The highest it may ask for.
    pub max_priority: Priority,
    /// Whether it may see how the gateway decides: worker names, decisions.
    pub trusted: bool,
    /// Fields of requests that go through to workers for it, beside those everyone may send.
    pub extra_fields: BTreeSet<String>,
    /// How much it may ask for.
    pub limits: Limits,
    /// Which of its answers are kept.
    pub cache: CachePolicies,
}

/// Which answers are kept, by route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CachePolicies {
    /// Of chats.
    pub chat: cache::Policy,
    /// Of completions.
    pub completions: cache::Policy,
}

impl TenantSpec {
    /// The only tenant there is, with nobody whom its wishes could harm.
    pub fn only(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            max_priority: Priority::High,
            ..Self::default()
        }
    }
}

/// One who asks.
#[derive(Debug)]
pub struct Tenant {
    /// What it is called in logs and metrics.
    pub name: Arc<str>,
    /// Keeps its cached prefixes apart. Empty for a worker behind another gateway, which has salted already.
    pub salt: Arc<str>,
    /// The models it may ask for.
    pub models: Models,
    /// The priority of its requests that ask for none.
    pub priority: Priority,
    /// The highest it may ask for.
    pub max_priority: Priority,
    /// Whether it may see how the gateway decides.
    pub trusted: bool,
    /// Fields of requests that go through to workers for it, beside those everyone may send.
    pub extra_fields: BTreeSet<String>,
    /// How much it may ask for.
    pub limits: Limits,
    /// Which of its answers are kept.
    pub cache: CachePolicies,
    meter: Arc<Meter>,
}

impl Tenant {
    /// `before`: the tenant of the same name in the configuration before this one, whose use still counts.
    pub(super) fn new(spec: TenantSpec, secret: &SaltSecret, before: Option<&Self>) -> Self {
        let meter = before.map(|before| Arc::clone(&before.meter));
        Self {
            salt: secret.salt(&spec.name),
            name: spec.name.into(),
            models: spec.models,
            priority: spec.priority,
            max_priority: spec.max_priority,
            trusted: spec.trusted,
            extra_fields: spec.extra_fields,
            limits: spec.limits,
            cache: spec.cache,
            meter: meter.unwrap_or_else(|| Meter::new(Instant::now())),
        }
    }

    /// Leaves salting to whoever stands in front.
    pub(super) fn unsalted(self) -> Self {
        Self {
            salt: Arc::default(),
            ..self
        }
    }

    /// The salt of a request. A client may keep its own users apart with a salt of its own, and can reach nobody
    /// else's prefixes with it.
    pub fn cache_salt(&self, of_client: Option<&str>) -> Option<Arc<str>> {
        match (&*self.salt, of_client) {
            ("", of_client) => of_client.map(Arc::from),
            (_, None) => Some(Arc::clone(&self.salt)),
            (salt, Some(part)) => Some(salt_within(salt, part)),
        }
    }

    /// Lets a request in, if the limits allow one more.
    ///
    /// # Errors
    /// If they do not, with the time to come back.
    pub fn enter(&self, now: Instant) -> Result<Pass, ApiError> {
        self.meter.enter(&self.limits, now)
    }

    /// What is left of its limits.
    pub fn allowances(&self, now: Instant) -> Allowances {
        self.meter.allowances(&self.limits, now)
    }

    /// What other gateways are told of its use, if there is anything to tell.
    pub(crate) fn told(&self, now: Instant) -> Option<Told> {
        self.meter.told(&self.limits, now)
    }

    /// Takes in what it used at so many other gateways.
    pub(crate) fn heard(&self, elsewhere: &Elsewhere, others: usize, now: Instant) {
        self.meter.heard(&self.limits, elsewhere, others, now);
    }

    /// Its requests that are running.
    pub fn running(&self) -> u32 {
        self.meter.running()
    }

    /// The priority of a request that asks for this one.
    pub fn priority(&self, asked: Option<Priority>) -> Priority {
        asked.unwrap_or(self.priority).min(self.max_priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        let spec = TenantSpec {
            name: name.to_owned(),
            ..TenantSpec::default()
        };
        Tenant::new(spec, &SaltSecret::from_text("s"), None)
    }

    #[test]
    fn a_clients_salt_stays_within_its_tenant() {
        let (a, b) = (tenant("a"), tenant("b"));
        assert_eq!(a.cache_salt(None), Some(Arc::clone(&a.salt)));
        assert_ne!(a.cache_salt(Some("x")), a.cache_salt(Some("y")));
        assert_ne!(a.cache_salt(Some("x")), b.cache_salt(Some("x")));
        assert_ne!(a.cache_salt(Some(&b.salt)), b.cache_salt(None));
    }

    #[test]
    fn behind_another_gateway_its_salt_is_kept() {
        let worker = tenant("a").unsalted();
        assert_eq!(worker.cache_salt(Some("x")).as_deref(), Some("x"));
        assert_eq!(worker.cache_salt(None), None);
    }

    #[test]
    fn nobody_gets_more_priority_than_allowed() {
        let tenant = tenant("a");
        assert_eq!(tenant.priority(None), Priority::Normal);
        assert_eq!(tenant.priority(Some(Priority::High)), Priority::Normal);
        assert_eq!(tenant.priority(Some(Priority::Low)), Priority::Low);
    }

    #[test]
    fn models_are_all_or_a_list() {
        assert!(Models::All.allow("m"));
        let only = Models::Only(BTreeSet::from(["m".to_owned()]));
        assert!(only.allow("m") && !only.allow("n"));
    }
}
