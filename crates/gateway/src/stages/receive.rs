//! A request gets its name.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, Request};
use protocol::{headers, limits};

use crate::route::Route;

/// A request as it came in; its body is not read yet.
pub(crate) struct Received {
    pub(crate) id: Arc<str>,
    /// Then it need not be the only one of its name.
    pub(crate) is_named_by_client: bool,
    pub(crate) route: Route,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

pub(crate) fn receive(route: Route, request: Request<Body>) -> Received {
    let (parts, body) = request.into_parts();
    let prefix = route.id_prefix();
    let named = client_id(&parts.headers);
    let id = match named {
        Some(id) => format!("{prefix}{id}"),
        None => format!("{prefix}{}", uuid::Uuid::new_v4().simple()),
    };
    let is_named_by_client = named.is_some();
    Received {
        id: id.into(),
        is_named_by_client,
        route,
        headers: parts.headers,
        body,
    }
}

/// The client's own name for its request, if it can be shown in logs and headers as it is.
fn client_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(headers::REQUEST_ID)?.to_str().ok()?;
    let fits = (1..=limits::MAX_REQUEST_ID_BYTES).contains(&id.len());
    let plain = id.bytes().all(|byte| byte.is_ascii_graphic());
    (fits && plain).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received_id(header: &str) -> String {
        let request = Request::post("/")
            .header(headers::REQUEST_ID, header)
            .body(Body::empty())
            .unwrap();
        receive(Route::Chat, request).id.to_string()
    }

    #[test]
    fn the_clients_name_is_kept_if_it_is_plain() {
        assert_eq!(received_id("abc-1"), "chatcmpl-abc-1");
        assert!(!received_id("a b").contains("a b"));
        let long = "x".repeat(limits::MAX_REQUEST_ID_BYTES + 1);
        assert!(!received_id(&long).contains(&long));
    }
}
