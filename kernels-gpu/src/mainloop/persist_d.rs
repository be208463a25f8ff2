//! Whole rows of Q, K and V in shared memory, `mma.sync`; how they come there is the pipeline's affair.

use cuda_std::Warp;

use crate::abi::Params;
use crate::config::Config;
use crate::dropout;
use crate::epilogue;
use crate::format::{Fragments, Output, Values};
use crate::mask;
use crate::matmul::{self, ScoreFragments};
use crate::pipeline::KeyTiles;
use crate::scales::WarpScales;
use crate::schedule::Work;
use crate::softmax::Softmax;
use crate::tile::{Accumulator, Operands};

/// One CTA's work: each warp has `M` tiles of 16 query rows, `N` tiles of 8 keys, and `O` tiles of 8 output columns.
///
/// # Safety
/// `params` describes live buffers, and `tiles` are the work's.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn persist_d<W, C, T, const M: usize, const N: usize, const O: usize>(
    warp: W,
    params: &Params,
    work: Work,
    mut tiles: T,
) where
    W: Warp,
    C: Config,
    T: KeyTiles<W, C>,
{
    const { assert!(16 * M * C::WARPS == C::ROWS && 8 * N == C::KEYS && 8 * O == C::D) };
    // The output takes the query tile's place, unless lanes write it from registers.
    const { assert!(C::Values::QUADS || C::QUERY.row_bytes >= 2 * C::D) };
    let warp_row = warp.warp_id() * 16 * M as u32;
    // SAFETY: here and below, the caller's.
    let scales = unsafe { WarpScales::<W, M>::new::<C>(warp, params, &work, work.row + warp_row) };
    let query = ScoreFragments::<C>::place_a(warp, tiles.query(), warp_row);

    let mut softmax = Softmax::<W, C::Values, M>::new(warp, params);
    let mut output = Accumulator::<W, M, O>::zero(warp);
    let mut key = work.first_key;
    while key < work.keys {
        // SAFETY: see above.
        let key_scales = unsafe { scales.of_keys::<C, N>(key) };
        let keys = tiles.keys(key);
        let mut sums = matmul::no_sums::<W, C, M, N>(warp);
        let keys = ScoreFragments::<C>::place_b(warp, keys, 0);
        // SAFETY: the tile has arrived.
        unsafe { matmul::add_scores::<W, C, M, N>(warp, &mut sums, query, keys, C::D) };
        tiles.release_keys(key);
        let mut scores = matmul::scores::<W, C, M, N>(warp, &sums);
        // SAFETY: see above.
        let terms = unsafe { scales.terms::<C, N>(&work, key) };
        scales.apply::<C, N>(&mut scores, &key_scales, &terms);

        let (row, tile_end) = (work.row + warp_row, key + C::KEYS as u32);
        // SAFETY: the caller's.
        unsafe { mask::prepare::<W, C, M, N>(warp, params, &work, &mut scores, row, key, tile_end) };
        softmax.update(&mut scores, &mut output);
        dropout::apply::<W, C, M, N>(warp, params, &work, &mut scores, row, key);

        // SAFETY: see above.
        let value_scales = unsafe { scales.of_values::<C>(key) };
        let values = C::Values::place(warp, tiles.values(), 0);
        for block in 0..matmul::blocks::<C>(C::KEYS) {
            let p = matmul::round_probabilities::<W, C, M, N>(warp, &scores, block);
            if C::Values::ROUNDED_SUMS {
                softmax.add_sums(&matmul::sum_rounded::<W, C, M, N>(warp, &p, block));
            }
            // SAFETY: the tile has arrived.
            unsafe {
                matmul::add_values::<W, C, M, O>(warp, &mut output, &p, block, values, &value_scales, 0..O)
            };
        }
        tiles.release_values(key);
        key += C::KEYS as u32;
    }
    let staging = tiles.query();
    tiles.finish();

    // SAFETY: see above.
    unsafe { scales.shift::<C>(&mut softmax, &work, work.row + warp_row) };
    let (sums, references) = (softmax.row_sums(), softmax.references());
    let (factors, lse) = softmax.finish(&sums);
    output.scale_rows(&factors);
    // SAFETY: see above.
    unsafe { scales.finish::<C, O>(&mut output, &sums, 0, 0..O) };
    let o = Operands::new::<C>(params, &work).o.skip_rows(warp_row);
    // SAFETY: shared memory is free, a warp's rows of the query tile are its own, and the output is the caller's.
    unsafe {
        if params.parts.count > 1 {
            epilogue::store_part::<W, C::Values, M, O>(warp, &output, params, &work, warp_row, 0, 0..O);
            epilogue::store_part_statistics(warp, &references, &sums, params, &work, warp_row);
        } else {
            if C::Values::QUADS {
                epilogue::store_quads::<W, C, M, O>(warp, &output, params, o, 0, 0..O);
            } else {
                let pack = |low, high| C::Output::pack(warp, params, low, high);
                epilogue::stage(warp, &output, staging, warp_row, 0, 0..O, pack);
                warp.sync_warp();
                epilogue::store(warp, staging, warp_row, 16 * M as u32, O, o);
            }
            epilogue::store_lse(warp, &lse, params, &work, warp_row);
        }
    }
}
