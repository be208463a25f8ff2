//! From accumulators to the output tensor.

use cuda_std::Warp;
use cuda_std::fragment::m16n8k16;

use crate::config::Config;
use crate::format::Format;
use crate::tile::{Accumulator, GlobalTile, Rows, SharedTile};

/// Rounds the warp's rows and stores them: through the warp's own rows of a shared tile, so that global memory is
/// written in whole 16-byte chunks.
///
/// # Safety
/// The shared tile holds the warp's rows, no other warp accesses these, and `to` is the live output matrix.
#[inline(always)]
#[track_caller]
pub unsafe fn store<W: Warp, C: Config, const M: usize, const O: usize>(
    warp: W,
    output: &Accumulator<W, M, O>,
    staging: SharedTile<C>,
    staging_row: u32,
    to: GlobalTile,
) {
    let (row, column) = m16n8k16::accumulator(warp.lane_id(), 0);
    let place = staging.place::<W>(row + staging_row, warp.splat(0));
    for m in 0..M {
        for n in 0..O {
            for half in 0..2 {
                let [low, high] = [output.tiles[m][n][2 * half], output.tiles[m][n][2 * half + 1]];
                let address = place.at(16 * m + 8 * half, n) + (column << 1);
                // SAFETY: the caller's; the row is one of the warp's.
                unsafe { warp.store_shared(address, C::Format::pack(warp, low, high)) };
            }
        }
    }
    warp.sync_warp();
    let row_chunks = C::ROW_BYTES as u32 / 16;
    let chunks = row_chunks.min(32);
    let (row, chunk) = (warp.lane_id() / chunks, warp.lane_id() % chunks);
    let rows_per_pass = 32 / chunks;
    for line in 0..row_chunks / chunks {
        let chunk = chunk + line * 32;
        let valid_column = warp.less(chunk, warp.splat(to.columns / 8));
        for pass in 0..16 * M as u32 / rows_per_pass {
            let row = row + pass * rows_per_pass;
            let valid = warp.less(row, warp.splat(to.rows)) & valid_column;
            // SAFETY: the caller's; what is not valid is not stored.
            unsafe {
                let words = warp.load_shared_x4(staging.place::<W>(row + staging_row, chunk).at(0, 0));
                warp.store_global_x4(to.chunk(warp, row, chunk), words, valid);
            }
        }
    }
}

/// Stores the log-sum-exp of the warp's rows: `rows` of them exist, the first one's is at `address`.
///
/// # Safety
/// That many floats from `address` on are live.
#[inline(always)]
#[track_caller]
pub unsafe fn store_lse<W: Warp, const M: usize>(warp: W, lse: &Rows<W::F32, M>, address: u64, rows: u32) {
    let (_, column) = m16n8k16::accumulator(warp.lane_id(), 0);
    // Of the four lanes that share a row, the one with its first column.
    let first = warp.less(column, warp.splat(1));
    for m in 0..M {
        for half in 0..2 {
            let row = Accumulator::<W, M, 1>::row(warp, m, half);
            let valid = warp.less(row, warp.splat(rows)) & first;
            // SAFETY: the caller's.
            unsafe { warp.store_global_f32(warp.mul_wide(row, 4) + address, lse[m][half], valid) };
        }
    }
}
