//! Whether an answer comes in pieces, and what rides along.

use serde::Deserialize;

use crate::error::ApiError;
use crate::fields::Fields;

/// How a streamed answer reports its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct StreamOptions {
    /// One last chunk with the usage.
    pub include_usage: bool,
    /// The usage so far in every chunk.
    pub continuous_usage_stats: bool,
}

impl StreamOptions {
    /// `None` when the answer is wanted in one piece.
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Option<Self>, ApiError> {
        let options: Option<Self> = fields.optional("stream_options")?;
        match (fields.or("stream", false)?, options) {
            (true, options) => Ok(Some(options.unwrap_or_default())),
            (false, None) => Ok(None),
            (false, Some(_)) => Err(ApiError::invalid(
                "stream_options",
                "stream_options needs stream to be true",
            )),
        }
    }
}
