//! Whole rows of Q, K and V in shared memory, `mma.sync`; how they come there is the pipeline's affair.

use cuda_std::Warp;

use crate::abi::Params;
use crate::config::Config;
use crate::dropout;
use crate::epilogue;
use crate::mask;
use crate::matmul;
use crate::pipeline::KeyTiles;
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
    let o = Operands::new(params, &work).o;
    let warp_row = warp.warp_id() * 16 * M as u32;
    let query = tiles.query().place_a(warp, warp_row);

    let mut softmax = Softmax::<W, M>::new(warp, params);
    let mut output = Accumulator::<W, M, O>::zero(warp);
    let mut key = work.first_key;
    while key < work.keys {
        let keys = tiles.keys(key);
        let mut scores = Accumulator::<W, M, N>::zero(warp);
        // SAFETY: the tile has arrived.
        unsafe { matmul::add_scores(warp, &mut scores, query, keys.place_b_by_columns(warp, 0), C::D / 16) };
        tiles.release_keys(key);

        let (row, tile_end) = (work.row + warp_row, key + C::KEYS as u32);
        // SAFETY: the caller's.
        unsafe { mask::prepare::<W, C, M, N>(warp, params, &work, &mut scores, row, key, tile_end) };
        softmax.update(&mut scores, &mut output);
        dropout::apply::<W, C, M, N>(warp, params, &work, &mut scores, row, key);

        let values = tiles.values().place_b_by_rows(warp, 0);
        for k in 0..N / 2 {
            let p = matmul::round_probabilities::<W, C, M, N>(warp, &scores, k);
            // SAFETY: the tile has arrived.
            unsafe { matmul::add_values(warp, &mut output, p, values, k, 0, O) };
        }
        tiles.release_values(key);
        key += C::KEYS as u32;
    }
    let staging = tiles.query();
    tiles.finish();

    let (sums, references) = (softmax.row_sums(), softmax.references());
    let (factors, lse) = softmax.finish(&sums);
    output.scale_rows(&factors);
    let o = o.skip_rows(warp_row);
    // SAFETY: shared memory is free, a warp's rows of the query tile are its own, and the output is the caller's.
    unsafe {
        if params.parts.count > 1 {
            epilogue::store_part(warp, &output, params, &work, warp_row, 0, 0..O);
            epilogue::store_part_statistics(warp, &references, &sums, params, &work, warp_row);
        } else {
            epilogue::stage(warp, &output, staging, warp_row, 0, 0, O);
            warp.sync_warp();
            epilogue::store(warp, staging, warp_row, 16 * M as u32, C::D / 8, o);
            epilogue::store_lse(warp, &lse, params, &work, warp_row);
        }
    }
}
