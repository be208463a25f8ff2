//! One matrix, as one thread copies it.

use core::marker::PhantomData;

use cuda_std::Warp;
use cuda_std::swizzle::CHUNK;

use crate::config::Config;
use crate::tile::{GlobalTile, SharedTile};

/// A matrix on its way into shared memory, tile after tile.
///
/// All threads of the CTA copy together. They stand side by side along the rows; each keeps its column and goes down in
/// steps.
pub struct Stream<W: Warp, C> {
    warp: W,
    /// This thread's chunk of the first row of the next tile.
    source: W::U64,
    /// Valid chunks of a row.
    chunks: u32,
    /// Bytes from one row to the next.
    row_stride: u32,
    /// Rows not yet copied.
    rows: u32,
    /// Bytes of a row of the tiles.
    row_bytes: usize,
    plan: PhantomData<C>,
}

impl<W: Warp, C: Config> Stream<W, C> {
    /// This thread's row in the first pass, and its chunk, in tiles of rows of `row_bytes`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn place(warp: W, row_bytes: usize) -> (W::U32, W::U32) {
        let (thread, chunks) = (warp.lane_id() + warp.splat(warp.warp_id() * 32), row_bytes as u32 / CHUNK);
        (thread / chunks, thread % chunks)
    }

    /// Rows that all threads copy in one pass.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn rows_per_pass(&self) -> usize {
        C::THREADS * CHUNK as usize / self.row_bytes
    }

    /// From the first row of `matrix` on, for tiles of rows of `row_bytes` bytes. Chunks beyond the valid ones are
    /// zero-filled.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn new(warp: W, matrix: GlobalTile, row_bytes: usize) -> Self {
        let (row, chunk) = Self::place(warp, row_bytes);
        Stream {
            warp,
            source: matrix.chunk(warp, row, chunk),
            chunks: matrix.chunks,
            row_stride: matrix.row_stride,
            rows: matrix.rows,
            row_bytes,
            plan: PhantomData,
        }
    }

    /// Starts the copy of `rows` rows of the `panel`th tile from the left, and stays where it is. Rows and columns that do not
    /// exist are zero-filled.
    ///
    /// # Safety
    /// The tile has `rows` rows, and the matrix is live.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn copy(&self, rows: usize, panel: usize, to: SharedTile) {
        let (warp, (row, chunk)) = (self.warp, Self::place(self.warp, self.row_bytes));
        let (zero, whole) = (warp.splat(0), warp.splat(16));
        let valid = warp.less(chunk + (panel * self.row_bytes) as u32 / CHUNK, warp.splat(self.chunks));
        let columns = warp.select(valid, whole, zero);
        // Whole tiles are nearly all of them, and their copies are on the critical path of every step: they ask for
        // nothing per row.
        if self.rows >= rows as u32 {
            // SAFETY: the caller's.
            unsafe { self.copy_rows(rows, panel, to, |_| columns) };
        } else {
            let exist = warp.splat(self.rows);
            let bytes = |pass: u32| warp.select(warp.less(row + pass, exist), columns, zero);
            // SAFETY: the caller's; rows that do not exist are not read.
            unsafe { self.copy_rows(rows, panel, to, bytes) };
        }
    }

    /// Goes on to what lies `rows` rows further down.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn advance(&mut self, rows: usize) {
        self.source = self.source + self.bytes_down(rows);
        self.rows = self.rows.saturating_sub(rows as u32);
    }

    /// Starts the copies of a tile; `bytes` says how many bytes of this thread's chunk, given the pass's first row.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn copy_rows(&self, rows: usize, panel: usize, to: SharedTile, bytes: impl Fn(u32) -> W::U32) {
        let (row, chunk) = Self::place(self.warp, self.row_bytes);
        let (place, right) = (to.place::<W>(row, chunk), (panel * self.row_bytes) as u64);
        for pass in 0..rows / self.rows_per_pass() {
            let row = pass * self.rows_per_pass();
            let source = self.source + (self.bytes_down(row) + right);
            // SAFETY: the caller's.
            unsafe { self.warp.cp_async(place.at(row, 0), source, bytes(row as u32)) };
        }
    }

    /// Bytes from a row to the one `rows` further down.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn bytes_down(&self, rows: usize) -> u64 {
        rows as u64 * self.row_stride as u64
    }
}
