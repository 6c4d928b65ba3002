//! The fields of a JSON body, each read on its own, so that an error can name its field.
//!
//! Fields nobody asks for are never turned into values: a body cannot make us hold much more than its
//! own size. Nesting is bounded by `serde_json`'s recursion limit.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::{ApiError, ErrorKind};

pub(crate) struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(body) {
            Ok(fields) => Ok(Self(fields)),
            Err(error) if error.is_data() => Err(ApiError::new(
                ErrorKind::InvalidRequest,
                "the body must be a JSON object",
            )),
            Err(error) => Err(ApiError::new(
                ErrorKind::InvalidRequest,
                format!("the body is not valid JSON: {error}"),
            )),
        }
    }

    /// The field, or `None` when it is absent or `null`.
    pub(crate) fn optional<T: DeserializeOwned>(
        &self,
        name: &'static str,
    ) -> Result<Option<T>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(raw) => serde_json::from_str(raw.get()).map_err(|error| {
                ApiError::invalid(name, format!("{name}: {}", without_position(&error)))
            }),
        }
    }

    /// The field, or what stands for it when it is absent or `null`.
    pub(crate) fn or<T: DeserializeOwned>(
        &self,
        name: &'static str,
        default: T,
    ) -> Result<T, ApiError> {
        Ok(self.optional(name)?.unwrap_or(default))
    }

    pub(crate) fn required<T: DeserializeOwned>(&self, name: &'static str) -> Result<T, ApiError> {
        self.optional(name)?
            .ok_or_else(|| ApiError::invalid(name, format!("{name} is missing")))
    }

    /// The field as it was written, or `None` when it is absent or `null`.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        self.get(name)
            .map(|raw| raw.get())
            .filter(|text| *text != "null")
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        #[cfg(test)]
        ASKED.with_borrow_mut(|asked| asked.insert(name.to_owned()));
        self.0.get(name).copied()
    }
}

#[cfg(test)]
thread_local! {
    static ASKED: std::cell::RefCell<std::collections::BTreeSet<String>> = Default::default();
}

/// The names of all fields that `read` asks for.
#[cfg(test)]
pub(crate) fn names_asked_for(read: impl FnOnce()) -> std::collections::BTreeSet<String> {
    ASKED.take();
    read();
    ASKED.take()
}

/// Positions count from the start of the field, which would mislead.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_json_is_refused_with_its_position() {
        let error = Fields::parse(b"{\"a\": 1,\n \"b\": }").err().unwrap();
        assert!(error.message().contains("line 2 column 7"), "{error}");
        assert_eq!(error.param(), None);
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named() {
        let fields = Fields::parse(br#"{"n": "two"}"#).ok().unwrap();
        let error = fields.optional::<usize>("n").unwrap_err();
        assert_eq!(error.param(), Some("n"));
        assert_eq!(
            error.message(),
            r#"n: invalid type: string "two", expected usize"#
        );
    }

    #[test]
    fn anything_but_an_object_is_refused() {
        for body in ["[]", "1", "\"x\"", "null"] {
            let error = Fields::parse(body.as_bytes()).err().unwrap();
            assert!(error.message().contains("object"), "{error}");
        }
    }

    #[test]
    fn null_is_the_same_as_absent() {
        let fields = Fields::parse(br#"{"n": null}"#).ok().unwrap();
        assert_eq!(fields.or("n", 3).unwrap(), 3);
        assert!(fields.raw("n").is_none());
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = format!("{{\"n\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let fields = Fields::parse(deep.as_bytes()).ok().unwrap();
        assert!(fields.optional::<serde_json::Value>("n").is_err());
    }
}
