//! What a tenant's sequences said, for the next ones of the same tenant.
//!
//! Tenants never see each other's texts: each has an index of its own, and the key is theirs alone. Memory is
//! bounded twice: a tenant keeps its latest tokens in two generations (when the young one is full it becomes
//! the old one, and the old one goes), and of the tenants the least recently used goes.

use foldhash::HashMap;

use super::{Found, SuffixIndex};

/// Tenants remembered.
const MAX_TENANTS: usize = 64;

/// Tokens in one generation of one tenant: about 100 pages of text, at 12 bytes a token.
const GENERATION_TOKENS: usize = 65_536;

/// Longest part of one text that is learnt: a tenant's pool must hold several.
const MAX_TEXT: usize = GENERATION_TOKENS / 4;

/// Fewest agreeing tokens. Other texts are less likely to go on alike than the same one.
const MIN_MATCH: usize = 3;

/// Indexes by tenant.
#[derive(Debug, Default)]
pub struct TenantPool {
    tenants: HashMap<u64, Tenant>,
    clock: u64,
}

#[derive(Debug, Default)]
struct Tenant {
    young: SuffixIndex,
    old: SuffixIndex,
    used: u64,
}

impl TenantPool {
    /// Learns a text (or a part of one) of a tenant: most naturally an answer, when it has ended. `tenant` is
    /// any number that no two tenants share.
    pub fn learn(&mut self, tenant: u64, text: &[u32]) {
        let text = text
            .get(text.len().saturating_sub(MAX_TEXT)..)
            .unwrap_or(text);
        if text.len() <= MIN_MATCH {
            return;
        }
        self.make_room(tenant);
        let used = self.tick();
        let tenant = self.tenants.entry(tenant).or_default();
        tenant.used = used;
        if tenant.young.len() + text.len() > GENERATION_TOKENS {
            tenant.old = std::mem::take(&mut tenant.young);
        }
        tenant.young.extend(text);
        tenant.young.end_text();
    }

    /// What followed in an earlier text of the tenant behind what `context` ends with.
    pub fn propose(&mut self, tenant: u64, context: &[u32], most: usize) -> Option<Found> {
        let used = self.tick();
        let tenant = self.tenants.get_mut(&tenant)?;
        tenant.used = used;
        let young = tenant.young.propose_for(context, most);
        let old = tenant.old.propose_for(context, most);
        Found::better(young, old).filter(|found| found.matched.length >= MIN_MATCH)
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn make_room(&mut self, tenant: u64) {
        if self.tenants.len() < MAX_TENANTS || self.tenants.contains_key(&tenant) {
            return;
        }
        let unused = self.tenants.iter().min_by_key(|(_, t)| t.used);
        if let Some(id) = unused.map(|(&id, _)| id) {
            self.tenants.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_finds_its_own_texts_and_nobody_elses() {
        let mut pool = TenantPool::default();
        pool.learn(1, &[5, 6, 7, 8, 9]);
        let found = pool.propose(1, &[0, 5, 6, 7], 8).unwrap();
        assert_eq!(
            (found.tokens.as_slice(), found.matched.length),
            (&[8, 9][..], 3)
        );
        assert_eq!(pool.propose(2, &[0, 5, 6, 7], 8), None);
        assert_eq!(
            pool.propose(1, &[0, 6, 7], 8),
            None,
            "two tokens are too few"
        );
    }

    #[test]
    fn no_match_and_no_draft_reaches_from_one_text_into_the_next() {
        let mut pool = TenantPool::default();
        pool.learn(1, &[1, 2, 3, 4]);
        pool.learn(1, &[5, 6, 7, 8]);
        assert_eq!(pool.propose(1, &[2, 3, 4], 4), None);
        assert_eq!(pool.propose(1, &[4, 5, 6], 4), None);
        assert_eq!(pool.propose(1, &[5, 6, 7], 4).unwrap().tokens, [8]);
    }

    #[test]
    fn memory_is_bounded_by_tenants_and_by_tokens() {
        let mut pool = TenantPool::default();
        for tenant in 0..2 * MAX_TENANTS as u64 {
            pool.learn(tenant, &[1, 2, 3, 4]);
            pool.learn(0, &[1, 2, 3, 4]);
        }
        assert_eq!(pool.tenants.len(), MAX_TENANTS);
        assert!(
            pool.propose(0, &[1, 2, 3], 1).is_some(),
            "in use all the time"
        );
        let text: Vec<u32> = (0..10_000).collect();
        for _ in 0..40 {
            pool.learn(0, &text);
        }
        let tenant = &pool.tenants[&0];
        assert!(tenant.young.len() <= GENERATION_TOKENS + 1);
        assert!(tenant.old.len() <= GENERATION_TOKENS + 1);
        assert!(pool.propose(0, &[7, 8, 9], 2).is_some());
    }
}
