//! The cache as the gateway sees it: `recall` before an answer is made, and [`Recalled::Ask`] for making it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::asking::Asking;
use crate::counts::{CacheCounts, Counts, Saved, Tier};
use crate::entry::{self, Entry};
use crate::fingerprint::{Fingerprint, Known, Recogniser, Route, Subject};
use crate::flight::Flights;
use crate::policy::{Bypass, Directives, Permit, Policy};
use crate::secret::{Keys, Secret};
use crate::store::redis::{AddressError, Redis};
use crate::store::{Epochs, Memory, Scope, Slots, Stamp, Store, Tiers, unix_milliseconds};

/// Where answers are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stores {
    /// So many bytes in this process; 0 is none.
    pub memory_bytes: u64,
    /// The address of a Redis that gateways share.
    pub redis: Option<String>,
}

impl Default for Stores {
    fn default() -> Self {
        Self {
            memory_bytes: crate::store::DEFAULT_MEMORY_BYTES,
            redis: None,
        }
    }
}

/// The response cache.
pub struct Cache {
    pub(crate) keys: Keys,
    pub(crate) recogniser: Recogniser,
    pub(crate) store: Box<dyn Store>,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) counts: Arc<Counts>,
}

/// What there is for a request.
pub enum Recalled {
    /// The answer.
    Hit(Hit),
    /// Nothing yet: it has to be asked for.
    Ask(Asking),
    /// Nothing, ever.
    Bypass(Bypass),
}

/// An answer out of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// All of the body.
    pub body: Bytes,
    /// Whether it is a stream of events.
    pub is_stream: bool,
    /// How old it is.
    pub age: Duration,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
    /// Where it was.
    pub tier: Tier,
}

/// A question on its way through the cache.
pub(crate) struct Plan {
    pub(crate) known: Arc<Known>,
    pub(crate) key: Fingerprint,
    pub(crate) route: Route,
    pub(crate) tenant: Box<str>,
    pub(crate) model: Box<str>,
    pub(crate) policy: Policy,
    pub(crate) permit: Permit,
    pub(crate) slots: Slots,
    /// What had been invalidated when the question was asked.
    pub(crate) stamp: Stamp,
}

impl Cache {
    /// A cache in front of these stores. Must be called within a runtime if Redis is one of them.
    pub fn new(secret: &Secret, stores: &Stores) -> Result<Self, AddressError> {
        let keys = secret.keys();
        let counts = Arc::new(Counts::default());
        let epochs = Arc::new(Epochs::new(&keys));
        let memory = || Memory::new(stores.memory_bytes, Arc::clone(&counts));
        let store: Box<dyn Store> = match &stores.redis {
            None => Box::new(memory()),
            Some(address) => {
                let redis = Redis::start(address, Arc::clone(&epochs), Arc::clone(&counts))?;
                if stores.memory_bytes == 0 {
                    Box::new(redis)
                } else {
                    Box::new(Tiers::new(memory(), redis))
                }
            }
        };
        Ok(Self {
            recogniser: Recogniser::new(keys.clone()),
            keys,
            store,
            epochs,
            flights: Arc::default(),
            counts,
        })
    }

    /// What there is for a request. `may_ask` says whether its tenant may use the model it names, today: whoever
    /// may not is told so by whoever answers.
    pub async fn recall(
        self: &Arc<Self>,
        subject: Subject<'_>,
        body: &[u8],
        policy: Policy,
        directives: Directives,
        may_ask: impl FnOnce(Option<&str>) -> bool,
    ) -> Recalled {
        let plan = self.plan(subject, body, policy, directives);
        let plan = match plan {
            Ok(plan) if !may_ask(plan.known.question.model.as_deref()) => Err(Bypass::NotAllowed),
            plan => plan,
        };
        let plan = match plan {
            Ok(plan) => plan,
            Err(why) => {
                self.counts.bypassed(why);
                return Recalled::Bypass(why);
            }
        };
        match self.look_up(&plan).await {
            Some(hit) => Recalled::Hit(hit),
            None => Recalled::Ask(Asking::new(Arc::clone(self), plan)),
        }
    }

    fn plan(
        &self,
        subject: Subject<'_>,
        body: &[u8],
        policy: Policy,
        directives: Directives,
    ) -> Result<Plan, Bypass> {
        // Before the body is looked at: who does not want caching should not pay for it.
        policy.permit(true, directives)?;
        let known = self
            .recogniser
            .recognise(&subject, body)
            .map_err(Bypass::Unclear)?;
        let question = &known.question;
        let permit = policy.permit(question.deterministic, directives)?;
        let slots = *known.slots.get_or_init(|| {
            let context = question.context.as_deref();
            self.epochs.slots(subject.tenant, subject.model, context)
        });
        let variant = known.next_variant(permit.variants);
        Ok(Plan {
            key: question.fingerprint.variant(variant),
            route: subject.route,
            tenant: subject.tenant.into(),
            model: subject.model.into(),
            policy,
            permit,
            slots,
            stamp: self.epochs.stamp(slots),
            known,
        })
    }

    async fn look_up(&self, plan: &Plan) -> Option<Hit> {
        if !plan.permit.read {
            return None;
        }
        if let Some(hit) = self.look_up_now(plan) {
            return Some(hit);
        }
        let sealed = self.store.get(plan.key).await?;
        let hit = self.check(plan, &sealed, Tier::Redis)?;
        self.store.keep_near(plan.key, &sealed);
        Some(hit)
    }

    /// What is at hand.
    pub(crate) fn look_up_now(&self, plan: &Plan) -> Option<Hit> {
        let sealed = self.store.get_now(&plan.key)?;
        self.check(plan, &sealed, Tier::Memory)
    }

    /// Opens what lay under a key, if it may be believed, is still good and will do.
    fn check(&self, plan: &Plan, sealed: &Bytes, tier: Tier) -> Option<Hit> {
        let entry = match entry::open(&self.keys, plan.key, &plan.tenant, sealed) {
            Ok(entry) => entry,
            Err(why) => {
                tracing::warn!(target: "forespeak::cache", %why, "an entry was not believed");
                self.counts.rejected();
                self.store.forget_near(&plan.key);
                return None;
            }
        };
        let now = unix_milliseconds();
        if entry.expires <= now || entry.stamp != self.epochs.stamp(plan.slots) {
            self.counts.stale();
            self.store.forget_near(&plan.key);
            return None;
        }
        let age = Duration::from_millis(now.saturating_sub(entry.created));
        if plan.permit.max_age.is_some_and(|oldest| age > oldest) {
            return None;
        }
        let Entry { recording, .. } = &entry;
        let wants = plan.known.question.wants;
        let body = recording.body(wants)?;
        self.counts.hit(tier);
        self.counts.saved(
            &plan.model,
            recording.prompt_tokens,
            recording.completion_tokens,
        );
        Some(Hit {
            body,
            is_stream: wants.stream,
            age,
            prompt_tokens: recording.prompt_tokens,
            completion_tokens: recording.completion_tokens,
            tier,
        })
    }

    /// Makes everything in a scope a miss, here and at the other gateways. Whether they could be told.
    pub async fn invalidate(&self, scope: Scope<'_>) -> bool {
        let slot = self.epochs.slot(scope);
        let epoch = self.epochs.advance(slot);
        self.counts.invalidated();
        self.store.announce(slot, epoch).await
    }

    /// What was saved, by model.
    pub fn saved(&self) -> Vec<Saved> {
        self.counts.saved_by_model()
    }

    /// What the cache has done and holds.
    pub fn counts(&self) -> CacheCounts {
        let held = self.store.held();
        CacheCounts {
            flights: self.flights.count(),
            flight_bytes: self.flights.held_bytes(),
            entries: held.entries,
            bytes: held.bytes,
            ..self.counts.read()
        }
    }
}
