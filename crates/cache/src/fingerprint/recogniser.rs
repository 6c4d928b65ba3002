//! Recognising the same bytes again without reading them.
//!
//! Most repeats are byte for byte the same. Hashing a body is far cheaper than reading it, so the outcome of
//! reading is kept under the hash of the bytes. The hash is keyed and as wide as a fingerprint: nobody can
//! make two bodies meet.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Question, Route, Subject, Unclear, recognise};
use crate::secret::Keys;
use crate::store::Slots;

/// Bodies that are remembered. An entry is some 200 bytes, so these are a few megabytes.
const MAX_REMEMBERED: u64 = 32 << 10;

/// What recognising a body gave.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) question: Question,
    /// Where the epochs of its scopes are found.
    pub(crate) slots: OnceLock<Slots>,
    /// Counts who asked, so that variants take turns.
    turn: AtomicU32,
}

impl Known {
    /// The next of `count` variants.
    pub(crate) fn next_variant(&self, count: u8) -> u8 {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        u8::try_from(turn % u32::from(count.max(1))).unwrap_or(0)
    }
}

/// Recognises requests, the second time by their bytes alone.
pub(crate) struct Recogniser {
    keys: Keys,
    known: moka::sync::Cache<[u8; 32], Result<Arc<Known>, Unclear>>,
}

impl Recogniser {
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            keys,
            known: moka::sync::Cache::new(MAX_REMEMBERED),
        }
    }

    pub(crate) fn recognise(
        &self,
        subject: &Subject<'_>,
        body: &[u8],
    ) -> Result<Arc<Known>, Unclear> {
        let digest = self.digest(subject, body);
        if let Some(known) = self.known.get(&digest) {
            return known;
        }
        let known = recognise(&self.keys, subject, body).map(|question| {
            Arc::new(Known {
                question,
                slots: OnceLock::new(),
                turn: AtomicU32::new(0),
            })
        });
        self.known.insert(digest, known.clone());
        known
    }

    fn digest(&self, subject: &Subject<'_>, body: &[u8]) -> [u8; 32] {
        let mut head = Vec::with_capacity(128);
        head.push(match subject.route {
            Route::Chat => b'c',
            Route::Completions => b'p',
        });
        head.push(u8::from(subject.normalise_unicode));
        head.push(u8::from(subject.context.is_some()));
        for text in [
            subject.tenant,
            subject.model,
            subject.revision,
            subject.context.unwrap_or_default(),
        ] {
            super::write_text(&mut head, text);
        }
        let mut hasher = blake3::Hasher::new_keyed(&self.keys.digest);
        hasher.update(&head);
        hasher.update(body);
        *hasher.finalize().as_bytes()
    }
}
