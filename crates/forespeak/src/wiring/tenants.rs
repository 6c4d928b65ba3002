//! Who may ask, from what was said.

use config::{Config, Key, Limits};
use gateway::tenants::{
    ANONYMOUS, DEFAULT, KeyHash, Models, SaltSecret, TenantSpec, Tenants, read_key_file,
};

use super::cache::policies;
use crate::commands::CommandError;

/// The secret that was given, or the one that lasts as long as the process.
pub(crate) fn salt_secret(config: &Config, made_up: &SaltSecret) -> SaltSecret {
    let given = config
        .salt_secret
        .as_ref()
        .and_then(|secret| secret.reveal());
    given.map_or_else(|| made_up.clone(), SaltSecret::from_text)
}

/// The tenants; what those `before` have used still counts.
pub(crate) fn tenants(
    config: &Config,
    secret: &SaltSecret,
    before: &Tenants,
) -> Result<Tenants, CommandError> {
    let limits = limits(config.limits);
    let specs = match &config.server.api_key_file {
        _ if !config.tenants.is_empty() => config
            .tenants
            .iter()
            .map(|tenant| spec(tenant, config))
            .collect(),
        Some(path) => vec![TenantSpec {
            keys: read_key_file(path)?,
            limits,
            cache: policies(&config.cache.rules),
            ..TenantSpec::only(DEFAULT)
        }],
        None => vec![TenantSpec {
            anonymous: true,
            limits,
            cache: policies(&config.cache.rules),
            // Whoever is at this machine may know how it decides.
            trusted: config.server.listen.ip().is_loopback(),
            ..TenantSpec::only(ANONYMOUS)
        }],
    };
    Ok(Tenants::new(specs, secret, before)?)
}

fn spec(tenant: &config::Tenant, config: &Config) -> TenantSpec {
    TenantSpec {
        name: tenant.name.clone(),
        keys: tenant.keys.iter().filter_map(key_hash).collect(),
        anonymous: tenant.anonymous,
        models: match &tenant.models {
            Some(names) => Models::Only(names.clone()),
            None => Models::All,
        },
        priority: tenant.priority.into(),
        max_priority: tenant.max_priority().into(),
        trusted: tenant.trusted,
        extra_fields: tenant.extra_fields.clone(),
        limits: limits(tenant.limits.or(config.limits)),
        cache: policies(&tenant.cache.or(&config.cache.rules)),
    }
}

/// Checked and looked up when the file was read.
fn key_hash(key: &Key) -> Option<KeyHash> {
    match key {
        Key::Hash { sha256 } => KeyHash::parse(&format!("sha256:{sha256}")),
        Key::Kept(secret) => secret.reveal().map(KeyHash::of),
    }
}

fn limits(limits: Limits) -> gateway::tenants::Limits {
    gateway::tenants::Limits {
        requests_per_minute: limits.requests_per_minute,
        tokens_per_minute: limits.tokens_per_minute,
        concurrent: limits.concurrent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Tenants {
        let config = Config::parse(text).unwrap();
        tenants(&config, &SaltSecret::random(), &Tenants::default()).unwrap()
    }

    #[test]
    fn nothing_said_is_one_anonymous_tenant() {
        let tenants = of("");
        let tenant = tenants.identify(Some("any")).unwrap();
        assert_eq!(&*tenant.name, ANONYMOUS);
        assert!(tenant.trusted);
        let open = of("[server]\nlisten = \"0.0.0.0:1\"\n[limits]\nconcurrent = 3\n");
        let tenant = open.identify(None).unwrap();
        assert!(!tenant.trusted);
        assert_eq!(tenant.limits.concurrent, Some(3));
    }

    #[test]
    fn a_tenant_is_known_by_its_hashed_key() {
        // printf %s secret | sha256sum
        let tenants = of(
            "[[tenants]]\nname = \"t\"\nkeys = [{ sha256 = \"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\" }]\nmodels = [\"m\"]\n\
             [[pools]]\nname = \"p\"\nworkers = [{ url = \"http://127.0.0.1:1\" }]\n\
             [[models]]\nname = \"m\"\npool = \"p\"\n",
        );
        let tenant = tenants.identify(Some("secret")).unwrap();
        assert!(tenant.models.allow("m") && !tenant.models.allow("n"));
        assert!(tenants.identify(None).is_err());
    }
}
