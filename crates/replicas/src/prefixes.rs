//! Which prompts went to which worker: what another gateway would have to find out by sending the next one
//! elsewhere. A hint; bounded in every direction, and whoever misses one loses nothing but time.

use std::collections::HashSet;

use crate::codec::{Reader, write_list};
use crate::keys::{Keys, Name};

const MAGIC: [u8; 4] = *b"FSRP";
const VERSION: u8 = 1;

/// Blocks of one prompt that are told: a prefix of a prompt is a prefix, too.
pub const MAX_BLOCKS: usize = 1024;

/// Prompts in one message.
pub const MAX_PREFIXES: usize = 256;

/// Blocks in one message: 32 KiB.
const MAX_BLOCKS_OF_ALL: usize = 4096;

/// Prompts that were told lately and are not told again.
const REMEMBERED: usize = 4096;

/// A prompt and who has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix {
    /// Who.
    pub worker: Name,
    /// The keys of its blocks, made with the group's seed.
    pub keys: Vec<u64>,
}

/// As they are sent, with who sends them.
pub(crate) fn encode(keys: &Keys, sender: u128, prefixes: &[Prefix]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + MAX_BLOCKS_OF_ALL * 8);
    out.extend_from_slice(&MAGIC);
    out.push(VERSION);
    out.extend_from_slice(&sender.to_le_bytes());
    write_list(&mut out, prefixes, MAX_PREFIXES, |out, prefix| {
        out.extend_from_slice(&prefix.worker.0);
        write_list(out, &prefix.keys, MAX_BLOCKS, |out, key| {
            out.extend_from_slice(&key.to_le_bytes());
        });
    });
    keys.seal(out)
}

/// Reads what another gateway has sent, and who it was.
pub(crate) fn decode(keys: &Keys, sealed: &[u8]) -> Option<(u128, Vec<Prefix>)> {
    let message = keys.unseal(sealed)?.strip_prefix(&MAGIC)?;
    let mut reader = Reader(message.strip_prefix(&[VERSION])?);
    let sender = reader.huge()?;
    let prefixes = reader.list(MAX_PREFIXES, |reader| {
        Some(Prefix {
            worker: reader.name()?,
            keys: reader.list(MAX_BLOCKS, Reader::large)?,
        })
    })?;
    reader.is_done().then_some((sender, prefixes))
}

/// What is to be told: each prompt once in a while, and no more than fits.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    told: HashSet<(Name, u64)>,
    told_before: HashSet<(Name, u64)>,
}

impl Outbox {
    /// The part of these that is worth a message.
    pub(crate) fn choose(&mut self, prefixes: Vec<Prefix>) -> Vec<Prefix> {
        let mut room = MAX_BLOCKS_OF_ALL;
        let mut chosen = Vec::new();
        for mut prefix in prefixes.into_iter().take(MAX_PREFIXES) {
            prefix.keys.truncate(MAX_BLOCKS.min(room));
            let Some(last) = prefix.keys.last() else {
                continue;
            };
            // The last key stands for all before it.
            let mark = (prefix.worker, *last);
            if self.told_before.contains(&mark) || !self.told.insert(mark) {
                continue;
            }
            if self.told.len() >= REMEMBERED / 2 {
                self.told_before = std::mem::take(&mut self.told);
            }
            room -= prefix.keys.len();
            chosen.push(prefix);
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(worker: u8, keys: impl IntoIterator<Item = u64>) -> Prefix {
        Prefix {
            worker: Name([worker; 16]),
            keys: keys.into_iter().collect(),
        }
    }

    #[test]
    fn a_prompt_is_told_once_per_worker() {
        let mut outbox = Outbox::default();
        let chosen = outbox.choose(vec![
            prefix(1, [1, 2]),
            prefix(1, [1, 2]),
            prefix(2, [1, 2]),
            prefix(1, [1, 2, 3]),
            prefix(1, []),
        ]);
        assert_eq!(chosen.len(), 3);
        assert!(outbox.choose(vec![prefix(2, [1, 2])]).is_empty());
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_memory_is_bounded() {
        let mut outbox = Outbox::default();
        let long = (0..100).map(|number| prefix(1, number * 10_000..number * 10_000 + 2000));
        let chosen = outbox.choose(long.collect());
        let blocks: usize = chosen.iter().map(|prefix| prefix.keys.len()).sum();
        assert_eq!(blocks, MAX_BLOCKS_OF_ALL);
        assert!(chosen.iter().all(|prefix| prefix.keys.len() <= MAX_BLOCKS));
        for number in 0..10 * REMEMBERED as u64 {
            outbox.choose(vec![prefix(2, [number])]);
        }
        assert!(outbox.told.len() + outbox.told_before.len() <= REMEMBERED);
    }

    proptest! {
        #[test]
        fn what_was_sent_is_read(
            sent in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u64>(), 0..9)), 0..9),
        ) {
            let keys = Keys::new("s", "g");
            let sent: Vec<Prefix> = sent.into_iter().map(|(worker, keys)| prefix(worker, keys)).collect();
            let sealed = encode(&keys, 5, &sent);
            prop_assert_eq!(decode(&keys, &sealed), Some((5, sent)));
        }

        #[test]
        fn nonsense_is_not_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let keys = Keys::new("s", "g");
            let message = [MAGIC.as_slice(), &[VERSION], &bytes].concat();
            let _ = decode(&keys, &keys.seal(message));
            prop_assert_eq!(decode(&keys, &bytes), None);
        }
    }
}
