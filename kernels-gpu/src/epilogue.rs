//! From accumulators to the output tensor: through shared memory, so that global memory is written in whole 16-byte chunks,
//! unless lanes hold enough neighbours to write whole sectors themselves.

use core::ops::Range;

use cuda_std::Warp;
use cuda_std::fragment::m16n8k16;

use crate::abi::Params;
use crate::config::Config;
use crate::format::{OUTPUT_CHUNK, Output, Values};
use crate::schedule::Work;
use crate::tile::{Accumulator, GlobalTile, Rows, SharedTile};

/// Rounds column tiles into a shared tile of 16-bit elements at a row and chunk; `pack` rounds two neighbours.
///
/// # Safety
/// The shared tile holds them, and no other warp accesses their place.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn stage<W: Warp, const M: usize, const O: usize>(
    warp: W,
    from: &Accumulator<W, M, O>,
    to: SharedTile,
    row: u32,
    chunk: u32,
    tiles: Range<usize>,
    pack: impl Fn(W::F32, W::F32) -> W::U32,
) {
    let (lane_row, column) = m16n8k16::accumulator(warp.lane_id(), 0);
    for n in 0..tiles.end - tiles.start {
        let place = to.place::<W>(lane_row + row, warp.splat(chunk + n as u32));
        for m in 0..M {
            for half in 0..2 {
                let [low, high] = [0, 1].map(|r| from.tiles[m][tiles.start + n][2 * half + r]);
                let address = place.at(16 * m + 8 * half, 0) + (column << 1);
                // SAFETY: the caller's.
                unsafe { warp.store_shared(address, pack(low, high)) };
            }
        }
    }
}

/// Stores `rows` rows of `row_chunks` chunks of a staged tile, from `first_row` on, to the first rows of the output matrix.
///
/// # Safety
/// The rows were staged, and the matrix is live and nobody else's.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn store<W: Warp>(
    warp: W,
    from: SharedTile,
    first_row: u32,
    rows: u32,
    row_chunks: usize,
    to: GlobalTile,
) {
    let row_chunks = row_chunks as u32;
    // As many as divide a row and a warp.
    let chunks = 1 << row_chunks.trailing_zeros().min(5);
    let (row, chunk) = (warp.lane_id() / chunks, warp.lane_id() % chunks);
    let rows_per_pass = 32 / chunks;
    for line in 0..row_chunks / chunks {
        let chunk = chunk + line * chunks;
        let valid_column = warp.less(chunk, warp.splat(to.chunks));
        for pass in 0..rows / rows_per_pass {
            let row = row + pass * rows_per_pass;
            let valid = warp.less(row, warp.splat(to.rows)) & valid_column;
            // SAFETY: the caller's; what is not valid is not stored.
            unsafe {
                let words = warp.load_shared_x4(from.place::<W>(row + first_row, chunk).at(0, 0));
                warp.store_global_x4(to.chunk(warp, row, chunk), words, valid);
            }
        }
    }
}

/// Rounds and stores column tiles of a warp whose lanes hold four neighbouring columns ([`Values::QUADS`]), to columns from
/// `column` on: four lanes write whole sectors of 32 bytes, so nothing is gained by shared memory.
///
/// # Safety
/// The matrix, which begins at the warp's first row, is live and nobody else's.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn store_quads<W: Warp, C: Config, const M: usize, const O: usize>(
    warp: W,
    output: &Accumulator<W, M, O>,
    params: &Params,
    to: GlobalTile,
    column: u32,
    tiles: Range<usize>,
) {
    for m in 0..M {
        for half in 0..2 {
            let row = Accumulator::<W, M, O>::row(warp, m, half);
            let row_exists = warp.less(row, warp.splat(to.rows));
            let place = to.chunk(warp, row, warp.splat(0));
            for n in 0..(tiles.end - tiles.start) / 2 {
                let column = C::Values::column(warp, 2 * n, 0) + column;
                let valid = row_exists & warp.less(column, warp.splat(OUTPUT_CHUNK as u32 * to.chunks));
                let [even, odd] = [0, 1].map(|i| output.tiles[m][tiles.start + 2 * n + i]);
                let pair = |r: usize| C::Output::pack(warp, params, even[2 * half + r], odd[2 * half + r]);
                // SAFETY: the caller's; what is not valid is not stored.
                unsafe { warp.store_global_x2(place + warp.mul_wide(column, 2), [pair(0), pair(1)], valid) };
            }
        }
    }
}

/// The number of a work's first row, counted over all batch entries and heads, of `head_rows` rows each.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn first_row(params: &Params, work: &Work, head_rows: u32) -> u64 {
    let head = work.batch as u64 * params.q_heads as u64 + work.head as u64;
    head * head_rows as u64 + work.row as u64
}

/// The same of a part's rows, counted over the parts before its own too.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn first_part_row(params: &Params, work: &Work) -> u64 {
    work.part as u64 * params.parts.rows + first_row(params, work, params.q.rows)
}

/// Stores column tiles of a part's output, as f32: to columns from `column` on.
///
/// # Safety
/// `params` describes live buffers.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn store_part<W: Warp, V: Values, const M: usize, const O: usize>(
    warp: W,
    output: &Accumulator<W, M, O>,
    params: &Params,
    work: &Work,
    warp_row: u32,
    column: u32,
    tiles: Range<usize>,
) {
    let row_bytes = 4 * params.head_dim;
    let base = params.parts.o + (first_part_row(params, work) + warp_row as u64) * row_bytes as u64;
    let rows = params.q.rows.saturating_sub(work.row + warp_row);
    for m in 0..M {
        for half in 0..2 {
            let row = Accumulator::<W, M, O>::row(warp, m, half);
            let place = warp.mul_wide(row, row_bytes) + base;
            let row_exists = warp.less(row, warp.splat(rows));
            for n in 0..tiles.end - tiles.start {
                let tile = output.tiles[m][tiles.start + n];
                if V::QUADS {
                    for r in 0..2 {
                        let column = V::column(warp, n, r) + column;
                        let valid = row_exists & warp.less(column, warp.splat(params.head_dim));
                        let address = place + warp.mul_wide(column, 4);
                        // SAFETY: the caller's; what is not valid is not stored.
                        unsafe { warp.store_global_f32(address, tile[2 * half + r], valid) };
                    }
                } else {
                    let column = V::column(warp, n, 0) + column;
                    let valid = row_exists & warp.less(column, warp.splat(params.head_dim));
                    let pair = [tile[2 * half], tile[2 * half + 1]];
                    // SAFETY: the caller's; what is not valid is not stored.
                    unsafe { warp.store_global_f32x2(place + warp.mul_wide(column, 4), pair, valid) };
                }
            }
        }
    }
}

/// Stores the references and sums of a part's rows; the first is row `warp_row` of the tile.
///
/// # Safety
/// `params` describes live buffers.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn store_part_statistics<W: Warp, const M: usize>(
    warp: W,
    references: &Rows<W::F32, M>,
    sums: &Rows<W::F32, M>,
    params: &Params,
    work: &Work,
    warp_row: u32,
) {
    let place = 4 * first_part_row(params, work);
    // SAFETY: the caller's.
    unsafe {
        store_rows(warp, references, params.parts.reference + place, params, work, warp_row);
        store_rows(warp, sums, params.parts.sum + place, params, work, warp_row);
    }
}

/// Stores the log-sum-exp of a warp's rows, if it is asked for; the first is row `warp_row` of the tile.
///
/// # Safety
/// `params` describes live buffers.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn store_lse<W: Warp, const M: usize>(
    warp: W,
    lse: &Rows<W::F32, M>,
    params: &Params,
    work: &Work,
    warp_row: u32,
) {
    if params.lse != 0 {
        let place = 4 * first_row(params, work, params.lse_head_stride);
        // SAFETY: the caller's.
        unsafe { store_rows(warp, lse, params.lse + place, params, work, warp_row) };
    }
}

/// Stores a float per row of a warp; that of the work's first row lies at `base`.
///
/// # Safety
/// `params` describes live buffers.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
unsafe fn store_rows<W: Warp, const M: usize>(
    warp: W,
    values: &Rows<W::F32, M>,
    base: u64,
    params: &Params,
    work: &Work,
    warp_row: u32,
) {
    let exist = params.q.rows.saturating_sub(work.row + warp_row);
    let (_, column) = m16n8k16::accumulator(warp.lane_id(), 0);
    // Of the four lanes that share a row, the one with its first column.
    let first_lane = warp.less(column, warp.splat(1));
    for m in 0..M {
        for half in 0..2 {
            let row = Accumulator::<W, M, 1>::row(warp, m, half);
            let valid = warp.less(row, warp.splat(exist)) & first_lane;
            let place = warp.mul_wide(row, 4) + (base + 4 * warp_row as u64);
            // SAFETY: the caller's.
            unsafe { warp.store_global_f32(place, values[m][half], valid) };
        }
    }
}
