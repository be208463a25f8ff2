//! Tiles on their way from global to shared memory, by `cp.async`.
//!
//! Each thread copies chunks of 16 bytes. A group of copies is one tile, so "the tile has arrived" is: at most so many
//! younger groups are in flight, and then a barrier, since each thread waits for its own copies only. The same barrier
//! says that every warp is done with what it read before, which frees a slot.
//!
//! K has [`Config::K_STAGES`] slots, V one. A loop over key tiles takes two barriers either way:
//!
//! | | `keys` | `release_keys` | `values` |
//! |---|---|---|---|
//! | 1 slot | wait for K; start V | wait for V; start the next K | |
//! | 2 slots | wait for K; start V, start the next K | | wait for V |

use core::marker::PhantomData;

use cuda_std::Warp;

use crate::config::Config;
use crate::tile::{GlobalTile, SharedTile};

/// The tiles of one CTA's work.
pub struct Pipeline<W: Warp, C> {
    warp: W,
    copier: Copier<W, C>,
    k: GlobalTile,
    v: GlobalTile,
    /// Keys to visit.
    keys: u32,
    /// The slot of K that is being used, or is the next to be.
    stage: u32,
}

impl<W: Warp, C: Config> Pipeline<W, C> {
    const STAGE_BYTES: u32 = C::KV_BYTES as u32;

    /// Starts the copies of the query tile and of the first tile of K. The first `keys` rows of `k` and `v` will be
    /// visited.
    ///
    /// # Safety
    /// The global tiles are live, and shared memory is as large as the plan of `C` says.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn start(warp: W, q: GlobalTile, k: GlobalTile, v: GlobalTile, keys: u32) -> Self {
        const { assert!(C::K_STAGES == 1 || C::K_STAGES == 2) };
        let copier = Copier::new(warp, q.columns);
        // SAFETY: the caller's.
        unsafe {
            copier.copy(C::ROWS, q, SharedTile::query(warp));
            copier.copy(C::KEYS, k, SharedTile::keys(warp, 0));
        }
        warp.cp_async_commit_group();
        Pipeline { warp, copier, k, v, keys, stage: 0 }
    }

    /// The tile of K that begins at key `key`, arrived. Call once per tile, in order.
    ///
    /// # Safety
    /// As for [`Pipeline::start`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn keys(&mut self, key: u32) -> SharedTile<C> {
        self.warp.cp_async_wait_group::<0>();
        self.warp.sync_threads();
        let tile = SharedTile::keys(self.warp, self.stage * Self::STAGE_BYTES);
        // SAFETY: the caller's; no warp reads the last tile of V any more, nor the last but one of K.
        unsafe { self.copier.copy(C::KEYS, self.v.skip_rows(key), SharedTile::values(self.warp)) };
        self.warp.cp_async_commit_group();
        if C::K_STAGES == 2 {
            self.stage = 1 - self.stage;
            // SAFETY: the same.
            unsafe { self.start_keys(key + C::KEYS as u32) };
        }
        tile
    }

    /// This warp has read the tile of K that begins at key `key`.
    ///
    /// # Safety
    /// As for [`Pipeline::start`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn release_keys(&mut self, key: u32) {
        if C::K_STAGES == 1 {
            self.warp.cp_async_wait_group::<0>();
            self.warp.sync_threads();
            // SAFETY: the caller's; no warp reads this tile of K any more.
            unsafe { self.start_keys(key + C::KEYS as u32) };
        }
    }

    /// The tile of V beside the last tile of K, arrived.
    #[inline(always)]
    #[track_caller]
    pub fn values(&mut self) -> SharedTile<C> {
        if C::K_STAGES == 2 {
            // The next tile of K may stay in flight.
            self.warp.cp_async_wait_group::<1>();
            self.warp.sync_threads();
        }
        SharedTile::values(self.warp)
    }

    /// Starts the copy of the tile of K that begins at key `key`, if it is to be visited; the group may be empty.
    #[inline(always)]
    #[track_caller]
    unsafe fn start_keys(&self, key: u32) {
        if key < self.keys {
            let tile = SharedTile::keys(self.warp, self.stage * Self::STAGE_BYTES);
            // SAFETY: the caller's.
            unsafe { self.copier.copy(C::KEYS, self.k.skip_rows(key), tile) };
        }
        self.warp.cp_async_commit_group();
    }

    /// Waits for the copies that nobody waited for: a CTA without keys has read none.
    #[inline(always)]
    pub fn finish(self) {
        self.warp.cp_async_wait_group::<0>();
    }
}

/// A thread's part in the copies, which all threads of the CTA make together.
///
/// Threads stand side by side along the rows; each keeps its column and goes down in steps.
struct Copier<W: Warp, C> {
    warp: W,
    row: W::U32,
    chunk: W::U32,
    /// 16 where this thread's chunk is a valid column, else 0.
    bytes: W::U32,
    plan: PhantomData<C>,
}

impl<W: Warp, C: Config> Copier<W, C> {
    /// Chunks of a row.
    const CHUNKS: usize = C::ROW_BYTES / 16;
    /// Rows that all threads copy in one pass.
    const PASS: usize = C::THREADS / Self::CHUNKS;

    /// For matrices of `columns` valid columns; chunks beyond are zero-filled.
    #[inline(always)]
    fn new(warp: W, columns: u32) -> Self {
        const { assert!(C::THREADS.is_multiple_of(Self::CHUNKS) && Self::PASS.is_multiple_of(4)) };
        const { assert!(C::ROWS.is_multiple_of(Self::PASS) && C::KEYS.is_multiple_of(Self::PASS)) };
        let thread = warp.lane_id() + warp.splat(warp.warp_id() * 32);
        let (row, chunk) = (thread / Self::CHUNKS as u32, thread % Self::CHUNKS as u32);
        let valid = warp.less(chunk, warp.splat(columns / 8));
        let bytes = warp.select(valid, warp.splat(16), warp.splat(0));
        Copier { warp, row, chunk, bytes, plan: PhantomData }
    }

    /// Starts the copy of `rows` rows, from the matrix's first row on; rows that do not exist are zero-filled.
    ///
    /// # Safety
    /// The shared tile has `rows` rows, and the global one is live.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy(&self, rows: usize, from: GlobalTile, to: SharedTile<C>) {
        let source = from.chunk(self.warp, self.row, self.chunk);
        let place = to.place::<W>(self.row, self.chunk);
        let whole = from.rows >= rows as u32;
        let zero = self.warp.splat(0);
        for pass in 0..rows / Self::PASS {
            let row = pass * Self::PASS;
            let bytes = if whole {
                self.bytes
            } else {
                let exists = self.warp.less(self.row + row as u32, self.warp.splat(from.rows));
                self.warp.select(exists, self.bytes, zero)
            };
            // SAFETY: the caller's; rows that do not exist are not read.
            unsafe { self.warp.cp_async(place.at(row, 0), source + from.row_step(row as u32), bytes) };
        }
    }
}
