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

use twox_hash::XxHash3_64;

use crate::hash::HashedMap;
use crate::keys::{BlockKey, Root, TokenChain};

/// What an entry costs beside its keys: the maps' slots and a block of unfinished tokens.
const ENTRY_BYTES: usize = 2 * size_of::<TokenChain>() + 256;

/// One fingerprint per message, each standing for all messages up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trail(Vec<u64>);

impl Trail {
    /// Fingerprints messages, given as the bytes that decide their tokens (role, name, content).
    pub fn over<'a>(root: Root, messages: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let (seed, mut parent) = root.parts();
        // Another seed than the blocks': a message is no block.
        let seed = seed.rotate_left(17);
        let prints = messages
            .into_iter()
            .map(|message| {
                let own = XxHash3_64::oneshot_with_seed(seed, message);
                parent = crate::hash::mix(parent.rotate_left(9) ^ own);
                parent
            })
            .collect();
        Self(prints)
    }
}

/// A bounded memory of chains by message prefix; the longest unused is forgotten first.
pub struct ChainMemo {
    byte_cap: usize,
    bytes: usize,
    clock: u64,
    entries: HashedMap<u64, (u64, TokenChain)>,
    by_age: BTreeMap<u64, u64>,
}

impl ChainMemo {
    /// An empty memory that never takes more than this.
    pub fn new(byte_cap: usize) -> Self {
        Self {
            byte_cap,
            bytes: 0,
            clock: 0,
            entries: HashedMap::default(),
            by_age: BTreeMap::new(),
        }
    }

    /// The chain of the longest remembered prefix, and how many messages it covers.
    pub fn longest(&mut self, trail: &Trail) -> Option<(usize, TokenChain)> {
        let last = trail
            .0
            .iter()
            .rposition(|print| self.entries.contains_key(print))?;
        let print = trail.0.get(last)?;
        self.clock += 1;
        let (stamp, chain) = self.entries.get_mut(print)?;
        self.by_age.remove(stamp);
        *stamp = self.clock;
        self.by_age.insert(self.clock, *print);
        Some((last + 1, chain.clone()))
    }

    /// Remembers the chain of a whole chat.
    pub fn remember(&mut self, trail: &Trail, chain: TokenChain) {
        let Some(print) = trail.0.last().copied() else {
            return;
        };
        self.forget(print);
        self.clock += 1;
        self.bytes += cost(&chain);
        self.entries.insert(print, (self.clock, chain));
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
        if let Some((stamp, chain)) = self.entries.remove(&print) {
            self.by_age.remove(&stamp);
            self.bytes -= cost(&chain);
        }
    }
}

fn cost(chain: &TokenChain) -> usize {
    ENTRY_BYTES + chain.capacity() * size_of::<BlockKey>()
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
