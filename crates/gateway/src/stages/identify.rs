//! Nobody without a key gets further, and no body is read before.

use http::{HeaderMap, header};
use protocol::{ApiError, ErrorKind};

use super::receive::Received;
use crate::gateway::Gateway;
use crate::keys::ApiKeys;

/// A request from someone who may ask.
pub(crate) struct Identified(pub(crate) Received);

pub(crate) fn identify(gateway: &Gateway, received: Received) -> Result<Identified, ApiError> {
    require_key(&gateway.keys, &received.headers)?;
    Ok(Identified(received))
}

/// The check on its own, for routes that do not generate.
pub(crate) fn require_key(keys: &ApiKeys, headers: &HeaderMap) -> Result<(), ApiError> {
    let key = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(bearer);
    if keys.allow(key) {
        return Ok(());
    }
    let message = match key {
        None => "no API key was sent; send \"authorization: Bearer <key>\"",
        Some(_) => "the API key is not known here",
    };
    Err(ApiError::new(ErrorKind::Authentication, message).with_code("invalid_api_key"))
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(key.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn only_a_known_bearer_key_passes() {
        let keys = ApiKeys::only(["secret"]);
        let check = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            require_key(&keys, &headers).is_ok()
        };
        assert!(check("Bearer secret") && check("bearer secret"));
        assert!(!check("Bearer wrong") && !check("Basic secret") && !check("secret"));
        assert!(require_key(&keys, &HeaderMap::new()).is_err());
        assert!(require_key(&ApiKeys::open(), &HeaderMap::new()).is_ok());
    }
}
