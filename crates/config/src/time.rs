//! Times with their unit: `"500ms"`, `"30s"`, `"10m"`, `"1h"`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Units, largest first, with their milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The longest time that can be said: a year. More is a slip.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// A length of time, in whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

impl Time {
    /// From its text.
    ///
    /// ```
    /// # use forespeak_config::Time;
    /// assert_eq!(Time::parse("1.5s").unwrap().0.as_millis(), 1500);
    /// assert!(Time::parse("30").is_err());
    /// ```
    ///
    /// # Errors
    /// If it has no unit or is no number.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse =
            || format!("{text:?} is no time; write a number and ms, s, m or h, such as \"30s\"");
        let text = text.trim();
        let split = text
            .find(|c: char| c.is_ascii_alphabetic())
            .ok_or_else(refuse)?;
        let (number, unit) = text.split_at(split);
        let number: f64 = number.trim().parse().map_err(|_| refuse())?;
        let (_, milliseconds) = UNITS
            .into_iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(refuse)?;
        let total = (number * milliseconds as f64).round();
        if !(0.0..=LONGEST.as_millis() as f64).contains(&total) {
            return Err(format!(
                "{text:?} is out of range; write a time from 0ms to 8784h"
            ));
        }
        Ok(Self(Duration::from_millis(total as u64)))
    }
}

impl From<Duration> for Time {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl From<Time> for Duration {
    fn from(time: Time) -> Self {
        time.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_millis();
        let (unit, size) = UNITS
            .into_iter()
            .find(|(_, size)| milliseconds > 0 && milliseconds.is_multiple_of(u128::from(*size)))
            .unwrap_or(("ms", 1));
        write!(out, "{}{unit}", milliseconds / u128::from(size))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A number and its unit: ms, s, m or h",
            "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(ms|s|m|h)\s*$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_they_are_read() {
        for text in ["0ms", "1ms", "500ms", "1s", "90s", "10m", "24h"] {
            assert_eq!(Time::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Time::parse(" 0.5 s ").unwrap().to_string(), "500ms");
        assert_eq!(Time::parse("60s").unwrap().to_string(), "1m");
    }

    #[test]
    fn what_is_no_time_is_told() {
        for text in [
            "", "30", "s", "-1s", "1d", "1 s s", "nan s", "inf h", "1e99h", "1ns",
        ] {
            assert!(Time::parse(text).is_err(), "{text}");
        }
    }
}
