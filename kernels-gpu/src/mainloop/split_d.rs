//! Q in shared memory as panels of 64 columns, K and V streamed through it panel by panel, `mma.sync`.
//!
//! The output of a CTA's rows fills its registers, so warps share rows: along the keys for the scores, along the columns for
//! the output. A warp's probabilities are every other's operand and cross through shared memory, and all warps of a row
//! must agree on its reference. They do without asking as long as no row of the CTA has outgrown its own, which the
//! barrier that they meet at anyway tells them.

use cuda_std::Warp;

use crate::abi::Params;
use crate::config::{PANEL, PANEL_ROW, SplitD};
use crate::dropout;
use crate::epilogue;
use crate::format::{OUTPUT_CHUNK, Output, Values};
use crate::mask;
use crate::matmul;
use crate::pipeline::{Panels, Ring};
use crate::schedule::Work;
use crate::softmax::Softmax;
use crate::tile::{Accumulator, Operands, SharedTile, Statistics};

/// One CTA's work: each warp has `M` tiles of 16 query rows, `N` tiles of 8 keys for the scores, and `O` tiles of 8 output
/// columns.
///
/// # Safety
/// `params` describes live buffers; with bulk copies, `address` is that of the parameters, whose tensor maps are
/// made.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn split_d<W, C, P, const M: usize, const N: usize, const O: usize>(
    warp: W,
    params: &Params,
    work: Work,
    address: u64,
) where
    W: Warp,
    C: SplitD,
    P: Panels<W, C>,
{
    let operands = Operands::new::<C>(params, &work);
    let o = operands.o;
    let (key_warp, row_warp) = (warp.warp_id() % C::KEY_WARPS as u32, warp.warp_id() / C::KEY_WARPS as u32);
    let warp_row = row_warp * 16 * M as u32;
    let warp_key = key_warp * 8 * N as u32;
    // Column tiles, and chunks, of each panel that are this warp's.
    let columns = PANEL / 8 / C::KEY_WARPS;
    let warp_chunk = key_warp * columns as u32;
    let panel = |index: usize| SharedTile::rows(warp, index * C::Q_PANEL, PANEL_ROW);
    let probabilities = |index: usize| SharedTile::rows(warp, C::P_OFFSET + index * C::Q_PANEL, PANEL_ROW);
    let pack_output = |low, high| C::Output::pack(warp, params, low, high);
    let statistics = Statistics::<W, C>::new(warp, warp_row, key_warp);

    let mut softmax = Softmax::<W, C::Values, M>::new(warp, params);
    let mut output = Accumulator::<W, M, O>::zero(warp);
    // SAFETY: here and in all blocks below, shared memory is as large as the plan says, tiles that the ring hands out have
    // arrived, and what warps exchange lies between two barriers.
    let mut ring = unsafe { Ring::<W, P>::start(warp, &operands, &work, address) };
    let mut key = work.first_key;
    while key < work.keys {
        let mut sums = matmul::no_sums::<W, C, M, N>(warp);
        for step in 0..C::STEPS {
            let slot = ring.step(step);
            for i in 0..C::STEP_PANELS {
                let Some(index) = C::panel(step, i) else { continue };
                let keys = slot.skip_bytes((i * C::KV_PANEL) as u32).place_b_by_columns(warp, warp_key);
                let query = panel(index).place_a(warp, warp_row);
                // SAFETY: see above.
                unsafe { matmul::add_scores::<W, C, M, N>(warp, &mut sums, query, keys, PANEL / 16) };
            }
        }

        let mut scores = matmul::scores::<W, C, M, N>(warp, &sums);

        let (row, tile_end) = (work.row + warp_row, key + C::KEYS as u32);
        // SAFETY: see above.
        unsafe {
            mask::prepare::<W, C, M, N>(warp, params, &work, &mut scores, row, key + warp_key, tile_end)
        };
        let maximum = softmax.row_maxima(&scores);
        let (mut slot, outgrown) = ring.step_or(C::STEPS, softmax.outgrown(&maximum));
        if outgrown {
            // SAFETY: see above.
            let maximum = unsafe { statistics.combine(&maximum, |a, b| warp.max(a, b)) };
            output.scale_rows(&softmax.move_references(&maximum));
        }
        softmax.exponentiate(&mut scores);
        dropout::apply::<W, C, M, N>(warp, params, &work, &mut scores, row, key + warp_key);
        let (p_panel, p_chunk) = (warp_key / PANEL as u32, warp_key % PANEL as u32 / 8);
        let to = probabilities(0).skip_bytes(p_panel * C::Q_PANEL as u32);
        // SAFETY: see above.
        unsafe { matmul::share_probabilities::<W, C, M, N>(warp, &scores, to, warp_row, p_chunk) };
        warp.sync_threads();

        for step in 0..C::STEPS {
            if step > 0 {
                slot = ring.step(C::STEPS + step);
            }
            // All probabilities of a step's panels at once would not leave the output enough registers: they are read
            // again for each step, 16 keys at a time.
            for k in 0..C::KEYS / 16 {
                let place = probabilities(k / (PANEL / 16)).place_a(warp, warp_row);
                let mut p = [[warp.splat(0); 4]; M];
                for m in 0..M {
                    // SAFETY: see above.
                    p[m] = unsafe { place.load_a(warp, m, k % (PANEL / 16)) };
                }
                for i in 0..C::STEP_PANELS {
                    let Some(index) = C::panel(step, i) else { continue };
                    let values = slot.skip_bytes((i * C::KV_PANEL) as u32);
                    let values = C::Values::place(warp, values, warp_chunk);
                    let first = columns * index;
                    // SAFETY: see above.
                    unsafe {
                        matmul::add_values::<W, C, M, O>(warp, &mut output, p, values, k, first, columns);
                    }
                }
            }
        }
        key += C::KEYS as u32;
    }
    ring.finish();

    // SAFETY: see above.
    let sums = unsafe { statistics.combine(&softmax.row_sums(), |a, b| a + b) };
    let references = softmax.references();
    let (factors, lse) = softmax.finish(&sums);
    output.scale_rows(&factors);
    if params.parts.count > 1 {
        if key_warp == 0 {
            // SAFETY: the caller's.
            unsafe {
                epilogue::store_part_statistics(warp, &references, &sums, params, &work, warp_row);
            }
        }
        for index in 0..C::PANELS {
            let column = (index * PANEL) as u32 + 8 * warp_chunk;
            let tiles = columns * index..columns * (index + 1);
            // SAFETY: the caller's.
            unsafe {
                epilogue::store_part::<W, C::Values, M, O>(
                    warp, &output, params, &work, warp_row, column, tiles,
                )
            };
        }
        return;
    }
    if key_warp == 0 {
        // SAFETY: the caller's.
        unsafe { epilogue::store_lse(warp, &lse, params, &work, warp_row) };
    }
    for index in 0..C::PANELS {
        // SAFETY: Q is no longer needed, and its panels are where the output is staged.
        unsafe {
            let tiles = columns * index..columns * (index + 1);
            epilogue::stage(warp, &output, panel(index), warp_row, warp_chunk, tiles, pack_output);
        };
    }
    warp.sync_threads();
    let rows = (C::ROWS / C::WARPS) as u32;
    let first_row = warp.warp_id() * rows;
    for index in 0..C::PANELS {
        let o = o.skip_rows(first_row).skip_chunks((index * PANEL / OUTPUT_CHUNK) as u32);
        // SAFETY: see above; the output is the caller's.
        unsafe { epilogue::store(warp, panel(index), first_row, rows, PANEL / 8, o) };
    }
}
