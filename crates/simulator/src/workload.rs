//! What the fleet is asked to do.

use std::time::Duration;

use crate::rng::Rng;

/// When a request comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// At a fixed time.
    At(Duration),
    /// So long after another one was answered: the next turn of a chat.
    After {
        /// The request that must be answered first, by its place in the workload.
        previous: usize,
        /// How long the user thinks.
        think: Duration,
    },
}

/// One request of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkItem {
    /// When it comes.
    pub arrival: Arrival,
    /// Equal for the requests of one chat.
    pub session: u64,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens of its answer.
    pub output_tokens: u64,
    /// Content ids of its full blocks, prompt first, then what the answer completes.
    pub blocks: Vec<u32>,
}

/// A list of requests and the block size their ids are in.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What it is called in reports.
    pub name: String,
    /// Tokens per content id.
    pub block_tokens: u32,
    /// The requests.
    pub items: Vec<WorkItem>,
}

impl Workload {
    /// The same with all fixed arrival times divided by `speed`; one that is not positive changes nothing.
    #[must_use]
    pub fn faster(mut self, speed: f64) -> Self {
        if speed.is_finite() && speed > 0.0 {
            for item in &mut self.items {
                if let Arrival::At(at) = &mut item.arrival {
                    *at = Duration::try_from_secs_f64(at.as_secs_f64() / speed).unwrap_or(*at);
                }
            }
        }
        self
    }
}

/// Hands out content ids that were never used.
struct Fresh(u32);

impl Fresh {
    fn take(&mut self, blocks: u64) -> impl Iterator<Item = u32> + use<> {
        let first = self.0;
        self.0 += blocks as u32;
        first..self.0
    }
}

/// Growing chats over shared documents.
///
/// Users ask about one of `documents`; each turn appends the last answer and a new question, so every turn's
/// prompt begins with the whole turn before it.
#[derive(Clone, Copy, Debug)]
pub struct Chats {
    /// Chats that begin per second.
    pub chats_per_second: f64,
    /// For how long new ones begin.
    pub lasting: Duration,
    /// Turns per chat.
    pub turns: u64,
    /// Different documents.
    pub documents: u64,
    /// Tokens of a document.
    pub document_tokens: u64,
    /// Tokens of a question.
    pub question_tokens: u64,
    /// Tokens of an answer.
    pub answer_tokens: u64,
    /// Mean time between an answer and the next question.
    pub think: Duration,
    /// Tokens per block.
    pub block_tokens: u32,
    /// Of everything random in it.
    pub seed: u64,
}

impl Default for Chats {
    /// Five minutes of chats of six turns over eighty documents of 12,000 tokens: the documents take 960,000 KV
    /// tokens, several times what one A100-class worker holds and less than half of what eight hold.
    fn default() -> Self {
        Self {
            chats_per_second: 1.0,
            lasting: Duration::from_secs(300),
            turns: 6,
            documents: 80,
            document_tokens: 12_000,
            question_tokens: 200,
            answer_tokens: 200,
            think: Duration::from_secs(10),
            block_tokens: 16,
            seed: 3,
        }
    }
}

impl Chats {
    /// The requests.
    pub fn generate(&self) -> Workload {
        let mut rng = Rng::new(self.seed);
        let mut fresh = Fresh(0);
        let block = u64::from(self.block_tokens);
        let documents: Vec<Vec<u32>> = (0..self.documents)
            .map(|_| fresh.take(self.document_tokens / block).collect())
            .collect();
        let mut items: Vec<WorkItem> = Vec::new();
        let mut begins = 0.0;
        let mut chat = 0;
        loop {
            begins += rng.exponential(1.0 / self.chats_per_second);
            if begins > self.lasting.as_secs_f64() {
                break;
            }
            let document = rng.between(0, self.documents) as usize;
            let mut blocks = documents.get(document).cloned().unwrap_or_default();
            let mut tokens = blocks.len() as u64 * block;
            for turn in 0..self.turns {
                let arrival = match turn {
                    0 => Arrival::At(Duration::from_secs_f64(begins)),
                    _ => Arrival::After {
                        previous: items.len() - 1,
                        think: Duration::from_secs_f64(rng.exponential(self.think.as_secs_f64())),
                    },
                };
                let question = rng
                    .between(self.question_tokens / 2, self.question_tokens * 3 / 2)
                    .max(1);
                let answer = rng
                    .between(self.answer_tokens / 2, self.answer_tokens * 3 / 2)
                    .max(1);
                let full = (tokens + question + answer) / block;
                blocks.extend(fresh.take(full - blocks.len() as u64));
                items.push(WorkItem {
                    arrival,
                    session: chat,
                    prompt_tokens: tokens + question,
                    output_tokens: answer,
                    blocks: blocks.clone(),
                });
                tokens += question + answer;
            }
            chat += 1;
        }
        Workload {
            name: "growing chats, shared documents".into(),
            block_tokens: self.block_tokens,
            items,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_begins_with_the_whole_turn_before() {
        let workload = Chats {
            lasting: Duration::from_secs(20),
            ..Chats::default()
        }
        .generate();
        let mut turns = 0;
        for item in &workload.items {
            assert_eq!(
                item.blocks.len() as u64,
                (item.prompt_tokens + item.output_tokens) / 16
            );
            if let Arrival::After { previous, .. } = item.arrival {
                let before = &workload.items[previous];
                assert_eq!(before.session, item.session);
                assert!(item.blocks.starts_with(&before.blocks));
                assert!(item.prompt_tokens > before.prompt_tokens + before.output_tokens);
                turns += 1;
            }
        }
        assert!(turns > 20);
    }

    #[test]
    fn equal_seeds_make_equal_workloads() {
        let chats = Chats {
            lasting: Duration::from_secs(20),
            ..Chats::default()
        };
        assert_eq!(chats.generate().items, chats.generate().items);
        assert_ne!(
            chats.generate().items,
            Chats { seed: 4, ..chats }.generate().items
        );
    }
}
