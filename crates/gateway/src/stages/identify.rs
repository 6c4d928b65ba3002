//! Nobody without a key gets further, and no body is read before.

use std::sync::Arc;

use http::{HeaderMap, header};
use protocol::{ApiError, ErrorKind};

use super::receive::Received;
use crate::gateway::Gateway;
use crate::tenants::{Tenant, Tenants, Unknown};

/// A request from someone who may ask.
pub(crate) struct Identified {
    pub(crate) request: Received,
    pub(crate) tenant: Arc<Tenant>,
}

pub(crate) fn identify(gateway: &Gateway, request: Received) -> Result<Identified, ApiError> {
    let tenant = require_tenant(&gateway.tenants(), &request.headers)?;
    Ok(Identified { request, tenant })
}

/// The check on its own, for routes that do not generate.
pub(crate) fn require_tenant(
    tenants: &Tenants,
    headers: &HeaderMap,
) -> Result<Arc<Tenant>, ApiError> {
    let message = match tenants.identify(bearer(headers)) {
        Ok(tenant) => return Ok(Arc::clone(tenant)),
        Err(Unknown::NoKey) => "no API key was sent; send \"authorization: Bearer <key>\"",
        Err(Unknown::Key) => "the API key is not known here",
    };
    Err(ApiError::new(ErrorKind::Authentication, message).with_code("invalid_api_key"))
}

/// The key of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(key.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::{KeyHash, SaltSecret};
    use http::HeaderValue;

    #[test]
    fn only_a_known_bearer_key_passes() {
        let secret = SaltSecret::random();
        let tenants = Tenants::with_keys(vec![KeyHash::of("secret")], &secret);
        let check = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            require_tenant(&tenants, &headers).is_ok()
        };
        assert!(check("Bearer secret") && check("bearer secret"));
        assert!(!check("Bearer wrong") && !check("Basic secret") && !check("secret"));
        assert!(require_tenant(&tenants, &HeaderMap::new()).is_err());
        let open = Tenants::open(&secret);
        assert!(require_tenant(&open, &HeaderMap::new()).is_ok());
    }
}
