//! A refusal in words for the client.

use protocol::{ApiError, ErrorKind};
use routing::admission::{Refusal, RefusalCause};

/// A refusal in OpenAI's shape. Its status follows from the cause; [`Refusal::retry_after`] belongs into
/// the header of that name.
pub fn refusal_error(refusal: &Refusal) -> ApiError {
    let (kind, code, words) = match refusal.cause {
        RefusalCause::NoWorkers => (
            ErrorKind::Unavailable,
            "no_workers",
            "no worker of this model can take requests now",
        ),
        RefusalCause::TooLarge => (
            ErrorKind::InvalidRequest,
            "context_length_exceeded",
            "the prompt is larger than the KV cache of any worker of this model; shorten it",
        ),
        RefusalCause::Pressure => (
            ErrorKind::Unavailable,
            "overloaded",
            "the workers' caches are too full for a request of this priority",
        ),
        RefusalCause::TooLong => (
            ErrorKind::Unavailable,
            "overloaded",
            "there would be no room for this request in time",
        ),
        RefusalCause::QueueFull => (
            ErrorKind::Unavailable,
            "overloaded",
            "too many requests wait already",
        ),
        RefusalCause::TenantQueueFull => (
            ErrorKind::Overloaded,
            "rate_limit_exceeded",
            "too many of your requests wait already",
        ),
    };
    let words = match refusal.retry_after {
        Some(after) => format!("{words}; try again in {} s", after.as_secs()),
        None => words.to_owned(),
    };
    ApiError::new(kind, words).with_code(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_status_is_that_of_the_cause() {
        for cause in [
            RefusalCause::NoWorkers,
            RefusalCause::TooLarge,
            RefusalCause::Pressure,
            RefusalCause::TooLong,
            RefusalCause::QueueFull,
            RefusalCause::TenantQueueFull,
        ] {
            let retry_after = Some(Duration::from_secs(3));
            let error = refusal_error(&Refusal { cause, retry_after });
            assert_eq!(error.kind().status(), cause.status());
        }
    }
}
