//! Tiles on their way from global to shared memory.
//!
//! By `cp.async`, each thread copies chunks of 16 bytes. A group of copies is one tile, so "the tile has arrived" is: at most
//! so many younger groups are in flight, and then a barrier, since each thread waits for its own copies only. The same
//! barrier says that every warp is done with what it read before, which frees a slot.
//!
//! By bulk copies, one lane asks for a whole box, and an mbarrier says that its bytes are there. With whole rows, mbarriers
//! also say when a slot is free, so that warps need not meet ([`BulkTiles`]). With panels they meet anyway.

mod bulk_panels;
mod bulk_tiles;
mod ring;
mod stream;
mod stream_panels;
mod tiles;

pub use bulk_panels::BulkPanels;
pub use bulk_tiles::BulkTiles;
pub use ring::{Panels, Ring};
pub use stream_panels::StreamPanels;
pub use tiles::Tiles;

use cuda_std::Warp;

use crate::tile::SharedTile;

/// Whole tiles of K and V, in the order in which the main loop takes them.
pub trait KeyTiles<W: Warp, C> {
    /// The query tile.
    fn query(&self) -> SharedTile;

    /// The tile of K that begins at key `key`, arrived. Call once per tile, in order.
    #[track_caller]
    fn keys(&mut self, key: u32) -> SharedTile;

    /// This warp has read the tile of K that begins at key `key`.
    #[track_caller]
    fn release_keys(&mut self, key: u32);

    /// The tile of V beside the last tile of K, arrived.
    #[track_caller]
    fn values(&mut self) -> SharedTile;

    /// This warp has read that tile of V, whose keys are those from `key` on.
    #[track_caller]
    fn release_values(&mut self, key: u32);

    /// No more tiles: this warp's rows of the query tile are free for its output.
    #[track_caller]
    fn finish(self);
}
