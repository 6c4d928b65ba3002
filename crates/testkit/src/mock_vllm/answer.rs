//! What a mock answers: a function of the prompt's bytes, token after token, so that the answer to a prompt with
//! the first half of its answer appended is the second half.

use super::Vocabulary;

/// An answer, complete before its first token is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Its text.
    pub text: String,
    /// Where in the text each token ends.
    ends: Vec<usize>,
    /// `stop` or `length`.
    pub finish: &'static str,
}

impl Answer {
    /// The answer to a prompt of these bytes, of at most `most` tokens. It ends by itself after `mean` tokens on
    /// average; 0 never does.
    pub fn to(vocabulary: &Vocabulary, prompt: &[u8], most: u64, mean: u64) -> Self {
        let mut answer = Self {
            tokens: Vec::new(),
            text: String::new(),
            ends: Vec::new(),
            finish: "length",
        };
        let mut state = extend(0xcbf2_9ce4_8422_2325, prompt);
        while (answer.tokens.len() as u64) < most {
            let chance = mix(state);
            let (token, word) = vocabulary.word(chance);
            answer.tokens.push(token);
            answer.text.push_str(word);
            answer.ends.push(answer.text.len());
            state = extend(state, word.as_bytes());
            if mean > 0 && (chance >> 32).is_multiple_of(mean) {
                answer.finish = "stop";
                break;
            }
        }
        answer
    }

    /// The text of its tokens from `first` up to `last`.
    pub fn piece(&self, first: usize, last: usize) -> &str {
        let end = |tokens: usize| match tokens {
            0 => 0,
            _ => self
                .ends
                .get(tokens - 1)
                .copied()
                .unwrap_or(self.text.len()),
        };
        self.text.get(end(first)..end(last)).unwrap_or_default()
    }
}

/// FNV-1a: byte after byte, so it does not matter where the prompt ends and the answer begins.
fn extend(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |state, byte| {
        (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state ^ (state >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_prompt_and_half_its_answer_is_the_other_half() {
        let words = Vocabulary::Words;
        let whole = Answer::to(&words, b"What is a Pod?", 200, 0);
        for cut in [1, 57, 199] {
            let continued = format!("What is a Pod?{}", whole.piece(0, cut));
            let rest = Answer::to(&words, continued.as_bytes(), 200 - cut as u64, 0);
            assert_eq!(rest.text, whole.piece(cut, 200));
        }
    }

    #[test]
    fn answers_end_by_themselves_and_differ_between_prompts() {
        let words = Vocabulary::Words;
        let answer = |prompt: String| Answer::to(&words, prompt.as_bytes(), 10_000, 64);
        let answers: Vec<Answer> = (0..200).map(|at| answer(format!("prompt {at}"))).collect();
        assert!(answers.iter().all(|answer| answer.finish == "stop"));
        let mean = answers
            .iter()
            .map(|answer| answer.tokens.len())
            .sum::<usize>()
            / 200;
        assert!((40..90).contains(&mean), "{mean}");
        assert_ne!(answers[0].text, answers[1].text);
    }
}
