//! Sentences and paragraphs that look like what people send: to a tokenizer they are as much work.

use std::fmt::Write;

use simulator::rng::Rng;

use super::vocabulary::Vocabulary;

/// Names are two or three of these.
const SYLLABLES: [&str; 32] = [
    "an", "bel", "cor", "da", "el", "fer", "gar", "hol", "in", "jo", "ka", "lin", "mar", "nor",
    "ol", "pet", "qui", "ros", "sa", "tor", "ul", "va", "wen", "xa", "yor", "zel", "ber", "ton",
    "sky", "mann", "ez", "ard",
];

/// Words of a sentence: so many at least, and at most so many more.
const SENTENCE_WORDS: (u64, u64) = (4, 20);

/// Sentences of a paragraph at most.
const PARAGRAPH_SENTENCES: u64 = 8;

/// Appends so many words of the text with this number.
pub(super) fn write(out: &mut String, number: u64, count: u64) {
    let mut writer = Writer {
        out,
        rng: Rng::new(number ^ 0x7072_6f73),
        left_in_sentence: 0,
        left_in_paragraph: 0,
    };
    for _ in 0..count {
        writer.word();
    }
}

struct Writer<'a> {
    out: &'a mut String,
    rng: Rng,
    left_in_sentence: u64,
    left_in_paragraph: u64,
}

impl Writer<'_> {
    /// The next word, with what stands before and after it.
    fn word(&mut self) {
        let begins = self.left_in_sentence == 0;
        if begins {
            self.begin_sentence();
        } else {
            self.out.push(' ');
        }
        self.left_in_sentence -= 1;
        let chance = self.rng.next_u64();
        let start = self.out.len();
        match chance % 1000 {
            0..30 => self.name(),
            30..60 => self.figure(),
            60..66 => self.identifier(),
            66..72 => self.enclosed('(', ')'),
            72..78 => self.enclosed('"', '"'),
            _ => self.out.push_str(Vocabulary::shared().draw(chance >> 16)),
        }
        if begins && let Some(first) = self.out.get_mut(start..=start) {
            first.make_ascii_uppercase();
        }
        self.after(chance >> 40);
    }

    fn begin_sentence(&mut self) {
        if self.left_in_paragraph == 0 {
            self.left_in_paragraph = self.rng.between(1, PARAGRAPH_SENTENCES + 1);
            self.out.push_str("\n\n");
        } else {
            self.out.push(' ');
        }
        self.left_in_paragraph -= 1;
        let (least, more) = SENTENCE_WORDS;
        self.left_in_sentence = self.rng.between(least, least + more);
    }

    /// Punctuation.
    fn after(&mut self, chance: u64) {
        let mark = if self.left_in_sentence > 0 {
            match chance % 100 {
                0..7 => ",",
                7 => ";",
                8 => "—",
                _ => "",
            }
        } else {
            match chance % 20 {
                0 | 1 => "?",
                2 => "!",
                3 => ":",
                _ => ".",
            }
        };
        self.out.push_str(mark);
    }

    fn name(&mut self) {
        let start = self.out.len();
        for _ in 0..self.rng.between(2, 4) {
            let syllable = self.rng.between(0, SYLLABLES.len() as u64);
            self.out.push_str(SYLLABLES[syllable as usize]);
        }
        if let Some(first) = self.out.get_mut(start..=start) {
            first.make_ascii_uppercase();
        }
    }

    fn figure(&mut self) {
        let number = self.rng.next_u64();
        // Writing to a string cannot fail.
        let _ = match number % 5 {
            0 => write!(self.out, "{}", 1900 + (number >> 8) % 130),
            1 => write!(self.out, "{}", (number >> 8) % 100),
            2 => write!(self.out, "{}.{}%", (number >> 8) % 100, (number >> 16) % 10),
            3 => write!(
                self.out,
                "${},{:03}",
                1 + (number >> 8) % 99,
                (number >> 16) % 1000
            ),
            _ => write!(
                self.out,
                "{:02}:{:02}",
                (number >> 8) % 24,
                (number >> 16) % 60
            ),
        };
    }

    fn identifier(&mut self) {
        let chance = self.rng.next_u64();
        let vocabulary = Vocabulary::shared();
        let (one, other) = (vocabulary.draw(chance), vocabulary.draw(chance >> 16));
        let _ = match chance >> 62 {
            0 => write!(self.out, "{one}_{other}"),
            1 => write!(self.out, "{one}.{other}()"),
            2 => write!(self.out, "https://{one}.example/{other}"),
            _ => write!(self.out, "/etc/{one}/{other}.yaml"),
        };
    }

    fn enclosed(&mut self, opens: char, closes: char) {
        let word = Vocabulary::shared().draw(self.rng.next_u64());
        let _ = write!(self.out, "{opens}{word}{closes}");
    }
}
