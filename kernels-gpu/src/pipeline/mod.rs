//! Tiles on their way from global to shared memory, by `cp.async`.
//!
//! Each thread copies chunks of 16 bytes. A group of copies is one tile, so "the tile has arrived" is: at most so many
//! younger groups are in flight, and then a barrier, since each thread waits for its own copies only. The same barrier
//! says that every warp is done with what it read before, which frees a slot.

mod ring;
mod stream;
mod tiles;

pub use ring::Ring;
pub use tiles::Tiles;
