//! The tokens of words met before, for all threads at once.
//!
//! Every word has one place, which follows from its letters, and the last word that came to a place has it. So what is remembered
//! never grows, follows what is being said, and nobody waits for anybody: a place has a count that is odd while somebody
//! writes to it, and whoever finds it odd or changed has simply not met the word. A place is one cache line.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Places; a power of two. A language has fewer words in common use, and those it has are not equally common.
const PLACES: usize = 1 << 15;

const KEY_WORDS: usize = 4;
const TOKEN_WORDS: usize = 3;

/// Longer parts are not remembered: they hardly ever come again. A byte is left for the length.
pub(super) const MAX_WORD_BYTES: usize = KEY_WORDS * size_of::<u64>() - 1;

/// Bits of a token's id, and how many ids go into a word: the number of tokens stands beside them.
const ID_BITS: u32 = super::super::MAX_VOCAB.trailing_zeros();
const IDS_A_WORD: usize = 3;
const COUNT_SHIFT: u32 = ID_BITS * IDS_A_WORD as u32;
const MAX_TOKENS: usize = IDS_A_WORD * TOKEN_WORDS;

/// The tokens of words.
#[derive(Debug)]
pub(super) struct Memory {
    places: Box<[Place]>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    /// Odd while the place is written to.
    version: AtomicU64,
    key: [AtomicU64; KEY_WORDS],
    tokens: [AtomicU64; TOKEN_WORDS],
}

/// The tokens of a word: their number and, three to a number, their ids.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens([u64; TOKEN_WORDS]);

/// A word as it is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key([u64; KEY_WORDS]);

impl Key {
    /// `None` of a part that is not remembered.
    pub(super) fn of(part: &str) -> Option<Self> {
        let mut bytes = [0; KEY_WORDS * size_of::<u64>()];
        bytes
            .get_mut(..part.len())?
            .copy_from_slice(part.as_bytes());
        // Refuses what fills all of it: the length would have no place.
        let length = u8::try_from(part.len()).ok()?;
        let last = bytes.last_mut().filter(|_| part.len() <= MAX_WORD_BYTES)?;
        *last = length;
        let (words, _) = bytes.as_chunks();
        let mut key = [0; KEY_WORDS];
        for (place, word) in key.iter_mut().zip(words) {
            *place = u64::from_le_bytes(*word);
        }
        Some(Self(key))
    }

    fn place(&self) -> usize {
        let [a, b, c, d] = self.0;
        let hash = folded(a ^ 0x9e37_79b9_7f4a_7c15, b ^ 0xbf58_476d_1ce4_e5b9)
            ^ folded(c ^ 0x94d0_49bb_1331_11eb, d ^ 0x2545_f491_4f6c_dd1d);
        hash as usize % PLACES
    }
}

fn folded(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product >> 64) as u64 ^ product as u64
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            places: (0..PLACES).map(|_| Place::default()).collect(),
        }
    }
}

impl Memory {
    /// Has the place of a word brought near. Words are scattered over more memory than a core has by it, and most of the time
    /// of a look-up is the way there.
    pub(super) fn prepare(&self, key: &Key) {
        if let Some(place) = self.places.get(key.place()) {
            kernels::prefetch(place);
        }
    }

    /// The tokens of a word, if it is remembered.
    pub(super) fn recall(&self, key: &Key) -> Option<Tokens> {
        let place = self.places.get(key.place())?;
        let version = place.version.load(Ordering::Acquire);
        let has_key = place
            .key
            .iter()
            .zip(key.0)
            .all(|(held, wanted)| held.load(Ordering::Relaxed) == wanted);
        if !has_key || version % 2 == 1 {
            return None;
        }
        let packed = place
            .tokens
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        // What was read is worth something only if nobody wrote meanwhile.
        fence(Ordering::Acquire);
        let is_whole = place.version.load(Ordering::Relaxed) == version;
        is_whole.then_some(Tokens(packed))
    }

    /// Remembers the tokens of a word, if they are few and nobody else writes in its place.
    pub(super) fn remember(&self, key: &Key, tokens: &[u32]) {
        let (Some(place), Some(packed)) = (self.places.get(key.place()), Tokens::pack(tokens))
        else {
            return;
        };
        let version = place.version.load(Ordering::Relaxed);
        let is_taken = version % 2 == 1
            || place
                .version
                .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_err();
        if is_taken {
            return;
        }
        // Whoever sees any of what follows sees the odd version, too.
        fence(Ordering::Release);
        for (held, word) in place.key.iter().zip(key.0) {
            held.store(word, Ordering::Relaxed);
        }
        for (held, word) in place.tokens.iter().zip(packed.0) {
            held.store(word, Ordering::Relaxed);
        }
        place.version.store(version + 2, Ordering::Release);
    }
}

impl Tokens {
    fn pack(tokens: &[u32]) -> Option<Self> {
        if tokens.len() > MAX_TOKENS || tokens.iter().any(|id| id >> ID_BITS != 0) {
            return None;
        }
        let mut packed = [0; TOKEN_WORDS];
        for (word, ids) in packed.iter_mut().zip(tokens.chunks(IDS_A_WORD)) {
            *word = ids
                .iter()
                .rev()
                .fold(0, |word, id| word << ID_BITS | u64::from(*id));
        }
        packed[0] |= (tokens.len() as u64) << COUNT_SHIFT;
        Some(Self(packed))
    }

    /// One after another.
    pub(super) fn ids(self) -> impl Iterator<Item = u32> {
        let count = (self.0[0] >> COUNT_SHIFT) as usize;
        let ids = self.0.into_iter().flat_map(|word| {
            let shifts = (0..COUNT_SHIFT).step_by(ID_BITS as usize);
            shifts.map(move |shift| (word >> shift) as u32 & ((1 << ID_BITS) - 1))
        });
        ids.take(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn recalled(memory: &Memory, word: &str) -> Option<Vec<u32>> {
        let tokens = memory.recall(&Key::of(word)?)?;
        Some(tokens.ids().collect())
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_recalled(
            word in "\\PC{1,12}",
            tokens in proptest::collection::vec(0..1_u32 << ID_BITS, 0..12),
        ) {
            let memory = Memory::default();
            if let Some(key) = Key::of(&word) {
                memory.remember(&key, &tokens);
            }
            let fits = word.len() <= MAX_WORD_BYTES && tokens.len() <= MAX_TOKENS;
            prop_assert_eq!(recalled(&memory, &word), fits.then_some(tokens));
        }
    }

    #[test]
    fn a_word_is_no_other_word() {
        let memory = Memory::default();
        memory.remember(&Key::of("a").unwrap(), &[1]);
        for other in ["b", "a\0", "\0a", "aa", " a"] {
            assert_eq!(recalled(&memory, other), None, "{other:?}");
        }
        assert!(Key::of(&"x".repeat(MAX_WORD_BYTES)).is_some());
        assert!(Key::of(&"x".repeat(MAX_WORD_BYTES + 1)).is_none());
    }

    #[test]
    fn ids_that_no_vocabulary_has_are_not_remembered() {
        let memory = Memory::default();
        memory.remember(&Key::of("a").unwrap(), &[1 << ID_BITS]);
        assert_eq!(recalled(&memory, "a"), None);
    }

    #[test]
    fn nobody_reads_half_of_what_was_written() {
        let memory = Memory::default();
        // Two words of one place: each takes it from the other, over and over.
        let first = Key::of("word 0").unwrap();
        let names = (1..).map(|number| format!("word {number}"));
        let second = names.map(|name| Key::of(&name).unwrap());
        let second = second.into_iter().find(|key| key.place() == first.place());
        let words = [first, second.unwrap()];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..20_000_u32 {
                        let which = round as usize % 2;
                        if let Some(tokens) = memory.recall(&words[which]) {
                            let tokens: Vec<u32> = tokens.ids().collect();
                            assert_eq!(tokens.len(), 9);
                            assert!(tokens.iter().all(|id| *id as usize % 2 == which));
                            assert!(tokens.windows(2).all(|pair| pair[0] == pair[1]));
                        }
                        memory.remember(&words[1 - which], &[round / 2 * 2 + 1 - which as u32; 9]);
                    }
                });
            }
        });
    }
}
