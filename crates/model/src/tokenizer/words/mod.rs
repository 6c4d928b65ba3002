//! Words that were tokenised before are not tokenised again.
//!
//! A text is cut where its parts have the tokens of the whole ([`Cuts`] says where). The parts are mostly single words, which
//! come again and again ([`Memory`] keeps their tokens); those that are new are mostly [`Plain`], and the `tokenizers` crate is left
//! with the rest.

mod cuts;
mod latin;
mod memory;
mod merges;
mod plain;
mod split;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use cuts::Cuts;
use memory::{Key, Memory};
use merges::Bench;
use plain::Plain;

/// Unknown words of one text that the crate tokenises one by one to be remembered; alone each of them takes it longer than
/// in its text, so what comes after them is tokenised as it stands.
const MAX_LEARNED_AT_ONCE: usize = 128;

/// Parts of a text that are prepared before they are looked up: a trip to memory's worth of cutting.
const PARTS_AHEAD: usize = 6;

/// Tokenises texts word by word.
#[derive(Debug)]
pub(super) struct Words {
    cuts: Cuts,
    plain: Option<Plain>,
    memory: Memory,
}

impl Words {
    /// For a tokenizer; `None` if nothing is known of how it finds words.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
        let (cuts, split) = Cuts::of(tokenizer)?;
        Some(Self {
            cuts,
            plain: split.and_then(|split| Plain::of(tokenizer, split)),
            memory: Memory::default(),
        })
    }

    /// The tokens of `text`.
    pub(super) fn encode(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        text: &str,
    ) -> tokenizers::Result<Vec<u32>> {
        let mut tokens = Vec::with_capacity(text.len() / 4 + 8);
        let mut bench = Bench::default();
        let mut learned = 0;
        // What stands between these two waits for the crate to tokenise it as one.
        let (mut waits_from, mut at) = (0, 0);
        for (part, key) in Parts::of(text, self) {
            let seen = key.as_ref().and_then(|key| self.memory.recall(key));
            let plain = self.plain.as_ref().filter(|_| seen.is_none());
            let plain = plain.filter(|plain| plain.holds(part));
            let may_learn = key.is_some() && learned < MAX_LEARNED_AT_ONCE;
            if seen.is_none() && plain.is_none() && !may_learn {
                at += part.len();
                continue;
            }
            if waits_from < at {
                let waiting = text.get(waits_from..at).unwrap_or_default();
                whole(tokenizer, waiting, &mut tokens)?;
            }
            at += part.len();
            waits_from = at;
            if let Some(seen) = seen {
                tokens.extend(seen.ids());
                continue;
            }
            let from = tokens.len();
            let is_done =
                plain.is_some_and(|plain| plain.encode(tokenizer, part, &mut bench, &mut tokens));
            if !is_done {
                whole(tokenizer, part, &mut tokens)?;
                learned += 1;
            }
            if let Some(key) = &key
                && !(is_done && is_figure(part))
            {
                self.memory
                    .remember(key, tokens.get(from..).unwrap_or_default());
            }
        }
        if waits_from < at {
            let waiting = text.get(waits_from..).unwrap_or_default();
            whole(tokenizer, waiting, &mut tokens)?;
        }
        Ok(tokens)
    }
}

/// The parts of a text, as they are looked up. It is a few of them ahead of whoever takes them, so that their places are near when
/// it is their turn.
struct Parts<'a> {
    words: &'a Words,
    rest: &'a str,
    ahead: VecDeque<(&'a str, Option<Key>)>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str, words: &'a Words) -> Self {
        Self {
            words,
            rest: text,
            ahead: VecDeque::with_capacity(PARTS_AHEAD),
        }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = (&'a str, Option<Key>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.ahead.len() < PARTS_AHEAD && !self.rest.is_empty() {
            let length = self.words.cuts.first(self.rest);
            let (part, rest) = self
                .rest
                .split_at_checked(length)
                .unwrap_or((self.rest, ""));
            let key = Key::of(part);
            if let Some(key) = &key {
                self.words.memory.prepare(key);
            }
            self.ahead.push_back((part, key));
            self.rest = rest;
        }
        self.ahead.pop_front()
    }
}

/// Figures hardly ever come again.
fn is_figure(part: &str) -> bool {
    part.bytes().any(|byte| byte.is_ascii_digit())
}

/// Appends the tokens of a text as the crate finds them.
fn whole(
    tokenizer: &tokenizers::Tokenizer,
    text: &str,
    tokens: &mut Vec<u32>,
) -> tokenizers::Result<()> {
    let encoding = tokenizer.encode_fast(text, false)?;
    tokens.extend_from_slice(encoding.get_ids());
    Ok(())
}
