//! The three places a tile can be: global memory, shared memory, registers.

mod accumulator;
mod global;
mod shared;
mod statistics;

pub use accumulator::{Accumulator, Rows, reduce_row};
pub use global::{GlobalTile, Operands};
pub use shared::{Place, SharedTile};
pub use statistics::Statistics;
