//! Remembering the keys of a chat, so that its next turn only names what is new.
//!
//! A chat comes back whole with every turn. Its messages are fingerprinted as they come (a [`Trail`]), the
//! longest prefix of messages seen before is looked up, and only what follows needs to be tokenised and hashed:
//! a [`TokenChain`] remembers its unfinished block, so the old tokens themselves are not needed.
//!
//! ```
//! use forespeak_routing::keys::{KeySeed, Root, TokenChain};
//! use forespeak_routing::memo::{ChainMemo, Trail};
//!
//! let root = Root::new(KeySeed(1), "tenant", None);
//! let tokenize = |message: &str| message.bytes().map(u32::from).collect::<Vec<_>>();
//! let mut memo = ChainMemo::new(1 << 20);
//!
//! let mut turn = |messages: &[&str]| {
//!     let trail = Trail::over(root, messages.iter().map(|message| message.as_bytes()));
//!     let (known, mut chain) = memo.longest(&trail).unwrap_or((0, TokenChain::new(root, 4)));
//!     messages[known..].iter().for_each(|message| chain.extend(&tokenize(message)));
//!     memo.remember(&trail, chain);
//!     known
//! };
//! assert_eq!(turn(&["be brief", "hello"]), 0);
//! assert_eq!(turn(&["be brief", "hello", "hi", "how are you?"]), 2);
//! assert_eq!(turn(&["be brief", "good evening"]), 0);
//! ```

use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::gradual::GradualMap;
use crate::hash::mix;
use crate::keys::{Root, TokenChain};

/// What an entry costs beside its value: the maps' slots.
const ENTRY_BYTES: usize = 256;

/// One fingerprint per message, each standing for all messages up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trail(Vec<u64>);

impl Trail {
    /// Fingerprints messages, given as the bytes that decide their tokens (role, name, content).
    pub fn over<'a>(root: Root, messages: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let (seed, mut parent) = seed_and_start(root);
        let prints = messages
            .into_iter()
            .map(|message| {
                parent = extended(seed, parent, message);
                parent
            })
            .collect();
        Self(prints)
    }

    /// The same for messages that come in pieces, one fingerprint per message. Other pieces of the same bytes make another message.
    pub fn over_pieces<'a, P>(root: Root, messages: impl IntoIterator<Item = P>) -> Self
    where
        P: IntoIterator<Item = &'a [u8]>,
    {
        let (seed, mut parent) = seed_and_start(root);
        let prints = messages
            .into_iter()
            .map(|pieces| {
                for piece in pieces {
                    parent = extended(seed, parent, piece);
                }
                parent
            })
            .collect();
        Self(prints)
    }

    /// The fingerprint of the first so many messages; `None` for none of them or more than there are.
    pub fn print(&self, messages: usize) -> Option<u64> {
        self.0.get(messages.checked_sub(1)?).copied()
    }
}

/// The fingerprint of a whole: what the last message of a [`Trail`] over the same parts has.
pub fn fingerprint<'a>(root: Root, parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let (seed, start) = seed_and_start(root);
    parts
        .into_iter()
        .fold(start, |parent, part| extended(seed, parent, part))
}

fn seed_and_start(root: Root) -> (u64, u64) {
    let (seed, parent) = root.parts();
    // Another seed than the blocks': a message is no block.
    (seed.rotate_left(17), parent)
}

fn extended(seed: u64, parent: u64, message: &[u8]) -> u64 {
    let own = XxHash3_64::oneshot_with_seed(seed, message);
    mix(parent.rotate_left(9) ^ own)
}

/// A value that knows what it takes in memory.
pub trait Weighed {
    /// Bytes, its own and those it owns.
    fn bytes(&self) -> usize;
}

impl Weighed for TokenChain {
    fn bytes(&self) -> usize {
        self.heap_bytes() + size_of::<Self>()
    }
}

impl<T: Weighed> Weighed for Arc<T> {
    fn bytes(&self) -> usize {
        T::bytes(self) + size_of::<Self>()
    }
}

/// A bounded memory of chains by message prefix; the longest unused is forgotten first.
pub type ChainMemo = Memo<TokenChain>;

/// A bounded memory of values by fingerprint; the longest unused is forgotten first.
pub struct Memo<V> {
    byte_cap: usize,
    bytes: usize,
    clock: u64,
    entries: GradualMap<(u64, V)>,
    by_age: BTreeMap<u64, u64>,
}

impl<V: Clone + Weighed> Memo<V> {
    /// An empty memory that never takes more than this.
    pub fn new(byte_cap: usize) -> Self {
        Self {
            byte_cap,
            bytes: 0,
            clock: 0,
            entries: GradualMap::default(),
            by_age: BTreeMap::new(),
        }
    }

    /// What is remembered under a fingerprint.
    pub fn get(&mut self, print: u64) -> Option<V> {
        let (stamp, value) = self.entries.get_mut(print)?;
        self.clock += 1;
        self.by_age.remove(stamp);
        *stamp = self.clock;
        self.by_age.insert(self.clock, print);
        Some(value.clone())
    }

    /// The value of the longest remembered prefix, and how many messages it covers.
    pub fn longest(&mut self, trail: &Trail) -> Option<(usize, V)> {
        let last = trail
            .0
            .iter()
            .rposition(|print| self.entries.contains(*print))?;
        let print = trail.0.get(last)?;
        Some((last + 1, self.get(*print)?))
    }

    /// Remembers the value of a whole chat.
    pub fn remember(&mut self, trail: &Trail, value: V) {
        if let Some(print) = trail.0.last() {
            self.put(*print, value);
        }
    }

    /// Remembers a value under a fingerprint.
    pub fn put(&mut self, print: u64, value: V) {
        self.forget(print);
        self.clock += 1;
        self.bytes += cost(&value);
        self.entries.insert(print, (self.clock, value));
        self.by_age.insert(self.clock, print);
        while self.bytes > self.byte_cap {
            let Some((_, oldest)) = self.by_age.first_key_value() else {
                return;
            };
            self.forget(*oldest);
        }
    }

    /// What it takes now.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn forget(&mut self, print: u64) {
        if let Some((stamp, value)) = self.entries.remove(print) {
            self.by_age.remove(&stamp);
            self.bytes -= cost(&value);
        }
    }
}

fn cost(value: &impl Weighed) -> usize {
    ENTRY_BYTES + value.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeySeed;

    fn root(tenant: &str) -> Root {
        Root::new(KeySeed(3), tenant, None)
    }

    fn chain(tokens: usize) -> TokenChain {
        let mut chain = TokenChain::new(root("a"), 16);
        chain.extend(&vec![1; tokens]);
        chain
    }

    fn trail(tenant: &str, messages: &[&str]) -> Trail {
        Trail::over(
            root(tenant),
            messages.iter().map(|message| message.as_bytes()),
        )
    }

    #[test]
    fn a_chat_of_another_tenant_is_not_found() {
        let mut memo = ChainMemo::new(1 << 20);
        memo.remember(&trail("a", &["x"]), chain(64));
        assert!(memo.longest(&trail("a", &["x", "y"])).is_some());
        assert!(memo.longest(&trail("b", &["x", "y"])).is_none());
    }

    #[test]
    fn messages_cut_differently_are_different_chats() {
        let mut memo = ChainMemo::new(1 << 20);
        memo.remember(&trail("a", &["xy"]), chain(64));
        assert!(memo.longest(&trail("a", &["x", "y"])).is_none());
    }

    #[test]
    fn a_message_of_one_piece_is_that_message() {
        let whole = trail("a", &["x", "y"]);
        let pieces: [&[&[u8]]; 2] = [&[b"x"], &[b"y"]];
        let in_pieces =
            Trail::over_pieces(root("a"), pieces.map(|message| message.iter().copied()));
        assert_eq!(whole, in_pieces);
    }

    #[test]
    fn memory_stays_below_its_cap_and_keeps_the_newest() {
        let cap = 4 * cost(&chain(160));
        let mut memo = ChainMemo::new(cap);
        let names: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        for name in &names {
            memo.remember(&trail("a", &[name]), chain(160));
            assert!(memo.bytes() <= cap);
        }
        assert!(memo.longest(&trail("a", &["19"])).is_some());
        assert!(memo.longest(&trail("a", &["0"])).is_none());
    }
}
