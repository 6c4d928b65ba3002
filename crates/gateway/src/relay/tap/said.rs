//! The text of a stream so far, kept for whoever has to continue it.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// The most text that is kept for a continuation; beyond it there is none.
const MAX_SAID_BYTES: usize = 1 << 20;

/// What is said beside text and cannot be continued.
static OTHER_SPEECH: LazyLock<[Finder<'static>; 4]> = LazyLock::new(|| {
    [
        "\"tool_calls\":[{",
        "\"reasoning_content\":\"",
        "\"reasoning\":\"",
        "\"function_call\":{",
    ]
    .map(Finder::new)
});

static CONTENT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"content\":\""));
static TEXT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"text\":\""));

/// Where the text of an event stands: what comes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextKey {
    /// In chats.
    Content,
    /// In completions.
    Text,
}

impl TextKey {
    fn finder(self) -> &'static Finder<'static> {
        match self {
            TextKey::Content => &CONTENT,
            TextKey::Text => &TEXT,
        }
    }
}

/// The text of a stream so far, as it stood in its JSON: escapes and all, so that it can go into another
/// body as it is.
#[derive(Debug)]
pub(super) struct Said {
    key: TextKey,
    pub(super) text: Vec<u8>,
}

impl Said {
    pub(super) fn under(key: TextKey) -> Self {
        Self {
            key,
            text: Vec::new(),
        }
    }
}

/// Keeps the text of an event. Anything that is not text makes a continuation impossible. True if the
/// event says no text yet.
pub(super) fn listen(said: &mut Option<Said>, event: &[u8]) -> bool {
    let Some(keeper) = said else {
        return false;
    };
    if OTHER_SPEECH.iter().any(|mark| mark.find(event).is_some()) {
        *said = None;
        return false;
    }
    let key = keeper.key.finder();
    let Some(at) = key.find(event) else {
        return true;
    };
    let text = escaped_text(event.get(at + key.needle().len()..).unwrap_or_default());
    if keeper.text.len() + text.len() > MAX_SAID_BYTES {
        *said = None;
        return false;
    }
    keeper.text.extend_from_slice(text);
    text.is_empty()
}

/// Up to the quote that ends a string.
fn escaped_text(rest: &[u8]) -> &[u8] {
    let mut at = 0;
    while let Some(step) = memchr::memchr2(b'"', b'\\', rest.get(at..).unwrap_or_default()) {
        at += step;
        if rest.get(at) == Some(&b'"') {
            return rest.get(..at).unwrap_or_default();
        }
        at += 2;
    }
    &[]
}
