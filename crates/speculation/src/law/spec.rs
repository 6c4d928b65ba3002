//! Laws by name, for flags and the admin API.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Fixed, Goodput, Law, Threshold};
use crate::acceptance::MAX_DEPTH;
use crate::error::ParseError;

/// A law and its parameter: `goodput`, `threshold`, `threshold:SECONDS` or `fixed:DEPTH`.
///
/// ```
/// use forespeak_speculation::LawSpec;
///
/// assert_eq!("fixed:4".parse(), Ok(LawSpec::Fixed(4)));
/// assert_eq!(LawSpec::default().to_string(), "goodput");
/// assert!("fixed:99".parse::<LawSpec>().unwrap_err().to_string().contains("from 0 to 16"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LawSpec {
    /// [`Goodput`].
    #[default]
    Goodput,
    /// [`Threshold`], with its interval.
    Threshold(Duration),
    /// [`Fixed`].
    Fixed(usize),
}

impl LawSpec {
    /// The law in its first state.
    pub(crate) fn build(self) -> Box<dyn Law> {
        match self {
            Self::Goodput => Box::new(Goodput::default()),
            Self::Threshold(interval) => Box::new(Threshold::new(interval)),
            Self::Fixed(depth) => Box::new(Fixed::new(depth)),
        }
    }
}

impl FromStr for LawSpec {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (name, parameter) = match text.split_once(':') {
            Some((name, parameter)) => (name, Some(parameter)),
            None => (text, None),
        };
        match (name, parameter) {
            ("goodput", None) => Ok(Self::Goodput),
            ("threshold", None) => Ok(Self::Threshold(Threshold::INTERVAL)),
            ("threshold", Some(text)) => text
                .parse()
                .ok()
                .filter(|seconds| (0.1..=3600.0).contains(seconds))
                .map(|seconds| Self::Threshold(Duration::from_secs_f64(seconds)))
                .ok_or_else(|| ParseError::Interval(text.to_owned())),
            ("fixed", Some(text)) => text
                .parse()
                .ok()
                .filter(|depth| *depth <= MAX_DEPTH)
                .map(Self::Fixed)
                .ok_or_else(|| ParseError::Depth {
                    text: text.to_owned(),
                    most: MAX_DEPTH,
                }),
            _ => Err(ParseError::Law(text.to_owned())),
        }
    }
}

impl fmt::Display for LawSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Goodput => f.write_str("goodput"),
            Self::Threshold(interval) if *interval == Threshold::INTERVAL => {
                f.write_str("threshold")
            }
            Self::Threshold(interval) => write!(f, "threshold:{}", interval.as_secs_f64()),
            Self::Fixed(depth) => write!(f, "fixed:{depth}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read_again() {
        for text in [
            "goodput",
            "threshold",
            "threshold:2.5",
            "fixed:0",
            "fixed:16",
        ] {
            assert_eq!(text.parse::<LawSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_right() {
        for text in [
            "",
            "fixed",
            "goodput:3",
            "fixed:17",
            "fixed:-1",
            "threshold:0",
            "threshold:NaN",
            "best",
        ] {
            let error = text.parse::<LawSpec>().unwrap_err().to_string();
            assert!(
                error.contains("use goodput") || error.contains("a number"),
                "{error}"
            );
        }
    }
}
