//! Registers that change hands between groups of four warps (PTX ISA, "setmaxnreg").
//!
//! Registers are not counted here: ptxas does. But the hardware takes each change from a whole group at once, and what it
//! does with a group that is not of one mind is undefined; most often some warp waits for ever.

use std::fmt;
use std::panic::Location;

use crate::fault::{Fault, Place};

/// Warps of a group: those whose number divided by this is the same.
const GROUP: usize = 4;

/// A `setmaxnreg` that a warp executed. Two are the same instruction only if they stand on the same line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Change {
    increases: bool,
    count: u32,
    location: &'static Location<'static>,
}

impl Change {
    /// Refuses counts that the instruction does not encode.
    pub fn new(increases: bool, count: u32, place: Place) -> Result<Self, Fault> {
        match (24..=256).contains(&count) && count.is_multiple_of(8) {
            true => Ok(Change { increases, count, location: place.location }),
            false => Err(Fault::RegisterCount { count, access: place }),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.increases { "increases" } else { "decreases" };
        write!(f, "{verb} its registers to {} at {}", self.count, self.location)
    }
}

/// Refuses groups of which some warp has not changed its registers as the others have: `changes` are those of each warp of a
/// CTA, from its beginning to its end.
pub fn check(changes: &[Vec<Change>]) -> Result<(), Fault> {
    for (group, changes) in changes.chunks(GROUP).enumerate() {
        // The hardware has whole groups only: in a last one with fewer warps the others never come.
        let longest = changes.iter().map(Vec::len).max().unwrap_or(0);
        for i in 0..longest {
            let of = |warp: usize| changes.get(warp).and_then(|changes| changes.get(i));
            if (1..GROUP).all(|warp| of(warp) == of(0)) {
                continue;
            }
            let position = |warp: usize| match (of(warp), GROUP * group + warp) {
                (Some(change), warp) => format!("warp {warp} {change}"),
                (None, warp) if warp % GROUP < changes.len() => format!("warp {warp} does not"),
                (None, warp) => format!("there is no warp {warp}"),
            };
            return Err(Fault::RegistersApart { positions: (0..GROUP).map(position).collect() });
        }
    }
    Ok(())
}
