//! A bounded GET.

use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

use crate::spec::Secret;

/// How long an idle connection is kept: a few turns of a loop that backs off.
const KEEP_IDLE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// Nobody is there.
    #[error("no connection: {0}")]
    Unreachable(hyper_util::client::legacy::Error),
    /// Somebody was there.
    #[error("the connection broke: {0}")]
    Broken(Box<dyn std::error::Error + Send + Sync>),
    /// Nothing came.
    #[error("no answer in time")]
    TimedOut,
    /// More came than is read.
    #[error("the answer is over {0} bytes")]
    TooLarge(usize),
    /// The path is no path.
    #[error("the address cannot be built")]
    Address,
}

/// An answer.
pub struct Page {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// All of the body.
    pub body: Bytes,
}

/// Gets pages from one worker.
pub struct Getter {
    client: Client<HttpConnector, Empty<Bytes>>,
    bearer: Option<Secret>,
}

impl Getter {
    /// `keep` says whether a connection serves more than one request.
    pub fn new(connect_timeout: Duration, keep: bool, bearer: Option<Secret>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(connect_timeout));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEP_IDLE)
            .pool_max_idle_per_host(usize::from(keep))
            .retry_canceled_requests(keep)
            .build(connector);
        Self { client, bearer }
    }

    /// One GET, its body included. Dropping the future closes the connection.
    ///
    /// # Errors
    /// If there is no answer within time and size; any status is an answer.
    pub async fn get(
        &self,
        uri: Uri,
        within: Duration,
        max_bytes: usize,
    ) -> Result<Page, GetError> {
        timeout(within, self.exchange(uri, max_bytes))
            .await
            .map_err(|_elapsed| GetError::TimedOut)?
    }

    async fn exchange(&self, uri: Uri, max_bytes: usize) -> Result<Page, GetError> {
        let mut request = Request::builder().method(Method::GET).uri(uri);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, format!("Bearer {}", bearer.reveal()));
        }
        let request = request
            .body(Empty::new())
            .map_err(|_invalid| GetError::Address)?;
        let response = self.client.request(request).await.map_err(|error| {
            if error.is_connect() {
                GetError::Unreachable(error)
            } else {
                GetError::Broken(error.into())
            }
        })?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, max_bytes)
            .collect()
            .await
            .map_err(|error| {
                if error.is::<LengthLimitError>() {
                    GetError::TooLarge(max_bytes)
                } else {
                    GetError::Broken(error)
                }
            })?;
        Ok(Page {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.to_bytes(),
        })
    }
}
