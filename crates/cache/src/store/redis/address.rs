//! Where Redis is, in the words of the configuration.
//!
//! ```text
//! redis://[user:password@]host[:port][/db]       rediss:// with TLS, unix:///path for a socket
//! redis-cluster://[user:password@]host:port,host:port,…        rediss-cluster:// with TLS
//! redis-sentinel://[user:password@]host:port,…/service[/db]    rediss-sentinel:// with TLS
//! ```
//! User and password are those of the Redis servers, for sentinels too.

use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{Client, TlsMode};

/// Where Redis is.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub enum Address {
    /// One server.
    Server(String),
    /// A cluster, by some of its nodes.
    Cluster(Vec<String>),
    /// The master that sentinels know.
    Sentinel {
        /// The sentinels.
        nodes: Vec<String>,
        /// What they call it.
        service: String,
        /// The address of a master but for its host.
        master: String,
    },
}

/// Why an address cannot be used. It does not show the address, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not one of ours.
    #[error(
        "the cache's address must start with redis://, rediss://, unix://, redis-cluster://, \
         rediss-cluster://, redis-sentinel:// or rediss-sentinel://"
    )]
    Scheme,
    /// Sentinels are asked for a service.
    #[error(
        "a sentinel's address ends with the service's name: redis-sentinel://host:26379/mymaster"
    )]
    Service,
    /// The client does not understand it.
    #[error("the cache's address is not usable: {0}")]
    Unusable(String),
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// If it is none that we can use.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::Scheme)?;
        let address = match scheme {
            "redis" | "rediss" | "unix" => Self::Server(text.to_owned()),
            "redis-cluster" => Self::Cluster(nodes("redis", rest.trim_end_matches('/'))),
            "rediss-cluster" => Self::Cluster(nodes("rediss", rest.trim_end_matches('/'))),
            "redis-sentinel" => Self::sentinel("redis", rest)?,
            "rediss-sentinel" => Self::sentinel("rediss", rest)?,
            _ => return Err(AddressError::Scheme),
        };
        address.check()?;
        Ok(address)
    }

    fn sentinel(scheme: &str, rest: &str) -> Result<Self, AddressError> {
        let (authority, path) = rest.split_once('/').ok_or(AddressError::Service)?;
        let (service, db) = path.split_once('/').unwrap_or((path, "0"));
        if service.is_empty() {
            return Err(AddressError::Service);
        }
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        let at = if user.is_empty() { "" } else { "@" };
        let hosts = authority
            .rsplit_once('@')
            .map_or(authority, |(_, hosts)| hosts);
        Ok(Self::Sentinel {
            nodes: nodes(scheme, hosts),
            service: service.to_owned(),
            master: format!("{scheme}://{user}{at}localhost/{db}"),
        })
    }

    fn check(&self) -> Result<(), AddressError> {
        let all: Vec<&String> = match self {
            Self::Server(url) => vec![url],
            Self::Cluster(urls) => urls.iter().collect(),
            Self::Sentinel { nodes, master, .. } => nodes.iter().chain([master]).collect(),
        };
        for url in all {
            Client::open(url.as_str())
                .map_err(|error| AddressError::Unusable(error.to_string()))?;
        }
        Ok(())
    }
}

/// One address per host, each with the same user.
fn nodes(scheme: &str, authority: &str) -> Vec<String> {
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    hosts
        .split(',')
        .map(|host| format!("{scheme}://{user}{host}"))
        .collect()
}

/// Asks the sentinels who the master is.
pub(super) async fn ask_sentinels(
    nodes: &[String],
    service: &str,
    master: &str,
) -> redis::RedisResult<Client> {
    let template = Client::open(master)?;
    let settings = template.get_connection_info().redis_settings().clone();
    let mut info = SentinelNodeConnectionInfo::default().set_redis_connection_info(settings);
    if master.starts_with("rediss") {
        info = info.set_tls_mode(TlsMode::Secure);
    }
    let nodes = nodes.iter().map(String::as_str).collect();
    SentinelClient::build(nodes, service, Some(info), SentinelServerType::Master)?
        .async_get_client()
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_redis_has_its_scheme() {
        let plain = "redis://:pw@h:1/2".to_owned();
        assert_eq!(Address::parse(&plain), Ok(Address::Server(plain)));
        assert_eq!(
            Address::parse("rediss-cluster://u:p@a:1,b:2/"),
            Ok(Address::Cluster(vec![
                "rediss://u:p@a:1".into(),
                "rediss://u:p@b:2".into()
            ]))
        );
        assert_eq!(
            Address::parse("redis-sentinel://u:p@a:1,b:2/main/3"),
            Ok(Address::Sentinel {
                nodes: vec!["redis://a:1".into(), "redis://b:2".into()],
                service: "main".into(),
                master: "redis://u:p@localhost/3".into(),
            })
        );
        assert!(Address::parse("unix:///run/redis.sock").is_ok());
    }

    #[test]
    fn an_address_that_cannot_work_is_refused_at_the_start() {
        assert_eq!(Address::parse("memcached://x"), Err(AddressError::Scheme));
        assert_eq!(Address::parse("localhost"), Err(AddressError::Scheme));
        assert_eq!(
            Address::parse("redis-sentinel://a:1"),
            Err(AddressError::Service)
        );
        let secret = Address::parse("redis://:hunter2@[bad").unwrap_err();
        assert!(!secret.to_string().contains("hunter2"), "{secret}");
    }
}
