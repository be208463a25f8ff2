//! Whole rows of Q, K and V in shared memory, `mma.sync`.

use cuda_std::Warp;

use crate::abi::Params;
use crate::config::Config;
use crate::epilogue;
use crate::mask;
use crate::matmul;
use crate::pipeline::Pipeline;
use crate::schedule::Work;
use crate::softmax::Softmax;
use crate::tile::{Accumulator, GlobalTile, SharedTile};

/// One CTA's work: each warp has `M` tiles of 16 query rows, `N` tiles of 8 keys, and `O` tiles of 8 output columns.
///
/// # Safety
/// `params` describes live buffers.
#[inline(always)]
#[track_caller]
pub unsafe fn persist_d<W: Warp, C: Config, const M: usize, const N: usize, const O: usize>(
    warp: W,
    params: &Params,
    work: Work,
) {
    let q = GlobalTile::new(&params.q, work.batch, work.head, params.head_dim).skip_rows(work.row);
    let k = GlobalTile::new(&params.k, work.batch, work.kv_head, params.head_dim);
    let v = GlobalTile::new(&params.v, work.batch, work.kv_head, params.head_dim);
    let o = GlobalTile::new(&params.o, work.batch, work.head, params.head_dim).skip_rows(work.row);
    let warp_row = warp.warp_id() * 16 * M as u32;
    let query = SharedTile::<C>::query(warp).place_a(warp, warp_row);

    let mut softmax = Softmax::<W, M>::new(warp, params.scale_log2);
    let mut output = Accumulator::<W, M, O>::zero(warp);
    // SAFETY: the caller's.
    let mut pipeline = unsafe { Pipeline::<W, C>::start(warp, q, k, v, work.keys) };
    let mut key = 0;
    while key < work.keys {
        let keys = pipeline.keys(key);
        // SAFETY: the pipeline hands out tiles that have arrived.
        let mut scores = unsafe { matmul::scores::<W, C, M, N>(warp, query, keys.place_b_by_columns(warp)) };
        pipeline.release_keys(key);

        if params.score_sign != 1.0 {
            scores.scale(params.score_sign);
        }
        if key + C::KEYS as u32 > work.common_keys {
            mask::apply(warp, params, &mut scores, work.row + warp_row, key);
        }
        softmax.update(&mut scores, &mut output);

        let values = pipeline.values();
        // SAFETY: the pipeline hands out tiles that have arrived.
        unsafe {
            matmul::accumulate::<W, C, M, N, O>(warp, &scores, values.place_b_by_rows(warp), &mut output)
        };
        key += C::KEYS as u32;
    }
    pipeline.finish();

    let (factors, lse) = softmax.finish();
    output.scale_rows(&factors);
    // SAFETY: shared memory is free, a warp's rows of the query tile are its own, and the output is the caller's.
    unsafe {
        epilogue::store::<W, C, M, O>(
            warp,
            &output,
            SharedTile::query(warp),
            warp_row,
            o.skip_rows(warp_row),
        );
        if params.lse != 0 {
            let head = work.batch as u64 * params.q_heads as u64 + work.head as u64;
            let first = head * params.q.rows as u64 + (work.row + warp_row) as u64;
            epilogue::store_lse(warp, &lse, params.lse + 4 * first, o.skip_rows(warp_row).rows);
        }
    }
}
