//! What an operator says about a worker: the values of a configuration, a worker file or an admin call.

use std::fmt;

use http::Uri;
use serde::Deserialize;

use crate::error::FleetError;
use crate::kv_events::Endpoint;

/// The most data-parallel ranks of one worker: the largest deployments described have under 100.
pub const MAX_RANKS: u32 = 256;

/// The pool of a worker that names none.
pub const DEFAULT_POOL: &str = "default";

/// Stands for the worker's host in the endpoints of its KV events.
const HOST: &str = "{host}";

/// A worker as configured.
///
/// ```
/// # use forespeak_fleet as fleet;
/// use fleet::WorkerSpec;
///
/// let spec: WorkerSpec = serde_json::from_str(
///     r#"{"url": "http://10.0.0.7:8000", "events": {"endpoint": "tcp://{host}:5557"}}"#,
/// ).unwrap();
/// assert_eq!(spec.name(), "10.0.0.7:8000");
/// assert!(serde_json::from_str::<WorkerSpec>(r#"{"url": "https://10.0.0.7"}"#).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerSpec {
    /// Where it listens, without `/v1`.
    pub url: WorkerUrl,
    /// What to call it in logs, labels and admin calls; its host and port if not given.
    #[serde(default)]
    pub name: Option<String>,
    /// Which pool it belongs to.
    #[serde(default = "default_pool")]
    pub pool: String,
    /// Where its KV events are published.
    #[serde(default)]
    pub events: Option<EventsSpec>,
    /// Sent as a bearer token with everything that goes to it.
    #[serde(default)]
    pub api_key: Option<Secret>,
    /// Where it tells that it is alive.
    #[serde(default = "default_health_path")]
    pub health_path: String,
    /// Where its metrics are; empty if it has none.
    #[serde(default = "default_metrics_path")]
    pub metrics_path: String,
}

fn default_pool() -> String {
    DEFAULT_POOL.to_owned()
}

fn default_health_path() -> String {
    "/health".to_owned()
}

fn default_metrics_path() -> String {
    "/metrics".to_owned()
}

impl WorkerSpec {
    /// A worker of the default pool, with vLLM's paths and no KV events.
    pub fn new(url: WorkerUrl) -> Self {
        Self {
            url,
            name: None,
            pool: default_pool(),
            events: None,
            api_key: None,
            health_path: default_health_path(),
            metrics_path: default_metrics_path(),
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.url.authority())
    }

    /// The endpoints of its KV events, one per rank: events and, if there is one, replay.
    ///
    /// # Errors
    /// If an endpoint cannot be used.
    pub(crate) fn event_endpoints(&self) -> Result<Vec<(Endpoint, Option<Endpoint>)>, FleetError> {
        let Some(events) = &self.events else {
            return Ok(Vec::new());
        };
        let read = |text: &str| {
            let endpoint = text.replace(HOST, self.url.host());
            Endpoint::parse(&endpoint).ok_or(FleetError::Endpoint { endpoint })
        };
        let ranks_error = || FleetError::Ranks {
            ranks: events.ranks,
            limit: MAX_RANKS,
        };
        if events.ranks > MAX_RANKS {
            return Err(ranks_error());
        }
        let publisher = read(&events.endpoint)?;
        let replay = events.replay.as_deref().map(read).transpose()?;
        (0..events.ranks.max(1))
            .map(|rank| {
                let publisher = publisher.for_rank(rank).ok_or_else(ranks_error)?;
                let replay = match &replay {
                    Some(replay) => Some(replay.for_rank(rank).ok_or_else(ranks_error)?),
                    None => None,
                };
                Ok((publisher, replay))
            })
            .collect()
    }

    /// Its data-parallel ranks, each of which has a KV cache of its own; at least 1.
    pub fn ranks(&self) -> u16 {
        let ranks = self.events.as_ref().map_or(1, |events| events.ranks);
        u16::try_from(ranks).unwrap_or(u16::MAX).max(1)
    }

    /// Checks what can be checked without asking the worker.
    ///
    /// # Errors
    /// If its endpoints cannot be used.
    pub fn check(&self) -> Result<(), FleetError> {
        self.event_endpoints().map(drop)
    }
}

/// Where a worker publishes what its KV cache holds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsSpec {
    /// `tcp://host:port` of the first rank; the others follow on the next ports. `{host}` stands for the
    /// worker's host.
    pub endpoint: String,
    /// The same for replay. Without it, every message missed costs all exact knowledge of the worker.
    #[serde(default)]
    pub replay: Option<String>,
    /// Only messages whose topic begins like this.
    #[serde(default)]
    pub topic: String,
    /// Data-parallel ranks.
    #[serde(default = "one_rank")]
    pub ranks: u32,
}

fn one_rank() -> u32 {
    1
}

/// `http://host[:port][/prefix]`, checked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct WorkerUrl {
    uri: Uri,
    /// Without a slash at its end.
    prefix: String,
}

impl WorkerUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// If it is not plain HTTP with a host, or carries a query or credentials.
    pub fn parse(url: &str) -> Result<Self, FleetError> {
        let refuse = |why| FleetError::Url {
            url: url.to_owned(),
            why,
        };
        let uri: Uri = url
            .parse()
            .map_err(|_invalid| refuse("write http://host:port"))?;
        if uri.scheme_str() != Some("http") {
            return Err(refuse("only plain http:// is spoken to workers"));
        }
        let authority = uri
            .authority()
            .ok_or_else(|| refuse("the host is missing"))?;
        if uri.host().is_none_or(str::is_empty) {
            return Err(refuse("the host is missing"));
        }
        if authority.as_str().contains('@') {
            return Err(refuse("put credentials into api_key"));
        }
        if uri.query().is_some() {
            return Err(refuse("a query makes no sense here"));
        }
        let prefix = uri.path().trim_end_matches('/').to_owned();
        if prefix.ends_with("/v1") {
            return Err(refuse("leave /v1 out"));
        }
        Ok(Self { uri, prefix })
    }

    /// The address of a path below it.
    pub fn join(&self, path: &str) -> Option<Uri> {
        let slash = if path.starts_with('/') { "" } else { "/" };
        Uri::builder()
            .scheme("http")
            .authority(self.authority())
            .path_and_query(format!("{}{slash}{path}", self.prefix))
            .build()
            .ok()
    }

    /// Host and port as given.
    pub fn authority(&self) -> &str {
        self.uri
            .authority()
            .map_or("", |authority| authority.as_str())
    }

    /// The port, if one was given.
    pub fn port(&self) -> Option<u16> {
        self.uri.port_u16()
    }

    /// What stands between the authority and our paths, without a slash at its end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The host, IPv6 in brackets.
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }
}

impl TryFrom<String> for WorkerUrl {
    type Error = FleetError;

    fn try_from(url: String) -> Result<Self, FleetError> {
        Self::parse(&url)
    }
}

impl std::str::FromStr for WorkerUrl {
    type Err = FleetError;

    fn from_str(url: &str) -> Result<Self, FleetError> {
        Self::parse(url)
    }
}

impl fmt::Display for WorkerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.prefix)
    }
}

/// Text that never shows in logs.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_cannot_work_are_refused_with_a_reason() {
        for url in [
            "https://a:1",
            "a:8000",
            "http://",
            "http://user:word@a:1",
            "http://a:1/v1",
            "http://a:1/v1/",
            "http://a?x=1",
            "",
        ] {
            assert!(WorkerUrl::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn paths_are_joined_below_a_prefix() {
        let joined = |url, path| {
            WorkerUrl::parse(url)
                .unwrap()
                .join(path)
                .unwrap()
                .to_string()
        };
        assert_eq!(joined("http://a:1", "/metrics"), "http://a:1/metrics");
        assert_eq!(joined("http://a:1/", "metrics"), "http://a:1/metrics");
        assert_eq!(
            joined("http://[::1]:1/m/", "/x?y=z"),
            "http://[::1]:1/m/x?y=z"
        );
    }

    #[test]
    fn a_key_does_not_show() {
        let mut spec = WorkerSpec::new(WorkerUrl::parse("http://a:1").unwrap());
        spec.api_key = Some(Secret::new("hunter2"));
        assert!(!format!("{spec:?}").contains("hunter2"));
    }

    #[test]
    fn every_rank_has_its_endpoints() {
        let mut spec = WorkerSpec::new(WorkerUrl::parse("http://[::1]:8000").unwrap());
        spec.events = Some(EventsSpec {
            endpoint: "tcp://{host}:5557".into(),
            replay: Some("tcp://{host}:6557".into()),
            topic: String::new(),
            ranks: 2,
        });
        let endpoints = spec.event_endpoints().unwrap();
        let shown: Vec<_> = endpoints
            .iter()
            .map(|(events, replay)| (events.to_string(), replay.as_ref().unwrap().to_string()))
            .collect();
        assert_eq!(
            shown,
            [
                ("tcp://::1:5557".to_owned(), "tcp://::1:6557".to_owned()),
                ("tcp://::1:5558".to_owned(), "tcp://::1:6558".to_owned()),
            ]
        );
        if let Some(events) = &mut spec.events {
            events.ranks = MAX_RANKS + 1;
        }
        assert!(matches!(spec.check(), Err(FleetError::Ranks { .. })));
    }
}
