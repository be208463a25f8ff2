//! Tiles on their way from global to shared memory, by `cp.async`.
//!
//! Each thread copies chunks of 16 bytes. A group of copies is one tile, so "the tile has arrived" is: at most so many
//! younger groups are in flight, and then a barrier, since each thread waits for its own copies only.

use core::marker::PhantomData;

use cuda_std::Warp;

use crate::config::Config;
use crate::tile::{GlobalTile, SharedTile};

/// A thread's part in the copies, which all threads of the CTA make together.
///
/// Threads stand side by side along the rows; each keeps its column and goes down in steps.
pub struct Copier<W: Warp, C> {
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
    pub fn new(warp: W, columns: u32) -> Self {
        const { assert!(C::THREADS.is_multiple_of(Self::CHUNKS) && Self::PASS.is_multiple_of(4)) };
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
    pub unsafe fn copy(&self, rows: usize, from: GlobalTile, to: SharedTile<C>) {
        const { assert!(C::ROWS.is_multiple_of(Self::PASS) && C::KEYS.is_multiple_of(Self::PASS)) };
        let source = from.chunk(self.warp, self.row, self.chunk);
        let place = to.place::<W>(self.row, self.chunk);
        if from.rows >= rows as u32 {
            for pass in 0..rows / Self::PASS {
                let row = pass * Self::PASS;
                // SAFETY: the caller's; all rows exist.
                unsafe {
                    self.warp.cp_async(place.at(row, 0), source + from.row_step(row as u32), self.bytes)
                };
            }
        } else {
            let zero = self.warp.splat(0);
            for pass in 0..rows / Self::PASS {
                let row = pass * Self::PASS;
                let exists = self.warp.less(self.row + row as u32, self.warp.splat(from.rows));
                let bytes = self.warp.select(exists, self.bytes, zero);
                // SAFETY: the caller's; rows that do not exist are not read.
                unsafe { self.warp.cp_async(place.at(row, 0), source + from.row_step(row as u32), bytes) };
            }
        }
    }
}
