//! Stop strings, wherever token borders fall.
//!
//! Text that might be the beginning of a stop string is held back until it is decided. The first stop
//! string that becomes complete ends the text, character by character: which one it is does not depend
//! on how the text was cut into tokens.

/// Watches a text for stop strings.
#[derive(Debug)]
pub(crate) struct StopFilter {
    stops: Vec<String>,
    include: bool,
    /// Not yet let through; no stop string is complete in it.
    held: String,
}

impl StopFilter {
    /// `include`: a stop string that ends the text stays in it.
    pub(crate) fn new(stops: &[String], include: bool) -> Self {
        Self {
            stops: stops.iter().filter(|s| !s.is_empty()).cloned().collect(),
            include,
            held: String::new(),
        }
    }

    /// Adds text and moves what is safe into `out`. The stop string, when one ended the text.
    pub(crate) fn push(&mut self, text: &str, out: &mut String) -> Option<String> {
        self.held.push_str(text);
        if let Some((start, stop)) = self.first_match() {
            let end = if self.include {
                start + stop.len()
            } else {
                start
            };
            out.push_str(&self.held[..end]);
            self.held.clear();
            return Some(stop);
        }
        let safe = self.held.len() - self.undecided();
        out.extend(self.held.drain(..safe));
        None
    }

    /// Adds text that must not end the answer yet.
    pub(crate) fn pass(&mut self, text: &str, out: &mut String) {
        self.finish(out);
        out.push_str(text);
    }

    /// The end: what was held back is text after all.
    pub(crate) fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
    }

    /// The match that is complete first; of several with the same end, the longest.
    fn first_match(&self) -> Option<(usize, String)> {
        self.stops
            .iter()
            .filter_map(|stop| self.held.find(stop).map(|start| (start, stop)))
            .min_by_key(|(start, stop)| (start + stop.len(), *start))
            .map(|(start, stop)| (start, stop.clone()))
    }

    /// Length of the longest end of the held text that begins a stop string.
    fn undecided(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest.saturating_sub(1));
        (from..self.held.len())
            .filter(|&at| self.held.is_char_boundary(at))
            .find(|&at| self.stops.iter().any(|s| s.starts_with(&self.held[at..])))
            .map_or(0, |at| self.held.len() - at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(stops: &[&str], include: bool, pieces: &[&str]) -> (Vec<String>, Option<String>) {
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let mut filter = StopFilter::new(&stops, include);
        let mut shown = Vec::new();
        for piece in pieces {
            let mut out = String::new();
            let stop = filter.push(piece, &mut out);
            shown.push(out);
            if stop.is_some() {
                return (shown, stop);
            }
        }
        let mut out = String::new();
        filter.finish(&mut out);
        shown.push(out);
        (shown, None)
    }

    #[test]
    fn a_stop_string_across_pieces_is_cut_exactly() {
        let (shown, stop) = run(&["END"], false, &["abcE", "N", "Dxyz"]);
        assert_eq!(shown, ["abc", "", ""]);
        assert_eq!(stop.as_deref(), Some("END"));
        let (shown, _) = run(&["END"], true, &["abcE", "N", "Dxyz"]);
        assert_eq!(shown.concat(), "abcEND");
    }

    #[test]
    fn text_that_only_looked_like_a_stop_string_is_shown() {
        let (shown, stop) = run(&["END", "\n\n"], false, &["EN", "EN", "\n", "x"]);
        assert_eq!(shown, ["", "EN", "EN", "\nx", ""]);
        assert_eq!(stop, None);
    }

    #[test]
    fn the_first_to_be_complete_wins() {
        assert_eq!(run(&["bcd", "c"], false, &["abcd"]).1.as_deref(), Some("c"));
        let (shown, stop) = run(&["c", "abc"], false, &["xabc"]);
        assert_eq!(
            (shown.concat().as_str(), stop.as_deref()),
            ("x", Some("abc"))
        );
    }

    proptest! {
        #[test]
        fn the_cut_does_not_depend_on_the_pieces(
            text in "[abä]{0,24}",
            stops in prop::collection::vec("[abä]{1,4}", 0..4),
            include in any::<bool>(),
            sizes in prop::collection::vec(1usize..5, 24),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let single: Vec<String> = text.chars().map(String::from).collect();
            let by_char: Vec<&str> = single.iter().map(String::as_str).collect();
            let chars: Vec<char> = text.chars().collect();
            let mut pieces = Vec::new();
            let mut rest = chars.as_slice();
            for size in sizes {
                let (piece, after) = rest.split_at(size.min(rest.len()));
                pieces.push(piece.iter().collect::<String>());
                rest = after;
            }
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let a = run(&stops, include, &by_char);
            let b = run(&stops, include, &pieces);
            prop_assert_eq!((a.0.concat(), &a.1), (b.0.concat(), &b.1));
            if a.1.is_none() {
                prop_assert_eq!(a.0.concat(), text);
            }
        }
    }
}
