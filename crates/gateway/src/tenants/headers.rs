//! What is left to a tenant, as OpenAI's clients are told it.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use protocol::headers::{
    RATE_LIMIT_REQUESTS, RATE_LIMIT_TOKENS, RATE_REMAINING_REQUESTS, RATE_REMAINING_TOKENS,
    RATE_RESET_REQUESTS, RATE_RESET_TOKENS,
};

use super::bucket::Allowance;
use super::meter::Allowances;

/// Adds the headers of the limits that there are.
pub(crate) fn tell_allowances(left: &Allowances, headers: &mut HeaderMap) {
    let mut tell = |left: Option<Allowance>, names: [&'static str; 3]| {
        let Some(left) = left else {
            return;
        };
        let [limit, remaining, reset] = names.map(HeaderName::from_static);
        headers.insert(limit, HeaderValue::from(left.limit));
        headers.insert(remaining, HeaderValue::from(left.remaining));
        if let Ok(value) = HeaderValue::from_str(&in_units(left.reset)) {
            headers.insert(reset, value);
        }
    };
    tell(
        left.requests,
        [
            RATE_LIMIT_REQUESTS,
            RATE_REMAINING_REQUESTS,
            RATE_RESET_REQUESTS,
        ],
    );
    tell(
        left.tokens,
        [RATE_LIMIT_TOKENS, RATE_REMAINING_TOKENS, RATE_RESET_TOKENS],
    );
}

/// `20ms`, `1.5s`, `6m0s`.
fn in_units(time: Duration) -> String {
    let milliseconds = time.as_millis();
    let (minutes, rest) = (milliseconds / 60_000, milliseconds % 60_000);
    match (minutes, rest) {
        (0, 0..1_000) => format!("{rest}ms"),
        (0, _) => format!("{}s", rest as f64 / 1e3),
        _ => format!("{minutes}m{}s", rest / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_openais_shape() {
        for (milliseconds, text) in [(0, "0ms"), (20, "20ms"), (1_500, "1.5s"), (360_400, "6m0s")] {
            assert_eq!(in_units(Duration::from_millis(milliseconds)), text);
        }
    }

    #[test]
    fn only_limits_that_exist_are_told() {
        let mut headers = HeaderMap::new();
        let tokens = Some(Allowance {
            limit: 100,
            remaining: 40,
            reset: Duration::from_secs(36),
        });
        tell_allowances(
            &Allowances {
                requests: None,
                tokens,
            },
            &mut headers,
        );
        assert_eq!(headers.len(), 3);
        assert_eq!(headers["x-ratelimit-remaining-tokens"], "40");
        assert_eq!(headers["x-ratelimit-reset-tokens"], "36s");
    }
}
