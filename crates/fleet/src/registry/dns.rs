//! Workers from a DNS name: one per address it resolves to.
//!
//! An answer may be partial (many servers hand out a changing handful of a long list) and a lookup may
//! fail. So an address leaves only after it was missing from several answers in a row, and a failed or
//! empty answer changes nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::{Instant, sleep, timeout};

use super::{MAX_WORKERS, Registry, Source};
use crate::backoff::{self, Backoff};
use crate::error::FleetError;
use crate::spec::{WorkerSpec, WorkerUrl};

/// Answers in a row from which an address must be missing before it leaves.
const MISSING_TO_LEAVE: u32 = 3;

/// How long a lookup may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest pause between lookups that fail.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A name that stands for workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsSource {
    /// The worker that every address becomes; its host is the name to resolve. `{host}` in its KV event
    /// endpoints stands for the address.
    pub template: WorkerSpec,
    /// How often to look.
    pub every: Duration,
}

/// The addresses of a name, with the answers in a row they were missing from.
#[derive(Debug, Default)]
struct Addresses(BTreeMap<IpAddr, u32>);

impl Addresses {
    /// Takes in an answer and gives the addresses that count.
    fn answered(&mut self, answer: impl IntoIterator<Item = IpAddr>) -> Vec<IpAddr> {
        let mut next = BTreeMap::new();
        for address in answer.into_iter().take(MAX_WORKERS) {
            next.insert(address, 0);
        }
        if !next.is_empty() {
            for (address, missing) in &self.0 {
                if missing + 1 < MISSING_TO_LEAVE {
                    next.entry(*address).or_insert(missing + 1);
                }
            }
            self.0 = next;
        }
        self.0.keys().copied().collect()
    }
}

impl DnsSource {
    /// The workers that the name stands for now.
    ///
    /// # Errors
    /// If it cannot be looked up, or its workers cannot be used.
    pub async fn resolve(&self) -> Result<Vec<WorkerSpec>, FleetError> {
        let name = self.template.url.host();
        let found = look_up(name, self.port()).await;
        let found = found.map_err(|why| FleetError::Dns {
            name: name.to_owned(),
            why,
        })?;
        let addresses = Addresses::default().answered(found);
        addresses
            .into_iter()
            .map(|address| self.worker_at(address))
            .collect()
    }

    /// The worker at an address.
    fn worker_at(&self, address: IpAddr) -> Result<WorkerSpec, FleetError> {
        let host = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let port = self.port();
        let url = format!("http://{host}:{port}{}", self.template.url.prefix());
        Ok(WorkerSpec {
            url: WorkerUrl::parse(&url)?,
            name: None,
            ..self.template.clone()
        })
    }

    fn port(&self) -> u16 {
        const HTTP: u16 = 80;
        self.template.url.port().unwrap_or(HTTP)
    }
}

/// Keeps the registry in step with a name for as long as it is polled.
pub(crate) async fn follow_dns(dns: DnsSource, registry: Arc<Registry>) {
    let name = dns.template.url.host().to_owned();
    let source = Source::Dns(dns.template.url.authority().to_owned());
    let pause = Backoff {
        first: dns.every,
        longest: LONGEST_PAUSE,
    };
    let mut addresses = Addresses::default();
    let mut failures = 0;
    loop {
        match look_up(&name, dns.port()).await {
            Ok(answer) => {
                failures = 0;
                let workers: Result<Vec<_>, _> = addresses
                    .answered(answer)
                    .into_iter()
                    .map(|address| dns.worker_at(address))
                    .collect();
                let now = Instant::now().into_std();
                let outcome = workers.and_then(|workers| registry.assign(&source, workers, now));
                if let Err(error) = outcome {
                    tracing::error!(%name, %error, "the workers of a dns name are refused");
                }
            }
            Err(why) => {
                failures += 1;
                let error = FleetError::Dns {
                    name: name.clone(),
                    why,
                };
                tracing::warn!(%error, failures, "dns lookup failed");
            }
        }
        sleep(pause.delay(failures, backoff::chance())).await;
    }
}

async fn look_up(name: &str, port: u16) -> Result<Vec<IpAddr>, String> {
    let host = name.trim_start_matches('[').trim_end_matches(']');
    let found = timeout(LOOKUP_TIMEOUT, lookup_host((host, port)))
        .await
        .map_err(|_elapsed| "no answer in time".to_owned())?
        .map_err(|error| error.to_string())?;
    let found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    if found.is_empty() {
        return Err("the answer is empty".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn a_partial_answer_takes_nobody_out() {
        let mut addresses = Addresses::default();
        assert_eq!(addresses.answered([ip(1), ip(2)]), [ip(1), ip(2)]);
        assert_eq!(addresses.answered([ip(2)]), [ip(1), ip(2)]);
        assert_eq!(addresses.answered([ip(2), ip(3)]), [ip(1), ip(2), ip(3)]);
        assert_eq!(addresses.answered([ip(2)]), [ip(2), ip(3)]);
    }

    #[test]
    fn an_empty_answer_changes_nothing() {
        let mut addresses = Addresses::default();
        addresses.answered([ip(1)]);
        for _ in 0..10 {
            assert_eq!(addresses.answered([]), [ip(1)]);
        }
    }

    #[test]
    fn every_address_becomes_a_worker_like_the_template() {
        let mut template =
            WorkerSpec::new(WorkerUrl::parse("http://workers.example:8000/m").unwrap());
        template.name = Some("ignored".into());
        template.pool = "draft".into();
        let dns = DnsSource {
            template,
            every: Duration::from_secs(1),
        };
        let worker = dns.worker_at(ip(7)).unwrap();
        assert_eq!(worker.url.to_string(), "http://10.0.0.7:8000/m");
        assert_eq!(worker.name(), "10.0.0.7:8000");
        assert_eq!(worker.pool, "draft");
        let worker = dns.worker_at("::1".parse().unwrap()).unwrap();
        assert_eq!(worker.url.to_string(), "http://[::1]:8000/m");
    }
}
