//! How many lanes carry connections at a time.
//!
//! A lane that sleeps between two pieces of a stream is woken for each of them, and waking up costs more than passing the
//! piece on. Few lanes with more to do are woken less often: a stream's price in processor time falls by a sixth when one lane
//! carries what two could. So what a lane can carry with ease stays together, and spreads as soon as it is more than that.
//! Without work to speak of all lanes are open: what comes next may be a burst.

/// The most that a lane should carry, as a share of its time, before others are opened.
const SPREADS_ABOVE: f64 = 0.6;
/// What lanes carry that are drawn together: enough below [`SPREADS_ABOVE`] to stay together.
const PACKS_TO: f64 = 0.4;
/// Less than this, of one lane's time, is no work to speak of.
const IDLE_BELOW: f64 = 0.03;
/// Looks in a row that must find too many lanes open before some are closed.
const PATIENCE: u32 = 3;

/// Follows the load of the lanes, and says how many of them are to be used.
#[derive(Debug)]
pub(super) struct Packing {
    lanes: usize,
    used: usize,
    /// Looks in a row that found fewer lanes to be enough.
    too_many: u32,
}

impl Packing {
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            lanes,
            used: lanes,
            too_many: 0,
        }
    }

    /// What is to be used from now on, if the lanes were `busy` for so many lanes' time together since the last look.
    pub(super) fn look(&mut self, busy: f64) -> usize {
        let enough = if busy < IDLE_BELOW {
            self.lanes
        } else {
            ((busy / PACKS_TO).ceil() as usize).clamp(1, self.lanes)
        };
        let crowded = busy > SPREADS_ABOVE * self.used as f64;
        if enough < self.used {
            self.too_many += 1;
        } else {
            self.too_many = 0;
        }
        if busy < IDLE_BELOW || (crowded && enough > self.used) || self.too_many >= PATIENCE {
            self.used = enough;
            self.too_many = 0;
        }
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(packing: &mut Packing, busy: f64, looks: usize) -> usize {
        (0..looks).fold(0, |_, _| packing.look(busy))
    }

    #[test]
    fn light_work_is_drawn_together_after_some_looks() {
        let mut packing = Packing::new(2);
        assert_eq!(after(&mut packing, 0.3, 2), 2);
        assert_eq!(packing.look(0.3), 1);
    }

    #[test]
    fn more_than_a_lane_should_carry_spreads_at_once() {
        let mut packing = Packing::new(4);
        assert_eq!(after(&mut packing, 0.3, 3), 1);
        assert_eq!(packing.look(0.7), 2);
        assert_eq!(packing.look(2.0), 4);
    }

    #[test]
    fn a_load_between_the_bounds_changes_nothing() {
        let mut packing = Packing::new(2);
        assert_eq!(after(&mut packing, 0.5, 10), 2);
        assert_eq!(after(&mut packing, 0.3, 3), 1);
        assert_eq!(after(&mut packing, 0.5, 10), 1);
    }

    #[test]
    fn idle_lanes_are_all_open() {
        let mut packing = Packing::new(8);
        assert_eq!(after(&mut packing, 0.3, 3), 1);
        assert_eq!(packing.look(0.0), 8);
        assert_eq!(after(&mut packing, 0.01, 20), 8);
    }

    #[test]
    fn a_moment_of_quiet_does_not_draw_together_what_is_busy() {
        let mut packing = Packing::new(2);
        for _ in 0..10 {
            assert_eq!(after(&mut packing, 0.3, 2), 2);
            assert_eq!(packing.look(1.2), 2);
        }
    }
}
