//! A connection to whatever an address names: one server, a cluster, or the master that sentinels know.

use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError, RedisResult, TlsCertificates,
};

use super::PUT_BUDGET;
use super::address::{Address, Place, ask_sentinels};

/// The longest that one attempt to connect may take.
pub(super) const CONNECT_BUDGET: Duration = Duration::from_secs(2);

/// Commands that may wait for the connection.
const PIPELINE: usize = 1024;

/// A connection that stands. A handle: cloning it opens nothing.
#[derive(Clone)]
pub struct Link(Kind);

#[derive(Clone)]
enum Kind {
    Server(redis::aio::MultiplexedConnection),
    Cluster(redis::cluster_async::ClusterConnection),
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    /// If nobody is there, or it does not let us in.
    pub async fn connect(address: &Address) -> RedisResult<Self> {
        let (link, _) = open(address).await?;
        Ok(link)
    }

    /// Asks.
    ///
    /// # Errors
    /// If no answer came, or not the one that was asked for.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match &self.0 {
            Kind::Server(link) => command.query_async(&mut link.clone()).await,
            Kind::Cluster(link) => command.query_async(&mut link.clone()).await,
        }
    }
}

/// A connection for questions, and the client for one that listens.
pub(super) async fn open(address: &Address) -> RedisResult<(Link, Client)> {
    let certificates = address.certificates().map_err(std::io::Error::other)?;
    match &address.place {
        Place::Server(url) => server(client(url, certificates.as_ref())?).await,
        Place::Sentinel {
            nodes,
            service,
            master,
        } => server(ask_sentinels(nodes, service, master).await?).await,
        Place::Cluster(nodes) => {
            let mut cluster = ClusterClient::builder(nodes.iter().map(String::as_str))
                .connection_timeout(CONNECT_BUDGET)
                .response_timeout(PUT_BUDGET);
            if let Some(certificates) = &certificates {
                cluster = cluster.certs(certificates.clone());
            }
            let connection = cluster.build()?.get_async_connection().await?;
            let listener = any_node(nodes, certificates.as_ref()).await?;
            Ok((Link(Kind::Cluster(connection)), listener))
        }
    }
}

fn client(url: &str, certificates: Option<&TlsCertificates>) -> RedisResult<Client> {
    match certificates {
        Some(certificates) => Client::build_with_tls(url, certificates.clone()),
        None => Client::open(url),
    }
}

async fn server(client: Client) -> RedisResult<(Link, Client)> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_BUDGET))
        .set_response_timeout(Some(PUT_BUDGET))
        .set_pipeline_buffer_size(PIPELINE);
    let link = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    Ok((Link(Kind::Server(link)), client))
}

/// A node that answers: any of them passes on what is published.
async fn any_node(nodes: &[String], certificates: Option<&TlsCertificates>) -> RedisResult<Client> {
    let mut last: Option<RedisError> = None;
    for node in nodes {
        let client = client(node, certificates)?;
        match client.get_multiplexed_async_connection().await {
            Ok(_) => return Ok(client),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::Error::other("no node answers").into()))
}
