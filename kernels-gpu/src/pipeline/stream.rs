//! One matrix, as one thread copies it.

use core::marker::PhantomData;

use cuda_std::Warp;

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
    plan: PhantomData<C>,
}

impl<W: Warp, C: Config> Stream<W, C> {
    /// Chunks of a row.
    const CHUNKS: usize = C::ROW_BYTES / 16;
    /// Rows that all threads copy in one pass.
    const PASS: usize = C::THREADS / Self::CHUNKS;

    /// This thread's row in the first pass, and its chunk.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn place(warp: W) -> (W::U32, W::U32) {
        let thread = warp.lane_id() + warp.splat(warp.warp_id() * 32);
        (thread / Self::CHUNKS as u32, thread % Self::CHUNKS as u32)
    }

    /// From the first row of `matrix` on. Columns beyond the valid ones are zero-filled.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn new(warp: W, matrix: GlobalTile) -> Self {
        const { assert!(C::THREADS.is_multiple_of(Self::CHUNKS) && Self::PASS.is_multiple_of(4)) };
        const { assert!(C::ROWS.is_multiple_of(Self::PASS) && C::KEYS.is_multiple_of(Self::PASS)) };
        let (row, chunk) = Self::place(warp);
        Stream {
            warp,
            source: matrix.chunk(warp, row, chunk),
            chunks: matrix.columns / 8,
            row_stride: matrix.row_stride,
            rows: matrix.rows,
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
    pub unsafe fn copy(&self, rows: usize, panel: usize, to: SharedTile<C>) {
        let (warp, (row, chunk)) = (self.warp, Self::place(self.warp));
        let (zero, whole) = (warp.splat(0), warp.splat(16));
        let valid = warp.less(chunk + (panel * Self::CHUNKS) as u32, warp.splat(self.chunks));
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
        self.source = self.source + self.row_bytes(rows);
        self.rows = self.rows.saturating_sub(rows as u32);
    }

    /// Starts the copies of a tile; `bytes` says how many bytes of this thread's chunk, given the pass's first row.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn copy_rows(&self, rows: usize, panel: usize, to: SharedTile<C>, bytes: impl Fn(u32) -> W::U32) {
        let (row, chunk) = Self::place(self.warp);
        let (place, right) = (to.place::<W>(row, chunk), (panel * C::ROW_BYTES) as u64);
        for pass in 0..rows / Self::PASS {
            let row = pass * Self::PASS;
            let source = self.source + (self.row_bytes(row) + right);
            // SAFETY: the caller's.
            unsafe { self.warp.cp_async(place.at(row, 0), source, bytes(row as u32)) };
        }
    }

    /// Bytes from a row to the one `rows` further down.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn row_bytes(&self, rows: usize) -> u64 {
        rows as u64 * self.row_stride as u64
    }
}
