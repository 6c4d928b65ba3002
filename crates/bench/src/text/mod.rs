//! Texts by number: the same number gives the same text, here and on every other machine.

mod prose;
mod vocabulary;

use clap::ValueEnum;
use simulator::rng::Rng;

/// What texts are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Style {
    /// A few short words, each a token to almost every tokenizer
    #[default]
    Words,
    /// Sentences of several thousand words as people use them, with names, numbers and punctuation
    Prose,
}

impl Style {
    /// Appends so many words of the text with this number.
    pub(crate) fn write(self, out: &mut String, number: u64, count: u64) {
        match self {
            Self::Words => words(out, number, count),
            Self::Prose => prose::write(out, number, count),
        }
    }
}

/// Short words that almost every tokenizer has as one token, so that a text has about as many tokens as words.
const WORDS: [&str; 32] = [
    " the", " of", " and", " to", " in", " is", " was", " for", " on", " are", " as", " it",
    " his", " her", " he", " at", " by", " an", " be", " or", " had", " not", " but", " one",
    " we", " all", " can", " has", " out", " who", " new", " two",
];

/// Ids that every vocabulary of today has, and that are no special tokens in any.
const FIRST_ID: u32 = 1_000;
const IDS: u64 = 4_096;

fn words(out: &mut String, number: u64, count: u64) {
    let mut rng = Rng::new(number ^ 0x7465_7874);
    let mut bits = 0;
    for at in 0..count {
        if at % 12 == 0 {
            bits = rng.next_u64();
        }
        out.push_str(WORDS[(bits % 32) as usize]);
        bits >>= 5;
    }
}

/// Appends so many token ids of the text with this number.
pub(crate) fn ids(out: &mut Vec<u32>, number: u64, count: u64) {
    let mut rng = Rng::new(number ^ 0x6964_7321);
    out.extend((0..count).map(|_| FIRST_ID + rng.between(0, IDS) as u32));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_always_gives_the_same_text_and_a_longer_one_begins_with_it() {
        for style in [Style::Words, Style::Prose] {
            let text = |number, count| {
                let mut text = String::new();
                style.write(&mut text, number, count);
                text
            };
            assert_eq!(text(5, 40), text(5, 40));
            assert_ne!(text(5, 40), text(6, 40));
            assert!(text(5, 80).starts_with(&text(5, 40)));
            assert_eq!(text(5, 40).split_whitespace().count(), 40);
        }
    }
}
