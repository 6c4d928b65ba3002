//! One connection, HTTP/1 or HTTP/2.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::seldom::Seldom;
use super::stop::StopSwitch;

/// After so much silence the kernel asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// A client that takes nothing of what was sent to it for so long is as good as gone: what its answer holds
/// at a worker is given back.
const TAKES_NOTHING: Duration = Duration::from_secs(120);

/// Bytes of headers: enough for long tokens, and the most that a connection holds before a request.
const HEADER_BYTES: usize = 64 << 10;

/// Concurrent requests on one HTTP/2 connection.
const HTTP2_STREAMS: u32 = 256;

pub(crate) struct Connection {
    stream: TcpStream,
    router: Router,
    header_timeout: Duration,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, router: Router, header_timeout: Duration) -> Self {
        Self {
            stream,
            router,
            header_timeout,
        }
    }

    /// Serves until the peer leaves, dawdles, or `stop` is pulled.
    pub(crate) async fn serve(self, stop: StopSwitch) {
        tune(&self.stream);
        let heard = Arc::new(AtomicBool::new(false));
        let service = HearingService {
            inner: TowerToHyperService::new(self.router),
            heard: Arc::clone(&heard),
        };
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .max_buf_size(HEADER_BYTES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE)
            .max_concurrent_streams(HTTP2_STREAMS);

        let mut connection = pin!(builder.serve_connection(TokioIo::new(self.stream), service));
        // hyper's own time-out starts only when it knows the protocol; a client that sends nothing, or
        // half a preface, is noticed by this one.
        let mut first_request = Seldom::new(tokio::time::sleep(self.header_timeout));
        let mut waiting_for_first = true;
        let mut draining = Seldom::new(stop.draining());
        let mut is_draining = false;
        let mut now = Seldom::new(stop.now());
        loop {
            tokio::select! {
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "a connection ended badly");
                    }
                    return;
                }
                () = &mut draining, if !is_draining => {
                    is_draining = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = &mut first_request, if waiting_for_first => {
                    waiting_for_first = false;
                    if !heard.load(Ordering::Relaxed) {
                        tracing::debug!("a client sent no request in time");
                        return;
                    }
                }
                () = &mut now => return,
            }
        }
    }
}

/// Failures here cost speed, not correctness.
fn tune(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let tuned = stream
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE)));
    #[cfg(target_os = "linux")]
    let tuned = tuned.and_then(|()| socket.set_tcp_user_timeout(Some(TAKES_NOTHING)));
    if let Err(error) = tuned {
        tracing::debug!(%error, "a socket could not be tuned");
    }
}

/// Remembers whether a request was ever heard on its connection.
struct HearingService {
    inner: TowerToHyperService<Router>,
    heard: Arc<AtomicBool>,
}

impl Service<Request<Incoming>> for HearingService {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.heard.store(true, Ordering::Relaxed);
        self.inner.call(request)
    }
}
