//! Where something stands in a file: `models[1].pool`, and on which line that is.

use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A way into the document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Path {
    /// At a section.
    pub(crate) fn at(key: &str) -> Self {
        Self::default().key(key)
    }

    pub(crate) fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.to_owned()))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// Without numbers: the name of a section, for people.
    pub(crate) fn section(&self) -> String {
        let keys = self.0.iter().filter_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Index(_) => None,
        });
        keys.collect::<Vec<_>>().join(".")
    }

    /// Where it stands, or the innermost of what is around it.
    pub(crate) fn span(&self, document: &Spanned<DeTable<'_>>) -> Range<usize> {
        let mut span = document.span();
        let mut table = Some(document.get_ref());
        let mut list: Option<&[Spanned<DeValue<'_>>]> = None;
        for step in &self.0 {
            let found = match step {
                Step::Key(key) => table
                    .and_then(|table| table.iter().find(|(name, _)| name.get_ref() == key))
                    .map(|(name, value)| (name.span(), value)),
                Step::Index(index) => list
                    .and_then(|list| list.get(*index))
                    .map(|value| (value.span(), value)),
            };
            let Some((at, value)) = found else {
                break;
            };
            span = at;
            table = value.get_ref().as_table();
            list = value.get_ref().as_array().map(|list| &**list);
        }
        span
    }
}

impl fmt::Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if place == 0 => out.write_str(key)?,
                Step::Key(key) => write!(out, ".{key}")?,
                Step::Index(index) => write!(out, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// The line of a place in the text, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_its_line() {
        let text = "[a]\nb = 1\n[[c]]\nd = 1\n[[c]]\nd = [1,\n  2]\n";
        let document = DeTable::parse(text).unwrap();
        let line = |path: Path| line_of(text, path.span(&document).start);
        assert_eq!(line(Path::at("a").key("b")), 2);
        assert_eq!(line(Path::at("c").index(0).key("d")), 4);
        assert_eq!(line(Path::at("c").index(1).key("d").index(1)), 7);
        // What is missing is told at what should hold it.
        assert_eq!(line(Path::at("c").index(1).key("x")), 5);
        assert_eq!(line(Path::at("nowhere")), 1);
    }

    #[test]
    fn a_path_is_written_as_people_write_it() {
        let path = Path::at("pools")
            .index(1)
            .key("workers")
            .index(0)
            .key("url");
        assert_eq!(path.to_string(), "pools[1].workers[0].url");
        assert_eq!(path.section(), "pools.workers.url");
    }
}
