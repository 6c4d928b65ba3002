//! The pair of models inside the binary.

/// The target's name, for clients.
pub(crate) const NAME: &str = "forespeak-target";

/// The draft's name, for errors.
pub(crate) const DRAFT_NAME: &str = "forespeak-draft";

/// Their GGUF files.
pub(crate) struct Pair {
    pub(crate) target: &'static [u8],
    pub(crate) draft: &'static [u8],
}

/// The pair, if this binary was built with it.
pub(crate) fn pair() -> Option<Pair> {
    #[cfg(has_bundled_model)]
    {
        Some(Pair {
            target: include_bytes!("../../../models/forespeak-target.gguf"),
            draft: include_bytes!("../../../models/forespeak-draft.gguf"),
        })
    }
    #[cfg(not(has_bundled_model))]
    {
        None
    }
}
