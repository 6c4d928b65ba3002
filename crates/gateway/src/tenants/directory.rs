//! All tenants, and which of them a key belongs to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::KeyHash;
use super::salt::SaltSecret;
use super::tenant::{ANONYMOUS, DEFAULT, Tenant, TenantSpec};
use crate::error::GatewayError;

/// Why a request is nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// It has no key, and needs one.
    NoKey,
    /// Its key is not known.
    Key,
}

/// All tenants.
#[derive(Debug, Default)]
pub struct Tenants {
    /// By the part of a key's hash that may show; almost always one to a shelf.
    keys: HashMap<u64, Vec<(KeyHash, Arc<Tenant>)>>,
    /// Of requests without a key.
    anonymous: Option<Arc<Tenant>>,
    by_name: BTreeMap<Arc<str>, Arc<Tenant>>,
}

impl Tenants {
    /// Everyone is `anonymous`, whatever key they send.
    pub fn open(secret: &SaltSecret) -> Self {
        Self::alone(Tenant::new(TenantSpec::only(ANONYMOUS), secret, None))
    }

    /// The same for a worker behind a gateway: that one has salted already, and its salts are kept.
    pub fn of_a_worker() -> Self {
        let tenant = Tenant::new(TenantSpec::only(ANONYMOUS), &SaltSecret::random(), None);
        Self::alone(tenant.unsalted())
    }

    /// Everyone with one of these keys is `default`.
    pub fn with_keys(keys: Vec<KeyHash>, secret: &SaltSecret) -> Self {
        let tenant = Arc::new(Tenant::new(TenantSpec::only(DEFAULT), secret, None));
        let mut tenants = Self::default();
        for key in keys {
            tenants.shelve(key, &tenant);
        }
        tenants.by_name.insert(Arc::clone(&tenant.name), tenant);
        tenants
    }

    /// The tenants of a configuration. What those of the one before have used still counts.
    ///
    /// # Errors
    /// If two have one name or one key, or two are anonymous.
    pub fn new(
        specs: Vec<TenantSpec>,
        secret: &SaltSecret,
        before: &Self,
    ) -> Result<Self, GatewayError> {
        let mut tenants = Self::default();
        let mut names = BTreeSet::new();
        for mut spec in specs {
            let (name, keys) = (spec.name.clone(), std::mem::take(&mut spec.keys));
            let refuse = |why| GatewayError::Tenant {
                name: name.clone(),
                why,
            };
            let anonymous = spec.anonymous;
            if !names.insert(name.clone()) {
                return Err(refuse("another tenant has the same name"));
            }
            let before = before.get(&name).map(Arc::as_ref);
            let tenant = Arc::new(Tenant::new(spec, secret, before));
            for key in keys {
                if tenants.of_hash(&key).is_some() {
                    return Err(refuse("one of its keys was given before"));
                }
                tenants.shelve(key, &tenant);
            }
            if anonymous && tenants.anonymous.replace(Arc::clone(&tenant)).is_some() {
                return Err(refuse("another tenant is anonymous, too"));
            }
            tenants.by_name.insert(Arc::clone(&tenant.name), tenant);
        }
        Ok(tenants)
    }

    fn alone(tenant: Tenant) -> Self {
        let tenant = Arc::new(tenant);
        Self {
            keys: HashMap::new(),
            by_name: BTreeMap::from([(Arc::clone(&tenant.name), Arc::clone(&tenant))]),
            anonymous: Some(tenant),
        }
    }

    fn shelve(&mut self, key: KeyHash, tenant: &Arc<Tenant>) {
        let shelf = self.keys.entry(key.shelf()).or_default();
        shelf.push((key, Arc::clone(tenant)));
    }

    fn of_hash(&self, key: &KeyHash) -> Option<&Arc<Tenant>> {
        let shelf = self.keys.get(&key.shelf())?;
        let (_, tenant) = shelf.iter().find(|(known, _)| known == key)?;
        Some(tenant)
    }

    /// Whose request this is, by its key.
    ///
    /// # Errors
    /// If it is nobody's.
    pub fn identify(&self, key: Option<&str>) -> Result<&Arc<Tenant>, Unknown> {
        match key {
            // Clients of OpenAI's always send some key; where none is needed any will do.
            Some(key) if !self.keys.is_empty() => {
                self.of_hash(&KeyHash::of(key)).ok_or(Unknown::Key)
            }
            Some(_) => self.anonymous.as_ref().ok_or(Unknown::Key),
            None => self.anonymous.as_ref().ok_or(Unknown::NoKey),
        }
    }

    /// Whether requests without a key are let in.
    pub fn is_open(&self) -> bool {
        self.anonymous.is_some()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Tenant>> {
        self.by_name.values()
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&Arc<Tenant>> {
        self.by_name.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, keys: &[&str]) -> TenantSpec {
        TenantSpec {
            name: name.to_owned(),
            keys: keys.iter().map(|key| KeyHash::of(key)).collect(),
            ..TenantSpec::default()
        }
    }

    fn tenants(specs: Vec<TenantSpec>) -> Result<Tenants, GatewayError> {
        Tenants::new(specs, &SaltSecret::from_text("s"), &Tenants::default())
    }

    fn name_of(tenants: &Tenants, key: Option<&str>) -> Result<String, Unknown> {
        tenants.identify(key).map(|tenant| tenant.name.to_string())
    }

    #[test]
    fn a_key_leads_to_its_tenant() {
        let tenants = tenants(vec![spec("a", &["1", "2"]), spec("b", &["3"])]).unwrap();
        assert_eq!(name_of(&tenants, Some("2")), Ok("a".to_owned()));
        assert_eq!(name_of(&tenants, Some("3")), Ok("b".to_owned()));
        for wrong in ["4", "", "1 ", "12"] {
            assert_eq!(name_of(&tenants, Some(wrong)), Err(Unknown::Key), "{wrong}");
        }
        assert_eq!(name_of(&tenants, None), Err(Unknown::NoKey));
        assert!(!tenants.is_open());
    }

    #[test]
    fn a_wrong_key_is_no_invitation_even_where_none_is_needed() {
        let mut public = spec("public", &[]);
        public.anonymous = true;
        let tenants = tenants(vec![public, spec("b", &["3"])]).unwrap();
        assert_eq!(name_of(&tenants, None), Ok("public".to_owned()));
        assert_eq!(name_of(&tenants, Some("3")), Ok("b".to_owned()));
        assert_eq!(name_of(&tenants, Some("4")), Err(Unknown::Key));
    }

    #[test]
    fn at_an_open_door_any_key_will_do() {
        let tenants = Tenants::open(&SaltSecret::random());
        assert_eq!(name_of(&tenants, Some("any")), Ok(ANONYMOUS.to_owned()));
        assert_eq!(name_of(&tenants, None), Ok(ANONYMOUS.to_owned()));
    }

    #[test]
    fn keys_of_a_file_are_one_tenant() {
        let keys = vec![KeyHash::of("1"), KeyHash::of("2")];
        let tenants = Tenants::with_keys(keys, &SaltSecret::random());
        assert_eq!(name_of(&tenants, Some("2")), Ok(DEFAULT.to_owned()));
        assert_eq!(name_of(&tenants, Some("3")), Err(Unknown::Key));
        assert_eq!(name_of(&tenants, None), Err(Unknown::NoKey));
    }

    #[test]
    fn without_any_tenant_nobody_gets_in() {
        let tenants = tenants(Vec::new()).unwrap();
        assert_eq!(name_of(&tenants, Some("1")), Err(Unknown::Key));
        assert_eq!(name_of(&tenants, None), Err(Unknown::NoKey));
    }

    #[test]
    fn a_new_configuration_does_not_forget_what_was_used() {
        let now = std::time::Instant::now();
        let limited = |concurrent| {
            let mut spec = spec("a", &["1"]);
            spec.limits.concurrent = Some(concurrent);
            vec![spec]
        };
        let old = tenants(limited(2)).unwrap();
        let pass = old.get("a").unwrap().enter(now).unwrap();
        let new = Tenants::new(limited(1), &SaltSecret::from_text("s"), &old).unwrap();
        let tenant = new.get("a").unwrap();
        assert!(tenant.enter(now).is_err());
        drop(pass);
        assert!(tenant.enter(now).is_ok());
    }

    #[test]
    fn what_belongs_to_two_belongs_to_nobody() {
        assert!(tenants(vec![spec("a", &["1"]), spec("a", &["2"])]).is_err());
        assert!(tenants(vec![spec("a", &["1"]), spec("b", &["1"])]).is_err());
        let anonymous = |name| TenantSpec {
            anonymous: true,
            ..spec(name, &[])
        };
        assert!(tenants(vec![anonymous("a"), anonymous("b")]).is_err());
    }
}
