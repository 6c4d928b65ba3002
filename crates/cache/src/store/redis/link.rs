//! A connection to whatever an address names: one server, a cluster, or the master that sentinels know.

use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError, RedisResult};

use super::PUT_BUDGET;
use super::address::{Address, ask_sentinels};

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
    match address {
        Address::Server(url) => server(Client::open(url.as_str())?).await,
        Address::Sentinel {
            nodes,
            service,
            master,
        } => server(ask_sentinels(nodes, service, master).await?).await,
        Address::Cluster(nodes) => {
            let cluster = ClusterClient::builder(nodes.iter().map(String::as_str))
                .connection_timeout(CONNECT_BUDGET)
                .response_timeout(PUT_BUDGET)
                .build()?;
            let link = Link(Kind::Cluster(cluster.get_async_connection().await?));
            // Any node passes on what is published.
            Ok((link, any_node(nodes).await?))
        }
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

async fn any_node(nodes: &[String]) -> RedisResult<Client> {
    let mut last: Option<RedisError> = None;
    for node in nodes {
        let client = Client::open(node.as_str())?;
        match client.get_multiplexed_async_connection().await {
            Ok(_) => return Ok(client),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::Error::other("no node answers").into()))
}
