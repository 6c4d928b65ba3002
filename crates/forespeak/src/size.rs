//! Amounts of memory as people write them: `512MiB`, `2GiB`, `1.5G`, `4000000`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteSize(pub(crate) u64);

const UNITS: [(&str, u64); 4] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an amount of memory; write it like 512MiB or 2GiB")]
pub(crate) struct NotASize(String);

impl FromStr for ByteSize {
    type Err = NotASize;

    /// `K`, `KB` and `KiB` all mean 1024 bytes: nobody who sizes a cache means 1000.
    fn from_str(text: &str) -> Result<Self, NotASize> {
        let refuse = || NotASize(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let number: f64 = number.parse().map_err(|_| refuse())?;
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1_u64 << 40,
            _ => return Err(refuse()),
        };
        let bytes = number * factor as f64;
        // Above 2^53 a float no longer counts bytes, and no machine has that much.
        if !(1.0..=(1_u64 << 53) as f64).contains(&bytes) {
            return Err(refuse());
        }
        Ok(Self(bytes as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().rev().find(|(_, factor)| self.0 >= *factor) {
            Some((unit, factor)) => write!(out, "{:.1} {unit}", self.0 as f64 / *factor as f64),
            None => write!(out, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("1k", 1024),
            ("512MiB", 512 << 20),
            ("512 mb", 512 << 20),
            ("1.5G", 3 << 29),
            ("2GiB", 2 << 30),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "GiB", "2 potatoes", "-1G", "0", "1e9", "99999999TiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_fitting_unit() {
        assert_eq!(ByteSize(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(ByteSize(1 << 20).to_string(), "1.0 MiB");
        assert_eq!(ByteSize(12).to_string(), "12 bytes");
    }
}
