//! Q in shared memory as panels of 128 bytes of each row, K and V streamed through it panel by panel, `mma.sync`.
//!
//! The output of a CTA's rows fills its registers, so warps share rows: along the keys for the scores, along the columns for
//! the output. A warp's probabilities are every other's operand and cross through shared memory, and all warps of a row
//! must agree on its reference. They do without asking as long as no row of the CTA has outgrown its own, which the
//! barrier that they meet at anyway tells them.

use cuda_std::Warp;

use crate::abi::Params;
use crate::config::{PANEL_ROW, SplitD};
use crate::dropout;
use crate::epilogue;
use crate::format::{Fragments, OUTPUT_CHUNK, Output, Values};
use crate::mask;
use crate::matmul::{self, ScoreFragments};
use crate::pipeline::{Panels, Ring};
use crate::scales::WarpScales;
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
    C::Values: Values<P<W> = [W::U32; 4]>,
    P: Panels<W, C>,
{
    let operands = Operands::new::<C>(params, &work);
    let o = operands.o;
    let (key_warp, row_warp) = (warp.warp_id() % C::KEY_WARPS as u32, warp.warp_id() / C::KEY_WARPS as u32);
    let warp_row = row_warp * 16 * M as u32;
    let warp_key = key_warp * 8 * N as u32;
    // Column tiles of each panel that are this warp's, and the first of them.
    let columns = C::PANEL_COLUMNS / 8 / C::KEY_WARPS;
    let warp_column = key_warp * columns as u32;
    let panel = |index: usize| SharedTile::rows(warp, index * C::Q_PANEL, PANEL_ROW);
    let probabilities = SharedTile::rows(warp, C::P_OFFSET, PANEL_ROW);
    let pack_output = |low, high| C::Output::pack(warp, params, low, high);
    let statistics = Statistics::<W, C>::new(warp, warp_row, key_warp);
    // SAFETY: here and below, the caller's.
    let scales = unsafe { WarpScales::<W, M>::new::<C>(warp, params, &work, work.row + warp_row) };

    let mut softmax = Softmax::<W, C::Values, M>::new(warp, params);
    let mut output = Accumulator::<W, M, O>::zero(warp);
    // SAFETY: here and in all blocks below, shared memory is as large as the plan says, tiles that the ring hands out have
    // arrived, and what warps exchange lies between two barriers.
    let mut ring = unsafe { Ring::<W, P>::start(warp, &operands, &work, address) };
    let mut key = work.first_key;
    while key < work.keys {
        // SAFETY: see above.
        let key_scales = unsafe { scales.of_keys::<C, N>(key + warp_key) };
        let mut sums = matmul::no_sums::<W, C, M, N>(warp);
        for step in 0..C::STEPS {
            let slot = ring.step(step);
            for i in 0..C::STEP_PANELS {
                let Some(index) = C::panel(step, i) else { continue };
                let keys = slot.skip_bytes((i * C::KV_PANEL) as u32);
                let keys = ScoreFragments::<C>::place_b(warp, keys, warp_key);
                let query = ScoreFragments::<C>::place_a(warp, panel(index), warp_row);
                // SAFETY: see above.
                unsafe { matmul::add_scores::<W, C, M, N>(warp, &mut sums, query, keys, C::PANEL_COLUMNS) };
            }
        }

        let mut scores = matmul::scores::<W, C, M, N>(warp, &sums);
        // SAFETY: see above.
        let terms = unsafe { scales.terms::<C, N>(&work, key + warp_key) };
        scales.apply::<C, N>(&mut scores, &key_scales, &terms);

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
        let panel_keys = C::PANEL_COLUMNS as u32;
        let p_chunk = warp_key % panel_keys * 2 / C::Values::STEP as u32;
        let p_panel = warp_key / panel_keys;
        let to = probabilities.skip_bytes(p_panel * C::Q_PANEL as u32);
        for block in 0..matmul::blocks::<C>(8 * N) {
            let p = matmul::round_probabilities::<W, C, M, N>(warp, &scores, block);
            if C::Values::ROUNDED_SUMS {
                softmax.add_sums(&matmul::sum_rounded::<W, C, M, N>(warp, &p, block));
            }
            // SAFETY: see above.
            unsafe { matmul::share_probabilities::<W, C, M, N>(warp, &p, block, to, warp_row, p_chunk) };
        }
        // SAFETY: see above.
        let value_scales = unsafe { scales.of_values::<C>(key) };
        warp.sync_threads();

        for step in 0..C::STEPS {
            if step > 0 {
                slot = ring.step(C::STEPS + step);
            }
            // All probabilities at once would not leave the output enough registers: they are read again for each step, block by
            // block.
            for block in 0..matmul::blocks::<C>(C::KEYS) {
                // SAFETY: see above.
                let p =
                    unsafe { matmul::load_probabilities::<W, C, M>(warp, probabilities, block, warp_row) };
                for i in 0..C::STEP_PANELS {
                    let Some(index) = C::panel(step, i) else { continue };
                    let values = slot.skip_bytes((i * C::KV_PANEL) as u32);
                    let values = C::Values::place(warp, values, warp_column);
                    let tiles = columns * index..columns * (index + 1);
                    // SAFETY: see above.
                    unsafe {
                        matmul::add_values::<W, C, M, O>(
                            warp,
                            &mut output,
                            &p,
                            block,
                            values,
                            &value_scales,
                            tiles,
                        );
                    }
                }
            }
        }
        key += C::KEYS as u32;
    }
    ring.finish();

    // SAFETY: see above.
    unsafe { scales.shift::<C>(&mut softmax, &work, work.row + warp_row) };
    // SAFETY: see above.
    let sums = unsafe { statistics.combine(&softmax.row_sums(), |a, b| a + b) };
    let references = softmax.references();
    let (factors, lse) = softmax.finish(&sums);
    output.scale_rows(&factors);
    // The first of a panel's columns that are this warp's, and where they are in the registers.
    let place = |index: usize| {
        let column = (index * C::PANEL_COLUMNS) as u32 + 8 * warp_column;
        (column, columns * index..columns * (index + 1))
    };
    for index in 0..C::PANELS {
        let (column, tiles) = place(index);
        // SAFETY: the caller's.
        unsafe { scales.finish::<C, O>(&mut output, &sums, column, tiles) };
    }
    if params.parts.count > 1 {
        if key_warp == 0 {
            // SAFETY: the caller's.
            unsafe {
                epilogue::store_part_statistics(warp, &references, &sums, params, &work, warp_row);
            }
        }
        for index in 0..C::PANELS {
            let (column, tiles) = place(index);
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
    if C::Values::QUADS {
        for index in 0..C::PANELS {
            let ((column, tiles), o) = (place(index), o.skip_rows(warp_row));
            // SAFETY: the caller's.
            unsafe { epilogue::store_quads::<W, C, M, O>(warp, &output, params, o, column, tiles) };
        }
        return;
    }
    for index in 0..C::PANELS {
        let (_, tiles) = place(index);
        // SAFETY: Q is no longer needed, and its panels are where the output is staged.
        unsafe { epilogue::stage(warp, &output, panel(index), warp_row, warp_column, tiles, pack_output) };
    }
    warp.sync_threads();
    let rows = (C::ROWS / C::WARPS) as u32;
    let first_row = warp.warp_id() * rows;
    for index in 0..C::PANELS {
        let o = o.skip_rows(first_row).skip_chunks((index * C::PANEL_COLUMNS / OUTPUT_CHUNK) as u32);
        // SAFETY: see above; the output is the caller's.
        unsafe { epilogue::store(warp, panel(index), first_row, rows, C::PANEL_COLUMNS / OUTPUT_CHUNK, o) };
    }
}
