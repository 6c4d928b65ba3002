//! The accept loop: HTTP/1.1 only, as vLLM's server is.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::routes::Routes;

/// Connections that may wait to be accepted: a bench opens thousands at once.
const BACKLOG: i32 = 4096;

/// A listener on the loopback interface.
pub(super) fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // So that a mock that was killed can come back where it was.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves until it is dropped, and with it every connection.
pub(super) async fn serve(listener: TcpListener, routes: Arc<Routes>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let _ = stream.set_nodelay(true);
                let routes = Arc::clone(&routes);
                connections.spawn(async move {
                    let service = service_fn(|request| routes.answer(request));
                    // A client that leaves, or a cut that was asked for, is no news.
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
