//! The model inside the binary.

/// Its name, for clients.
pub(crate) const NAME: &str = "forespeak-target";

/// Its GGUF file, if this binary was built with it.
pub(crate) fn gguf() -> Option<&'static [u8]> {
    #[cfg(has_bundled_model)]
    {
        Some(include_bytes!("../../../models/forespeak-target.gguf"))
    }
    #[cfg(not(has_bundled_model))]
    {
        None
    }
}
