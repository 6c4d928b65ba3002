//! One line of a page: `name{label="value",…} value [timestamp] [# exemplar]`.

use super::labels::{self, Labels};

/// One number, with its name and labels, borrowed from the page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample<'a> {
    /// As printed, counters with their `_total`.
    pub name: &'a str,
    /// What tells it apart from others of its name.
    pub labels: Labels<'a>,
    /// May be NaN or infinite.
    pub value: f64,
}

/// Why a line is no sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Malformed,
    TooManyLabels,
}

impl<'a> Sample<'a> {
    pub(super) fn parse(line: &'a str) -> Result<Self, Refused> {
        let name_ends = line
            .bytes()
            .position(|byte| matches!(byte, b'{' | b' ' | b'\t'))
            .ok_or(Refused::Malformed)?;
        let (name, rest) = line.split_at(name_ends);
        let (name, labels, rest) = match rest.strip_prefix('{') {
            Some(inside) => {
                let (labels, rest) = labels::split(inside)?;
                if name.is_empty() {
                    let (name, labels) = labels.split_quoted_name().ok_or(Refused::Malformed)?;
                    (name, labels, rest)
                } else {
                    (name, labels, rest)
                }
            }
            None => (name, Labels::default(), rest),
        };
        if name.is_empty() {
            return Err(Refused::Malformed);
        }
        let value = rest
            .split_ascii_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or(Refused::Malformed)?;
        Ok(Self {
            name,
            labels,
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_for_infinity_and_nan_are_read() {
        assert_eq!(Sample::parse("a +Inf").unwrap().value, f64::INFINITY);
        assert_eq!(Sample::parse("a -Inf").unwrap().value, f64::NEG_INFINITY);
        assert!(Sample::parse("a NaN").unwrap().value.is_nan());
    }

    #[test]
    fn a_name_may_stand_quoted_among_the_labels() {
        let sample = Sample::parse(r#"{"my.metric",a="b"} 1"#).unwrap();
        assert_eq!(sample.name, "my.metric");
        assert_eq!(sample.labels.get("a").as_deref(), Some("b"));
        assert_eq!(
            Sample::parse(r#"{"my.metric"} 1"#).unwrap().name,
            "my.metric"
        );
    }

    #[test]
    fn spaces_around_labels_are_allowed() {
        let sample = Sample::parse(r#"a { b = "c" , d = "e" , }  2"#);
        // A space ends the name, so the braces are then no labels.
        assert_eq!(sample, Err(Refused::Malformed));
        let sample = Sample::parse(r#"a{ b = "c" , d = "e" , }  2"#).unwrap();
        assert_eq!(sample.labels.get("d").as_deref(), Some("e"));
        assert_eq!(sample.value, 2.0);
    }

    #[test]
    fn what_is_not_a_sample_is_refused() {
        for line in [
            "a",
            "a{",
            "a{b}",
            "a{b=c} 1",
            "a{b=\"c\"",
            "a x",
            "{} 1",
            "a{,} 1",
        ] {
            assert_eq!(Sample::parse(line), Err(Refused::Malformed), "{line}");
        }
    }
}
