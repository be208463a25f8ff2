//! Whole tiles of K and V, for persist-D.
//!
//! K has [`PersistD::K_STAGES`] slots, V one. A loop over key tiles takes two barriers either way:
//!
//! | | `keys` | `release_keys` | `values` |
//! |---|---|---|---|
//! | 1 slot | wait for K; start V | wait for V; start the next K | |
//! | 2 slots | wait for K; start V, start the next K | | wait for V |

use cuda_std::Warp;

use super::KeyTiles;
use super::stream::Stream;
use crate::config::{PersistD, Shape};
use crate::tile::{GlobalTile, SharedTile};

/// The tiles of K and V of one CTA's work.
pub struct Tiles<W: Warp, C> {
    warp: W,
    k: Stream<W, C>,
    v: Stream<W, C>,
    /// Keys to visit.
    keys: u32,
    /// The slot of K that is being used, or is the next to be.
    stage: u32,
}

impl<W: Warp, C: PersistD> Tiles<W, C> {
    /// The slot of K that is being used, or is the next to be.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn keys_tile(&self) -> SharedTile {
        let first = SharedTile::rows(self.warp, C::K_OFFSET, C::KEY.row_bytes);
        first.skip_bytes(self.stage * C::KEY.bytes() as u32)
    }

    /// The slot of V.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn values_tile(&self) -> SharedTile {
        SharedTile::rows(self.warp, C::V_OFFSET, C::VALUE.row_bytes)
    }

    /// Starts the copies of the query tile and of the first tile of K. The first `keys` rows of `k` and `v` will be
    /// visited.
    ///
    /// # Safety
    /// The global tiles are live as long as the pipeline is, and shared memory is as large as the plan of `C` says.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn start(warp: W, q: GlobalTile, k: GlobalTile, v: GlobalTile, keys: u32) -> Self {
        const { assert!(C::K_STAGES == 1 || C::K_STAGES == 2) };
        let stream = |matrix, shape: Shape| Stream::<W, C>::new(warp, matrix, shape.row_bytes);
        let (k, v) = (stream(k, C::KEY), stream(v, C::VALUE));
        let mut tiles = Tiles { warp, k, v, keys, stage: 0 };
        // SAFETY: the caller's.
        unsafe {
            stream(q, C::QUERY).copy(C::ROWS, 0, tiles.query());
            tiles.k.copy(C::KEYS, 0, tiles.keys_tile());
        }
        tiles.k.advance(C::KEYS);
        warp.cp_async_commit_group();
        tiles
    }

    /// Starts the copy of the tile of K that begins at key `key` to a slot that is free, if the tile is to be visited; the
    /// group may be empty.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn start_keys(&mut self, key: u32) {
        if key < self.keys {
            let tile = self.keys_tile();
            // SAFETY: start's; the slot is free.
            unsafe { self.k.copy(C::KEYS, 0, tile) };
            self.k.advance(C::KEYS);
        }
        self.warp.cp_async_commit_group();
    }
}

impl<W: Warp, C: PersistD> KeyTiles<W, C> for Tiles<W, C> {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn query(&self) -> SharedTile {
        SharedTile::rows(self.warp, 0, C::QUERY.row_bytes)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn keys(&mut self, key: u32) -> SharedTile {
        self.warp.cp_async_wait_group::<0>();
        self.warp.sync_threads();
        let tile = self.keys_tile();
        // SAFETY: start's; no warp reads the last tile of V any more, nor the last but one of K.
        unsafe { self.v.copy(C::VALUE.rows, 0, self.values_tile()) };
        self.v.advance(C::VALUE.rows);
        self.warp.cp_async_commit_group();
        if C::K_STAGES == 2 {
            self.stage = 1 - self.stage;
            self.start_keys(key + C::KEYS as u32);
        }
        tile
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn release_keys(&mut self, key: u32) {
        if C::K_STAGES == 1 {
            self.warp.cp_async_wait_group::<0>();
            self.warp.sync_threads();
            self.start_keys(key + C::KEYS as u32);
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn values(&mut self) -> SharedTile {
        if C::K_STAGES == 2 {
            // The next tile of K may stay in flight.
            self.warp.cp_async_wait_group::<1>();
            self.warp.sync_threads();
        }
        self.values_tile()
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn release_values(&mut self, _key: u32) {}

    /// Waits for the copies that nobody waited for, those of a CTA without keys.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn finish(self) {
        self.warp.cp_async_wait_group::<0>();
        self.warp.sync_threads();
    }
}
