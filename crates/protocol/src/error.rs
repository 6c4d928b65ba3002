//! Refusals in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// What kind of refusal: decides status and `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request must be changed.
    InvalidRequest,
    /// No key, or a wrong one.
    Authentication,
    /// No such model or route.
    NotFound,
    /// The route exists, but not for this method.
    MethodNotAllowed,
    /// The client took too long to send its request.
    Timeout,
    /// The body is over the limit.
    TooLarge,
    /// The body is not JSON by its own declaration.
    UnsupportedMediaType,
    /// Too much is going on; the same request may succeed later.
    Overloaded,
    /// Our own failure.
    Internal,
    /// A worker failed.
    BadGateway,
    /// Shutting down or not up yet; another server may answer.
    Unavailable,
    /// A worker took too long.
    GatewayTimeout,
}

impl ErrorKind {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Authentication => 401,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Timeout => 408,
            Self::TooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Overloaded => 429,
            Self::Internal => 500,
            Self::BadGateway => 502,
            Self::Unavailable => 503,
            Self::GatewayTimeout => 504,
        }
    }

    fn type_name(self) -> &'static str {
        match self {
            Self::InvalidRequest
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::Timeout
            | Self::TooLarge
            | Self::UnsupportedMediaType => "invalid_request_error",
            Self::Authentication => "authentication_error",
            Self::Overloaded => "rate_limit_error",
            Self::Internal | Self::BadGateway | Self::GatewayTimeout => "server_error",
            Self::Unavailable => "service_unavailable_error",
        }
    }
}

/// A refusal. It serialises into OpenAI's error body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    kind: ErrorKind,
    message: String,
    param: Option<Cow<'static, str>>,
    code: Option<&'static str>,
    retry_after: Option<Duration>,
}

impl ApiError {
    /// A refusal that says what to change.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            param: None,
            code: None,
            retry_after: None,
        }
    }

    /// A 400 about one field.
    pub fn invalid(param: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, message).about(param)
    }

    /// Names the field at fault.
    #[must_use]
    pub fn about(mut self, param: impl Into<Cow<'static, str>>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Adds a code that programs can compare.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// Says when the same request may succeed.
    #[must_use]
    pub fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// When to try again, in whole seconds: what was said, or one, about the time in which a queue moves. `None`
    /// where the request must be changed.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        let unsaid = || match self.kind {
            ErrorKind::Overloaded | ErrorKind::Unavailable => Some(1),
            _ => None,
        };
        let said = self.retry_after.map(|time| {
            let begun = u64::from(time.subsec_nanos() > 0);
            time.as_secs().saturating_add(begun).max(1)
        });
        said.or_else(unsaid)
    }

    /// What kind of refusal.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The text for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The field at fault.
    pub fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// The body as bytes.
    pub fn to_json(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(128 + self.message.len());
        crate::json::write(&mut body, self);
        body
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.param {
            Some(param) => write!(out, "{}: {param}: {}", self.kind.status(), self.message),
            None => write!(out, "{}: {}", self.kind.status(), self.message),
        }
    }
}

impl std::error::Error for ApiError {}

impl Serialize for ApiError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            message: &'a str,
            r#type: &'a str,
            param: Option<&'a str>,
            code: Option<&'a str>,
        }
        let mut outer = serializer.serialize_struct("Error", 1)?;
        outer.serialize_field(
            "error",
            &Body {
                message: &self.message,
                r#type: self.kind.type_name(),
                param: self.param.as_deref(),
                code: self.code,
            },
        )?;
        outer.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_retry_is_rounded_up() {
        let error = |kind| ApiError::new(kind, "busy");
        let overloaded = error(ErrorKind::Overloaded);
        assert_eq!(overloaded.retry_after_seconds(), Some(1));
        let later = overloaded.retry_after(Duration::from_millis(2_100));
        assert_eq!(later.retry_after_seconds(), Some(3));
        let at_once = later.retry_after(Duration::ZERO);
        assert_eq!(at_once.retry_after_seconds(), Some(1));
        assert_eq!(error(ErrorKind::NotFound).retry_after_seconds(), None);
    }

    #[test]
    fn the_body_has_openai_shape() {
        let error = ApiError::invalid("n", "n must be at least 1").with_code("too_small");
        assert_eq!(
            String::from_utf8(error.to_json()).unwrap(),
            r#"{"error":{"message":"n must be at least 1","type":"invalid_request_error","param":"n","code":"too_small"}}"#
        );
    }
}
