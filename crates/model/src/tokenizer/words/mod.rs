//! Words that were tokenised before are not tokenised again.
//!
//! A text is cut where its parts have the tokens of the whole ([`Cuts`] says where). The parts are mostly single words, which
//! come again and again ([`Memory`] keeps their tokens); those that are new are mostly [`Plain`], and the `tokenizers` crate is left
//! with the rest.

mod cuts;
mod latin;
mod memory;
mod merges;
mod pairs;
mod plain;
mod split;
#[cfg(test)]
mod tests;

use cuts::Cuts;
use memory::{Found, Key, Memory};
use merges::Bench;
use plain::Plain;

/// Unknown words of one text that the crate tokenises one by one to be remembered; alone each of them takes it longer than
/// in its text, so what comes after them is tokenised as it stands.
const MAX_LEARNED_AT_ONCE: usize = 128;

/// Parts of a text that are looked up together: as many as a core fetches from memory at a time.
const FOUND_AT_ONCE: usize = 8;

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
        let mut parts = Vec::with_capacity(FOUND_AT_ONCE);
        // What stands between these two waits for the crate to tokenise it as one.
        let (mut waits_from, mut at) = (0, 0);
        let mut rest = text;
        while !rest.is_empty() {
            rest = self.find_some(rest, &mut parts);
            for (part, found) in parts.drain(..) {
                let seen = found.as_ref().and_then(Found::recall);
                let plain = self.plain.as_ref().filter(|_| seen.is_none());
                let plain = plain.filter(|plain| plain.holds(part));
                let may_learn = found.is_some() && learned < MAX_LEARNED_AT_ONCE;
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
                let is_done = plain
                    .is_some_and(|plain| plain.encode(tokenizer, part, &mut bench, &mut tokens));
                if !is_done {
                    whole(tokenizer, part, &mut tokens)?;
                    learned += 1;
                }
                if let Some(found) = found
                    && !(is_done && is_figure(part))
                {
                    found.remember(tokens.get(from..).unwrap_or_default());
                }
            }
        }
        if waits_from < at {
            let waiting = text.get(waits_from..).unwrap_or_default();
            whole(tokenizer, waiting, &mut tokens)?;
        }
        Ok(tokens)
    }

    /// Cuts off the next few parts of a text and finds their places; gives what is left of it.
    fn find_some<'a>(
        &'a self,
        mut rest: &'a str,
        parts: &mut Vec<(&'a str, Option<Found<'a>>)>,
    ) -> &'a str {
        while parts.len() < FOUND_AT_ONCE && !rest.is_empty() {
            let length = self.cuts.first(rest);
            let (part, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
            let found = Key::of(part).map(|key| self.memory.find(key));
            parts.push((part, found));
            rest = after;
        }
        rest
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
