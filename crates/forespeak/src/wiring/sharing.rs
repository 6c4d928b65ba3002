//! What gateways side by side have in common, from what was said.

use config::{Config, Secret};

use super::cache::SECRET_VARIABLE as CACHE_SECRET_VARIABLE;
use crate::commands::CommandError;

/// Where the secret is looked for if the configuration names no place.
const SECRET_VARIABLE: &str = "FORESPEAK_SHARED_SECRET";

/// With whom and how, if at all.
pub(crate) fn sharing(config: &Config) -> Result<Option<replicas::Config>, CommandError> {
    let section = &config.shared;
    let Some(redis) = section.store() else {
        return Ok(None);
    };
    let kept = |secret: &Option<Secret>| {
        let secret = secret.as_ref().and_then(Secret::reveal);
        secret.map(str::to_owned)
    };
    let secret = kept(&section.secret)
        .or_else(|| std::env::var(SECRET_VARIABLE).ok())
        .or_else(|| kept(&config.cache.secret))
        .or_else(|| std::env::var(CACHE_SECRET_VARIABLE).ok())
        .ok_or(CommandError::NoSharedSecret)?;
    Ok(Some(replicas::Config {
        redis: redis.to_owned(),
        group: section.group.clone(),
        keys: replicas::Keys::new(&secret, &section.group),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shared_unless_that_is_said() {
        assert!(sharing(&Config::default()).unwrap().is_none());
        let config = Config::parse("[shared]\nstore = \"redis://h\"\ngroup = \"g\"\n").unwrap();
        match sharing(&config) {
            Ok(Some(sharing)) => assert_eq!(sharing.group, "g"),
            Ok(None) => panic!("it was said"),
            Err(error) => assert!(error.to_string().contains(SECRET_VARIABLE), "{error}"),
        }
    }
}
