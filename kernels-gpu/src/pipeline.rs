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
    k: Stream<W, C>,
    v: Stream<W, C>,
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
    /// The global tiles are live as long as the pipeline is, and shared memory is as large as the plan of `C` says.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn start(warp: W, q: GlobalTile, k: GlobalTile, v: GlobalTile, keys: u32) -> Self {
        const { assert!(C::K_STAGES == 1 || C::K_STAGES == 2) };
        let mut pipeline =
            Pipeline { warp, k: Stream::new(warp, k), v: Stream::new(warp, v), keys, stage: 0 };
        // SAFETY: the caller's.
        unsafe {
            Stream::<W, C>::new(warp, q).copy(C::ROWS, SharedTile::query(warp));
            pipeline.k.copy(C::KEYS, SharedTile::keys(warp, 0));
        }
        warp.cp_async_commit_group();
        pipeline
    }

    /// The tile of K that begins at key `key`, arrived. Call once per tile, in order.
    #[inline(always)]
    #[track_caller]
    pub fn keys(&mut self, key: u32) -> SharedTile<C> {
        self.warp.cp_async_wait_group::<0>();
        self.warp.sync_threads();
        let tile = SharedTile::keys(self.warp, self.stage * Self::STAGE_BYTES);
        // SAFETY: start's; no warp reads the last tile of V any more, nor the last but one of K.
        unsafe { self.v.copy(C::KEYS, SharedTile::values(self.warp)) };
        self.warp.cp_async_commit_group();
        if C::K_STAGES == 2 {
            self.stage = 1 - self.stage;
            self.start_keys(key + C::KEYS as u32);
        }
        tile
    }

    /// This warp has read the tile of K that begins at key `key`.
    #[inline(always)]
    #[track_caller]
    pub fn release_keys(&mut self, key: u32) {
        if C::K_STAGES == 1 {
            self.warp.cp_async_wait_group::<0>();
            self.warp.sync_threads();
            self.start_keys(key + C::KEYS as u32);
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

    /// Starts the copy of the tile of K that begins at key `key` to a slot that is free, if the tile is to be visited; the
    /// group may be empty.
    #[inline(always)]
    #[track_caller]
    fn start_keys(&mut self, key: u32) {
        if key < self.keys {
            let tile = SharedTile::keys(self.warp, self.stage * Self::STAGE_BYTES);
            // SAFETY: start's; the slot is free.
            unsafe { self.k.copy(C::KEYS, tile) };
        }
        self.warp.cp_async_commit_group();
    }

    /// Waits for the copies that nobody waited for, those of a CTA without keys. Now all of shared memory is free.
    #[inline(always)]
    #[track_caller]
    pub fn finish(self) {
        self.warp.cp_async_wait_group::<0>();
        self.warp.sync_threads();
    }
}

/// A matrix on its way into shared memory, tile after tile, as one thread sees it.
///
/// All threads of the CTA copy together. They stand side by side along the rows; each keeps its column and goes down in
/// steps.
struct Stream<W: Warp, C> {
    warp: W,
    /// This thread's chunk of the first row of the next tile.
    source: W::U64,
    /// 16 where that chunk is a valid column, else 0.
    bytes: W::U32,
    /// Bytes from one row to the next.
    row_stride: u32,
    /// Rows not yet copied.
    rows: u32,
    plan: PhantomData<C>,
}

impl<W: Warp, C: Config> Stream<W, C> {
    /// Chunks of a row.
    const CHUNKS: usize = C::ROW_BYTES / 16;
    /// Rows that all threads copy in one pass.
    const PASS: usize = C::THREADS / Self::CHUNKS;

    /// This thread's row in the first pass, and its chunk.
    #[inline(always)]
    fn place(warp: W) -> (W::U32, W::U32) {
        let thread = warp.lane_id() + warp.splat(warp.warp_id() * 32);
        (thread / Self::CHUNKS as u32, thread % Self::CHUNKS as u32)
    }

    /// From the first row of `matrix` on. Columns beyond the valid ones are zero-filled.
    #[inline(always)]
    fn new(warp: W, matrix: GlobalTile) -> Self {
        const { assert!(C::THREADS.is_multiple_of(Self::CHUNKS) && Self::PASS.is_multiple_of(4)) };
        const { assert!(C::ROWS.is_multiple_of(Self::PASS) && C::KEYS.is_multiple_of(Self::PASS)) };
        let (row, chunk) = Self::place(warp);
        let valid = warp.less(chunk, warp.splat(matrix.columns / 8));
        Stream {
            warp,
            source: matrix.chunk(warp, row, chunk),
            bytes: warp.select(valid, warp.splat(16), warp.splat(0)),
            row_stride: matrix.row_stride,
            rows: matrix.rows,
            plan: PhantomData,
        }
    }

    /// Starts the copy of the next `rows` rows to a tile; rows that do not exist are zero-filled.
    ///
    /// # Safety
    /// The tile has `rows` rows, and the matrix is live.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy(&mut self, rows: usize, to: SharedTile<C>) {
        let (warp, row) = (self.warp, Self::place(self.warp).0);
        // Whole tiles are nearly all of them, and their copies are on the critical path of every step: they ask for
        // nothing per row.
        if self.rows >= rows as u32 {
            // SAFETY: the caller's.
            unsafe { self.copy_rows(rows, to, |_| self.bytes) };
        } else {
            let (zero, exist) = (warp.splat(0), warp.splat(self.rows));
            let bytes = |pass: u32| warp.select(warp.less(row + pass, exist), self.bytes, zero);
            // SAFETY: the caller's; rows that do not exist are not read.
            unsafe { self.copy_rows(rows, to, bytes) };
        }
        self.source = self.source + self.row_bytes(rows);
        self.rows = self.rows.saturating_sub(rows as u32);
    }

    /// Starts the copy of `rows` rows; `bytes` says how many bytes of this thread's chunk, given the pass's first row.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy_rows(&self, rows: usize, to: SharedTile<C>, bytes: impl Fn(u32) -> W::U32) {
        let (row, chunk) = Self::place(self.warp);
        let place = to.place::<W>(row, chunk);
        for pass in 0..rows / Self::PASS {
            let row = pass * Self::PASS;
            // SAFETY: the caller's.
            unsafe {
                self.warp.cp_async(place.at(row, 0), self.source + self.row_bytes(row), bytes(row as u32))
            };
        }
    }

    /// Bytes from a row to the one `rows` further down.
    #[inline(always)]
    fn row_bytes(&self, rows: usize) -> u64 {
        rows as u64 * self.row_stride as u64
    }
}
