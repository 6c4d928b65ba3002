//! What can be wrong with a configuration.

/// A law or drafter that was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No such law.
    #[error("unknown depth law {0:?}: use goodput, threshold, threshold:SECONDS or fixed:DEPTH")]
    Law(String),
    /// A depth that is no number or too large.
    #[error("fixed:{text} is not possible: the depth is a number from 0 to {most}")]
    Depth {
        /// What stood there.
        text: String,
        /// [`crate::MAX_DEPTH`].
        most: usize,
    },
    /// An interval that is no positive number.
    #[error("threshold:{0} is not possible: the interval is a number of seconds from 0.1 to 3600")]
    Interval(String),
    /// No such choice of drafters.
    #[error("unknown drafter {0:?}: use auto, model, ngram or off")]
    Drafters(String),
}
