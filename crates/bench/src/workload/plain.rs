//! Prompts of one size, of which groups share their beginning.

use super::{Due, Item, Prompt};
use crate::arrivals::Gaps;

/// Numbers of texts that are nobody else's begin here.
const OWN_TEXTS: u64 = 1 << 32;

/// The sizes.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// How many requests.
    pub requests: usize,
    /// Tokens of a prompt.
    pub prompt_tokens: u64,
    /// Tokens of it that its group shares.
    pub shared_tokens: u64,
    /// How many groups.
    pub groups: u64,
    /// Tokens of an answer.
    pub output_tokens: u64,
    /// Whether prompts are texts one after the other, or a chat whose shared part is a message of its own.
    pub as_chat: bool,
}

/// The requests; each group in turn.
pub fn plain(sizes: Plain, gaps: Gaps, seed: u64) -> Vec<Item> {
    let shared = sizes.shared_tokens.min(sizes.prompt_tokens);
    gaps.times(sizes.requests, seed)
        .into_iter()
        .zip(0..)
        .map(|(at, index): (_, u64)| {
            let common = (index % sizes.groups.max(1), shared);
            let own = (
                OWN_TEXTS + (seed << 24) + index,
                sizes.prompt_tokens - shared,
            );
            let prompt = if sizes.as_chat {
                Prompt::Turn {
                    document: (shared > 0).then_some(common),
                    question: own,
                }
            } else {
                Prompt::Parts(vec![common, own])
            };
            Item {
                due: Due::At(at),
                session: index,
                prompt,
                output_tokens: sizes.output_tokens,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(as_chat: bool) -> Vec<Prompt> {
        let sizes = Plain {
            requests: 3,
            prompt_tokens: 120,
            shared_tokens: 100,
            groups: 2,
            output_tokens: 8,
            as_chat,
        };
        let gaps = Gaps {
            rate: f64::INFINITY,
            burstiness: 1.0,
        };
        let items = plain(sizes, gaps, 1);
        items.into_iter().map(|item| item.prompt).collect()
    }

    #[test]
    fn what_chats_share_is_a_message_of_its_own() {
        let documents: Vec<_> = prompts(true)
            .into_iter()
            .map(|prompt| match prompt {
                Prompt::Turn { document, question } => {
                    assert_eq!(question.1, 20);
                    document
                }
                Prompt::Parts(parts) => panic!("one text: {parts:?}"),
            })
            .collect();
        assert_eq!(documents, [Some((0, 100)), Some((1, 100)), Some((0, 100))]);
    }

    #[test]
    fn without_messages_it_is_the_beginning_of_the_text() {
        for prompt in prompts(false) {
            assert!(matches!(prompt, Prompt::Parts(parts) if parts.len() == 2));
        }
    }
}
