//! Numbers in bytes and out again. What is read is as long as it should be, or nothing.

use crate::keys::Name;

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    pub(crate) fn small(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn large(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn huge(&mut self) -> Option<u128> {
        self.take().map(u128::from_le_bytes)
    }

    /// An amount; what is not finite is none.
    pub(crate) fn amount(&mut self) -> Option<f64> {
        self.take()
            .map(f64::from_le_bytes)
            .filter(|amount| amount.is_finite())
    }

    pub(crate) fn name(&mut self) -> Option<Name> {
        self.take().map(Name)
    }

    /// Up to `most` things, with their count in front.
    pub(crate) fn list<T>(
        &mut self,
        most: usize,
        mut read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = usize::from(self.small()?);
        if count > most {
            return None;
        }
        (0..count).map(|_| read(self)).collect()
    }

    /// Whether nothing is left.
    pub(crate) fn is_done(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends the count and the first `most` things.
pub(crate) fn write_list<T>(
    out: &mut Vec<u8>,
    list: &[T],
    most: usize,
    mut write: impl FnMut(&mut Vec<u8>, &T),
) {
    let most = most.min(usize::from(u16::MAX));
    let list = list.get(..most).unwrap_or(list);
    out.extend_from_slice(&(list.len() as u16).to_le_bytes());
    for one in list {
        write(out, one);
    }
}
