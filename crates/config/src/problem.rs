//! What is wrong with a file, all of it.

use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1; none if it concerns no line.
    pub line: Option<usize>,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// Everything that is wrong with a file, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    /// What the file is called.
    pub file: String,
    /// Never empty.
    pub list: Vec<Problem>,
}

impl Problems {
    pub(crate) fn new(file: &str, mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|problem| problem.line);
        Self {
            file: file.to_owned(),
            list,
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.list.iter().enumerate() {
            if place > 0 {
                writeln!(out)?;
            }
            out.write_str(&self.file)?;
            if let Some(line) = problem.line {
                write!(out, ":{line}")?;
            }
            write!(out, ": {}", problem.message)?;
        }
        Ok(())
    }
}
