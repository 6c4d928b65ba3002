//! Reads what a worker prints at `/metrics`: Prometheus' text format and OpenMetrics.
//!
//! A page comes from a foreign process twice a second, so it is read in place: a [`Sample`] borrows its
//! name and its labels from the page, label values are copied only where they carry an escape, and
//! nothing is kept of the hundreds of lines nobody asks for. A line that makes no sense is left out and
//! counted, so that one odd metric does not blind us to the rest; a page that breaks a bound is refused.
//!
//! ```
//! # use forespeak_fleet as fleet;
//! use fleet::exposition::Samples;
//!
//! let page = "# TYPE vllm:num_requests_running gauge\n\
//!             vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\n";
//! let sample = Samples::new(page).next().unwrap().unwrap();
//! assert_eq!(sample.name, "vllm:num_requests_running");
//! assert_eq!(sample.labels.get("engine").as_deref(), Some("0"));
//! assert_eq!(sample.value, 3.0);
//! ```

mod labels;
mod line;

pub use labels::{Label, Labels};
pub use line::Sample;

/// The longest line read. vLLM's widest, `cache_config_info` with some forty labels, is under 2 KiB.
pub const MAX_LINE_BYTES: usize = 32 << 10;

/// The most labels on one sample: three times vLLM's widest.
pub const MAX_LABELS: usize = 128;

/// The most samples on one page. A vLLM with eight data-parallel ranks prints about 6,000.
pub const MAX_SAMPLES: usize = 100_000;

/// A bound that a page broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BoundBroken {
    /// Longer than [`MAX_LINE_BYTES`].
    #[error("line {line} of the metrics page is longer than {MAX_LINE_BYTES} bytes")]
    LineTooLong {
        /// Counted from 1.
        line: usize,
    },
    /// More than [`MAX_LABELS`].
    #[error("line {line} of the metrics page has more than {MAX_LABELS} labels")]
    TooManyLabels {
        /// Counted from 1.
        line: usize,
    },
    /// More than [`MAX_SAMPLES`].
    #[error("the metrics page has more than {MAX_SAMPLES} samples")]
    TooManySamples,
}

/// The samples of a page, in its order. Ends at `# EOF`, at the end of the text, or after an error.
#[derive(Debug, Clone)]
pub struct Samples<'a> {
    rest: &'a str,
    line: usize,
    samples: usize,
    malformed: usize,
    ended: bool,
}

impl<'a> Samples<'a> {
    /// Starts at the top of a page.
    pub fn new(page: &'a str) -> Self {
        Self {
            rest: page,
            line: 0,
            samples: 0,
            malformed: 0,
            ended: false,
        }
    }

    /// Lines so far that are neither comments nor samples.
    pub fn malformed_lines(&self) -> usize {
        self.malformed
    }

    fn next_line(&mut self) -> Option<&'a str> {
        if self.rest.is_empty() {
            return None;
        }
        self.line += 1;
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        Some(line.strip_suffix('\r').unwrap_or(line))
    }

    fn end_with(&mut self, broken: BoundBroken) -> Option<Result<Sample<'a>, BoundBroken>> {
        self.ended = true;
        Some(Err(broken))
    }
}

impl<'a> Iterator for Samples<'a> {
    type Item = Result<Sample<'a>, BoundBroken>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let line = self.next_line()?;
            if line.len() > MAX_LINE_BYTES {
                return self.end_with(BoundBroken::LineTooLong { line: self.line });
            }
            let line = line.trim_start_matches([' ', '\t']);
            if line.is_empty() {
                continue;
            }
            if let Some(comment) = line.strip_prefix('#') {
                self.ended = comment.trim() == "EOF";
                continue;
            }
            match Sample::parse(line) {
                Ok(_) if self.samples == MAX_SAMPLES => {
                    return self.end_with(BoundBroken::TooManySamples);
                }
                Ok(sample) => {
                    self.samples += 1;
                    return Some(Ok(sample));
                }
                Err(line::Refused::Malformed) => self.malformed += 1,
                Err(line::Refused::TooManyLabels) => {
                    return self.end_with(BoundBroken::TooManyLabels { line: self.line });
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(page: &str) -> Vec<Sample<'_>> {
        Samples::new(page).map(Result::unwrap).collect()
    }

    #[test]
    fn comments_blank_lines_and_carriage_returns_are_passed_over() {
        let samples = read("# HELP a b\r\n\r\n  a 1\r\n# TYPE c gauge\nc 2");
        let found: Vec<_> = samples.iter().map(|s| (s.name, s.value)).collect();
        assert_eq!(found, [("a", 1.0), ("c", 2.0)]);
    }

    #[test]
    fn nothing_is_read_past_the_end_mark_of_openmetrics() {
        assert_eq!(read("a_total 1.0\n# EOF\nb 2\n").len(), 1);
    }

    #[test]
    fn a_malformed_line_costs_only_itself() {
        let mut samples = Samples::new("a 1\nb{c=\"d 2\ne\nf{g=\"h\"} nonsense\ni 5\n");
        let names: Vec<_> = samples.by_ref().map(|s| s.unwrap().name).collect();
        assert_eq!(names, ["a", "i"]);
        assert_eq!(samples.malformed_lines(), 3);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let page = format!("a 1\n{} 1\nb 2\n", "x".repeat(MAX_LINE_BYTES));
        let mut samples = Samples::new(&page);
        assert!(samples.next().unwrap().is_ok());
        assert_eq!(
            samples.next(),
            Some(Err(BoundBroken::LineTooLong { line: 2 }))
        );
        assert_eq!(samples.next(), None);
    }

    #[test]
    fn a_flood_of_labels_is_refused() {
        let labels = |n: usize| (0..n).map(|i| format!("l{i}=\"v\",")).collect::<String>();
        let fits = format!("a{{{}}} 1\n", labels(MAX_LABELS));
        assert_eq!(read(&fits)[0].labels.iter().count(), MAX_LABELS);
        let flood = format!("a{{{}}} 1\n", labels(MAX_LABELS + 1));
        assert_eq!(
            Samples::new(&flood).next(),
            Some(Err(BoundBroken::TooManyLabels { line: 1 }))
        );
    }

    #[test]
    fn a_flood_of_samples_is_refused() {
        let page = "a 1\n".repeat(MAX_SAMPLES + 1);
        let mut samples = Samples::new(&page);
        assert_eq!(samples.by_ref().take(MAX_SAMPLES).count(), MAX_SAMPLES);
        assert_eq!(samples.next(), Some(Err(BoundBroken::TooManySamples)));
    }

    fn any_label() -> impl Strategy<Value = (String, String)> {
        ("[a-z_][a-z0-9_]{0,8}", "\\PC{0,12}|[\"\\\\\n,{}=# ]{0,8}")
    }

    fn escaped(value: &str) -> String {
        value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    }

    proptest! {
        #[test]
        fn what_was_printed_is_read(
            name in "[a-z_:][a-z0-9_:]{0,20}",
            labels in proptest::collection::vec(any_label(), 0..6),
            value in proptest::num::f64::ANY,
            timestamp in any::<Option<u32>>(),
            exemplar in any::<bool>(),
        ) {
            let pairs: Vec<_> =
                labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let mut page = format!("{name}{{{}}} {value}", pairs.join(","));
            if let Some(timestamp) = timestamp {
                page += &format!(" {timestamp}");
            }
            if exemplar {
                page += " # {trace_id=\"}\"} 0.5";
            }
            page.push('\n');
            let samples = read(&page);
            prop_assert_eq!(samples.len(), 1);
            prop_assert_eq!(samples[0].name, &name);
            prop_assert!(samples[0].value == value || value.is_nan() && samples[0].value.is_nan());
            let read: Vec<_> = samples[0]
                .labels
                .iter()
                .map(|label| (label.name.to_owned(), label.value().into_owned()))
                .collect();
            prop_assert_eq!(read, labels);
        }

        #[test]
        fn arbitrary_text_never_panics(page in "\\PC{0,200}|[a-z{}\"\\\\=, #\n0-9.]{0,200}") {
            for sample in Samples::new(&page).flatten() {
                let _ = sample.labels.get("engine");
            }
        }
    }
}
