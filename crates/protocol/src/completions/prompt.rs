//! Prompts in the four shapes that clients send: a text, token ids, and lists of either.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// To be tokenised.
    Text(String),
    /// Tokenised already.
    Tokens(Vec<u32>),
}

/// All prompts of a request. A flat list of integers is one prompt, not many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prompts(pub(crate) Vec<Prompt>);

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Prompts;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string, a list of token ids, or a list of either")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Prompts, E> {
                Ok(Prompts(vec![Prompt::Text(text.to_owned())]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prompts, A::Error> {
                let mut prompts = Vec::new();
                let mut ids = Vec::new();
                while let Some(element) = list.next_element()? {
                    match element {
                        Element::Id(id) => ids.push(id),
                        Element::Prompt(prompt) => prompts.push(prompt),
                    }
                }
                match (prompts.is_empty(), ids.is_empty()) {
                    (_, true) => Ok(Prompts(prompts)),
                    (true, false) => Ok(Prompts(vec![Prompt::Tokens(ids)])),
                    (false, false) => Err(de::Error::custom(
                        "a list of prompts must not contain bare token ids",
                    )),
                }
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

enum Element {
    Id(u32),
    Prompt(Prompt),
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Element;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string, a token id, or a list of token ids")
            }

            fn visit_u64<E: de::Error>(self, id: u64) -> Result<Element, E> {
                u32::try_from(id)
                    .map(Element::Id)
                    .map_err(|_| E::custom(format!("{id} is not a token id")))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Element, E> {
                Ok(Element::Prompt(Prompt::Text(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Element, A::Error> {
                let mut ids = Vec::new();
                while let Some(id) = list.next_element()? {
                    ids.push(id);
                }
                Ok(Element::Prompt(Prompt::Tokens(ids)))
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Vec<Prompt>, String> {
        serde_json::from_str::<Prompts>(json)
            .map(|prompts| prompts.0)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn all_four_shapes_are_read() {
        let text = |text: &str| Prompt::Text(text.to_owned());
        assert_eq!(read(r#""a""#).unwrap(), [text("a")]);
        assert_eq!(read(r#"["a", "b"]"#).unwrap(), [text("a"), text("b")]);
        assert_eq!(read("[1, 2]").unwrap(), [Prompt::Tokens(vec![1, 2])]);
        assert_eq!(
            read("[[1], [2, 3]]").unwrap(),
            [Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])]
        );
        assert_eq!(read("[]").unwrap(), []);
    }

    #[test]
    fn other_shapes_are_refused() {
        for json in [
            "3",
            "{}",
            "[1, \"a\"]",
            "[-1]",
            "[4294967296]",
            "[[[1]]]",
            "[1.5]",
            "[null]",
        ] {
            assert!(read(json).is_err(), "{json}");
        }
    }
}
