//! Blocks that nobody holds but that may be wanted again, in the order in which they fell idle.

/// No neighbour.
const NONE: u32 = u32::MAX;

/// A doubly linked list over block numbers: every operation takes constant time, and nothing is
/// allocated after the start.
#[derive(Debug)]
pub(crate) struct IdleList {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
}

impl IdleList {
    /// An empty list with room for blocks `0..blocks`.
    pub(crate) fn new(blocks: usize) -> Self {
        let unlinked = Link {
            older: NONE,
            newer: NONE,
        };
        Self {
            links: vec![unlinked; blocks],
            oldest: NONE,
            newest: NONE,
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a block that is not in the list, as the newest.
    pub(crate) fn push(&mut self, block: u32) {
        self.links[block as usize] = Link {
            older: self.newest,
            newer: NONE,
        };
        match self.newest {
            NONE => self.oldest = block,
            newest => self.links[newest as usize].newer = block,
        }
        self.newest = block;
        self.len += 1;
    }

    /// Takes a block that is in the list out of it.
    pub(crate) fn remove(&mut self, block: u32) {
        let Link { older, newer } = self.links[block as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        self.len -= 1;
    }

    /// Takes the block that has been idle longest.
    pub(crate) fn pop_oldest(&mut self) -> Option<u32> {
        if self.oldest == NONE {
            return None;
        }
        let block = self.oldest;
        self.remove(block);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_leave_in_the_order_in_which_they_fell_idle() {
        let mut list = IdleList::new(4);
        for block in [2, 0, 3, 1] {
            list.push(block);
        }
        list.remove(3);
        list.remove(2);
        list.push(2);
        assert_eq!(list.len(), 3);
        assert_eq!(
            std::iter::from_fn(|| list.pop_oldest()).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert_eq!(list.len(), 0);
    }
}
