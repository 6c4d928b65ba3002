//! The last messages, for listeners that missed some.

use std::collections::VecDeque;

use bytes::Bytes;

/// Most messages kept (vLLM's default).
const MAX_MESSAGES: usize = 10_000;

/// Most bytes kept in payloads.
const MAX_BYTES: usize = 64 << 20;

/// Consecutive messages, the oldest of which are forgotten first.
#[derive(Debug, Default)]
pub(super) struct ReplayBuffer {
    messages: VecDeque<(u64, Bytes)>,
    bytes: usize,
    next_sequence: u64,
}

impl ReplayBuffer {
    /// Keeps a payload and gives it its sequence number.
    pub(super) fn push(&mut self, payload: Bytes) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.bytes += payload.len();
        self.messages.push_back((sequence, payload));
        while self.messages.len() > MAX_MESSAGES || self.bytes > MAX_BYTES {
            match self.messages.pop_front() {
                Some((_, forgotten)) => self.bytes -= forgotten.len(),
                None => break,
            }
        }
        sequence
    }

    /// What is still kept from `first` on.
    pub(super) fn from(&self, first: u64) -> Vec<(u64, Bytes)> {
        let start = self
            .messages
            .partition_point(|(sequence, _)| *sequence < first);
        self.messages.range(start..).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_messages_are_forgotten_first() {
        let mut buffer = ReplayBuffer::default();
        for sequence in 0..MAX_MESSAGES as u64 + 5 {
            assert_eq!(buffer.push(Bytes::from_static(b"x")), sequence);
        }
        assert_eq!(buffer.from(0).first().unwrap().0, 5);
        assert_eq!(buffer.from(MAX_MESSAGES as u64 + 4).len(), 1);
        assert!(buffer.from(u64::MAX).is_empty());
    }

    #[test]
    fn large_messages_are_bounded_by_their_bytes() {
        let mut buffer = ReplayBuffer::default();
        for _ in 0..3 {
            buffer.push(Bytes::from(vec![0; MAX_BYTES / 2]));
        }
        assert_eq!(buffer.from(0).len(), 2);
    }
}
