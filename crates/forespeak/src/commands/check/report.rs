//! The lines of a check.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Ok,
    Warning,
    Failure,
}

#[derive(Debug)]
struct Line {
    level: Level,
    about: String,
    found: String,
    to_do: Option<&'static str>,
}

/// What was found, in order.
#[derive(Debug, Default)]
pub(super) struct Report {
    lines: Vec<Line>,
}

impl Report {
    pub(super) fn ok(&mut self, about: impl Into<String>, found: String) {
        self.add(Level::Ok, about.into(), found, None);
    }

    pub(super) fn warning(&mut self, about: impl Into<String>, found: String, to_do: &'static str) {
        self.add(Level::Warning, about.into(), found, Some(to_do));
    }

    pub(super) fn failure(&mut self, about: impl Into<String>, found: String, to_do: &'static str) {
        self.add(Level::Failure, about.into(), found, Some(to_do));
    }

    fn add(&mut self, level: Level, about: String, found: String, to_do: Option<&'static str>) {
        self.lines.push(Line {
            level,
            about,
            found,
            to_do,
        });
    }

    /// Adds what was found elsewhere.
    pub(super) fn append(&mut self, mut other: Self) {
        self.lines.append(&mut other.lines);
    }

    pub(super) fn failures(&self) -> usize {
        self.count(Level::Failure)
    }

    fn count(&self, level: Level) -> usize {
        self.lines.iter().filter(|line| line.level == level).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            let level = match line.level {
                Level::Ok => "ok",
                Level::Warning => "warning",
                Level::Failure => "failure",
            };
            let found = line.found.replace('\n', "\n         ");
            writeln!(out, "{level:<8} {}: {found}", line.about)?;
            if let Some(to_do) = line.to_do {
                writeln!(out, "         -> {to_do}")?;
            }
        }
        let (ok, warnings) = (self.count(Level::Ok), self.count(Level::Warning));
        writeln!(
            out,
            "\n{ok} ok, {warnings} warnings, {} failures",
            self.failures()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_comes_with_what_to_do() {
        let mut report = Report::default();
        report.ok("a", "fine".to_owned());
        report.warning("b", "two\nlines".to_owned(), "mend it");
        report.failure("c", "bad".to_owned(), "replace it");
        assert_eq!(
            report.to_string(),
            "ok       a: fine\n\
             warning  b: two\n         lines\n         -> mend it\n\
             failure  c: bad\n         -> replace it\n\
             \n1 ok, 1 warnings, 1 failures\n"
        );
    }
}
