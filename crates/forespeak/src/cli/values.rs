//! How values of flags are read.

use std::time::Duration;

use crate::size::ByteSize;

pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

pub(super) fn size_or_nothing(text: &str) -> Result<ByteSize, String> {
    match text.trim() {
        "0" => Ok(ByteSize(0)),
        text => text.parse().map_err(|error| format!("{error}")),
    }
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .trim_end_matches('s')
        .parse()
        .map_err(|error| format!("{error}; write seconds, such as 30"))?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}
