//! Growing chats over shared documents, with the sizes and times of the simulator's.

use simulator::workload::Arrival;
pub use simulator::workload::Chats;

use super::{Due, Item, Prompt};

/// Numbers of questions begin here; those of documents are below.
const QUESTIONS: u64 = 1 << 33;

/// The requests. The same seed gives the same chats here and in the simulator.
pub fn chats(sizes: &Chats) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut said = 0;
    for (index, planned) in sizes.generate().items.into_iter().enumerate() {
        let begins = matches!(planned.arrival, Arrival::At(_));
        let before = if begins { sizes.document_tokens } else { said };
        let question = planned.prompt_tokens.saturating_sub(before).max(1);
        said = planned.prompt_tokens + planned.output_tokens;
        let document = planned.blocks.first().copied().unwrap_or_default();
        items.push(Item {
            due: match planned.arrival {
                Arrival::At(at) => Due::At(at),
                Arrival::After { think, .. } => Due::AfterPrevious(think),
            },
            session: planned.session,
            prompt: Prompt::Turn {
                document: begins.then_some((u64::from(document), sizes.document_tokens)),
                question: (QUESTIONS + (sizes.seed << 24) + index as u64, question),
            },
            output_tokens: planned.output_tokens,
        });
    }
    items
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn chats_share_documents_and_follow_their_own_turns() {
        let sizes = Chats {
            lasting: Duration::from_secs(30),
            documents: 3,
            turns: 4,
            ..Chats::default()
        };
        let items = chats(&sizes);
        assert_eq!(items.len() % 4, 0);
        let documents: std::collections::BTreeSet<_> = items
            .iter()
            .filter_map(|item| match &item.prompt {
                Prompt::Turn { document, .. } => *document,
                Prompt::Parts(_) => None,
            })
            .collect();
        assert_eq!(documents.len(), 3);
        for turns in items.chunks(4) {
            assert!(matches!(turns[0].due, Due::At(_)));
            assert!(turns[1..].iter().all(|turn| {
                turn.session == turns[0].session && matches!(turn.due, Due::AfterPrevious(_))
            }));
        }
    }
}
