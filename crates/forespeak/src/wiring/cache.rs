//! The response cache, from what was said.

use std::sync::Arc;

use cache::{Mode, Policy, Secret, Stores};
use config::{CacheMode, CacheRules, CachedRoute, Config};
use gateway::tenants::CachePolicies;

use crate::commands::CommandError;

/// Where the secret is looked for if the configuration names no place.
pub(super) const SECRET_VARIABLE: &str = "FORESPEAK_CACHE_SECRET";

/// Opens the cache, if there is to be one. Must be called within a runtime.
pub(crate) fn open_cache(config: &Config) -> Result<Option<Arc<cache::Cache>>, CommandError> {
    let section = &config.cache;
    let redis = match section.store() {
        config::Cache::OFF => return Ok(None),
        config::Cache::MEMORY => None,
        address => Some(address.to_owned()),
    };
    let given = section.secret.as_ref().and_then(|secret| secret.reveal());
    let given = given
        .map(str::to_owned)
        .or_else(|| std::env::var(SECRET_VARIABLE).ok());
    let secret = match given {
        Some(text) => Secret::from_text(&text),
        None if redis.is_some() => return Err(CommandError::NoCacheSecret),
        None => Secret::random(),
    };
    let stores = Stores {
        memory_bytes: section.memory_bytes,
        redis,
    };
    Ok(Some(Arc::new(cache::Cache::new(&secret, &stores)?)))
}

/// What a million tokens cost, by model.
pub(crate) fn prices(config: &Config) -> gateway::PriceList {
    let prices = |prices: config::Prices| gateway::Prices {
        prompt: prices.prompt,
        completion: prices.completion,
    };
    let own = config.models.iter().filter_map(|model| {
        let own = prices(model.prices?);
        Some((model.name.clone(), own))
    });
    gateway::PriceList {
        unless_said: prices(config.cache.prices),
        by_model: own.collect(),
    }
}

/// Which answers are kept.
pub(crate) fn policies(rules: &CacheRules) -> CachePolicies {
    let unsaid = Policy::default();
    let policy = Policy {
        mode: match rules.mode {
            Some(CacheMode::Off) => Mode::Off,
            Some(CacheMode::Everything) => Mode::Everything {
                variants: rules.variants.unwrap_or(1),
            },
            Some(CacheMode::Deterministic) | None => Mode::Deterministic,
        },
        ttl: rules.ttl().unwrap_or(unsaid.ttl),
        max_entry_bytes: rules.max_entry_bytes.unwrap_or(unsaid.max_entry_bytes),
        normalise_unicode: rules.normalise_unicode.unwrap_or(false),
    };
    let off = Policy {
        mode: Mode::Off,
        ..policy
    };
    let on = |route| match &rules.routes {
        Some(routes) if !routes.contains(&route) => off,
        _ => policy,
    };
    CachePolicies {
        chat: on(CachedRoute::Chat),
        completions: on(CachedRoute::Completions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_tenants_rules_win_over_those_for_all() {
        let config = Config::parse(
            "[cache]\nmode = \"everything\"\nvariants = 3\nttl = \"5m\"\n\
             [[tenants]]\nname = \"t\"\nanonymous = true\ncache = { ttl = \"1m\", routes = [\"chat\"] }\n",
        )
        .unwrap();
        let tenant = config.tenants.first().unwrap();
        let policies = policies(&tenant.cache.or(&config.cache.rules));
        assert_eq!(policies.chat.mode, Mode::Everything { variants: 3 });
        assert_eq!(policies.chat.ttl, Duration::from_secs(60));
        assert_eq!(policies.completions.mode, Mode::Off);
    }

    #[test]
    fn a_model_may_have_prices_of_its_own() {
        let config = Config::parse(
            "[cache]\nprices = { prompt = 1.0, completion = 2.0 }\n\
             [[models]]\nname = \"m\"\nengine = {}\nprices = { prompt = 3.0, completion = 4.0 }\n",
        )
        .unwrap();
        let list = prices(&config);
        assert_eq!(list.unless_said.completion, 2.0);
        assert_eq!(list.by_model["m"].prompt, 3.0);
    }

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(policies(&CacheRules::default()), CachePolicies::default());
        let off = Config::parse("[cache]\nstore = \"off\"\n").unwrap();
        assert!(open_cache(&off).unwrap().is_none());
        assert!(open_cache(&Config::default()).unwrap().is_some());
    }
}
