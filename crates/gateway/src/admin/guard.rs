//! Who may be an operator.

use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, Request};
use protocol::{ApiError, ErrorKind};

use super::Desk;
use crate::http_io::refuse;
use crate::stages::bearer;
use crate::tenants::KeyHash;

/// What browsers add to what pages ask for.
const FROM_A_PAGE: [&str; 2] = ["sec-fetch-site", "origin"];

pub(super) async fn guard(
    State(desk): State<Desk>,
    request: Request<Body>,
    next: Next,
) -> Response {
    match require_operator(desk.key.as_ref(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => refuse(&error),
    }
}

fn require_operator(key: Option<&KeyHash>, headers: &HeaderMap) -> Result<(), ApiError> {
    let message = match key {
        Some(key) => match bearer(headers) {
            Some(given) if KeyHash::of(given) == *key => return Ok(()),
            Some(_) => "the admin key is not known here",
            None => "no admin key was sent; send \"authorization: Bearer <key>\"",
        },
        None if FROM_A_PAGE.iter().any(|name| headers.contains_key(*name)) => {
            "browsers are let in with a key only; set [admin] key"
        }
        None => return Ok(()),
    };
    Err(ApiError::new(ErrorKind::Authentication, message).with_code("invalid_api_key"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn with_a_key_only_the_key_opens() {
        let key = KeyHash::of("k");
        let opens = |headers: HeaderMap| require_operator(Some(&key), &headers).is_ok();
        assert!(opens(headers("authorization", "Bearer k")));
        assert!(!opens(headers("authorization", "Bearer l")));
        assert!(!opens(HeaderMap::new()));
    }

    #[test]
    fn without_a_key_no_page_gets_in() {
        let opens = |headers: HeaderMap| require_operator(None, &headers).is_ok();
        assert!(opens(HeaderMap::new()));
        assert!(!opens(headers("origin", "http://evil.example")));
        assert!(!opens(headers("sec-fetch-site", "same-origin")));
    }
}
