//! What somebody may have meant.

/// How alike two words must be (Jaro-Winkler, 0 to 1) to be taken for each other: `polcy` and `policy` are 0.96,
/// `listen` and `limits` 0.63.
const ALIKE: f64 = 0.8;

/// The word most like `wanted`, if one is like it at all.
pub(crate) fn nearest<'a>(
    wanted: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    words
        .into_iter()
        .map(|word| (strsim::jaro_winkler(wanted, word), word))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

/// "did you mean", or all there is to choose from.
pub(crate) fn suggest<'a>(wanted: &str, words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.into_iter().collect();
    match nearest(wanted, words.iter().copied()) {
        Some(word) => format!("did you mean {word:?}?"),
        None if words.is_empty() => "there is none".to_owned(),
        None => format!("there is {}", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let words = ["policy", "workers", "timeouts", "max_connections"];
        assert_eq!(nearest("polcy", words), Some("policy"));
        assert_eq!(nearest("worker", words), Some("workers"));
        assert_eq!(nearest("max_conections", words), Some("max_connections"));
        assert_eq!(nearest("banana", words), None);
        assert_eq!(suggest("banana", ["a", "b"]), "there is a, b");
    }
}
