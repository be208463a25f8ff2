//! Whole rows of Q, K and V in shared memory, `mma.sync`.

use cuda_std::Warp;

use crate::abi::Params;
use crate::config::Config;
use crate::epilogue;
use crate::mask::Mask;
use crate::matmul::{self, Query};
use crate::pipeline::Copier;
use crate::schedule::Work;
use crate::softmax::Softmax;
use crate::tile::{Accumulator, GlobalTile, SharedTile};

/// One CTA's work: `M` 16-row tiles per warp, `N` 8-key tiles, `O` 8-column tiles of the output, `K` steps along D.
///
/// # Safety
/// `params` describes live buffers.
#[inline(always)]
#[track_caller]
pub unsafe fn persist_d<
    W: Warp,
    C: Config,
    const M: usize,
    const N: usize,
    const O: usize,
    const K: usize,
>(
    warp: W,
    params: &Params,
    work: Work,
) {
    let q = GlobalTile::new(&params.q, work.batch, work.head, params.head_dim).skip_rows(work.row);
    let k = GlobalTile::new(&params.k, work.batch, work.kv_head, params.head_dim);
    let v = GlobalTile::new(&params.v, work.batch, work.kv_head, params.head_dim);
    let o = GlobalTile::new(&params.o, work.batch, work.head, params.head_dim).skip_rows(work.row);
    let q_tile = SharedTile::<C>::at(warp, 0);
    let k_tile = SharedTile::<C>::at(warp, C::K_OFFSET);
    let v_tile = SharedTile::<C>::at(warp, C::V_OFFSET);
    let copier = Copier::<W, C>::new(warp, params.head_dim);
    let warp_row = warp.warp_id() * 16 * M as u32;

    let mask = Mask::<W, M>::new(warp, params, work.row + warp_row);
    let mut query = Query::<W, C, M, K>::in_shared(q_tile.place_a(warp, warp_row));
    let keys = k_tile.place_b_by_columns(warp);
    let values = v_tile.place_b_by_rows(warp);
    let mut softmax = Softmax::<W, M>::new(warp, params.scale_log2);
    let mut output = Accumulator::<W, M, O>::zero(warp);

    // SAFETY (of every unsafe block below): the tiles lie where the plan of C puts them, and a tile is read only after
    // the wait and the barrier that follow its copy.
    unsafe {
        copier.copy(C::ROWS, q, q_tile);
        copier.copy(C::KEYS, k, k_tile);
        warp.cp_async_commit_group();
    }
    let mut key = 0;
    while key < work.keys {
        warp.cp_async_wait_group::<0>();
        warp.sync_threads();
        // The barrier also says: every warp is done with the last tile of V.
        unsafe { copier.copy(C::KEYS, v.skip_rows(key), v_tile) };
        warp.cp_async_commit_group();
        if C::Q_IN_REGISTERS && key == 0 {
            unsafe { query.load(warp) };
        }
        let mut scores: Accumulator<W, M, N> = unsafe { matmul::scores::<W, C, M, N, K>(warp, &query, keys) };

        warp.cp_async_wait_group::<0>();
        warp.sync_threads();
        // The barrier also says: every warp is done with this tile of K.
        let next = key + C::KEYS as u32;
        if next < work.keys {
            unsafe { copier.copy(C::KEYS, k.skip_rows(next), k_tile) };
        }
        warp.cp_async_commit_group();

        if params.score_sign != 1.0 {
            scores.scale(params.score_sign);
        }
        if next > work.common_keys {
            mask.apply(warp, &mut scores, key);
        }
        softmax.update(&mut scores, &mut output);
        unsafe { matmul::accumulate::<W, C, M, N, O>(warp, &scores, values, &mut output) };
        key = next;
    }
    warp.cp_async_wait_group::<0>();

    let (factors, lse) = softmax.finish();
    output.scale_rows(&factors);
    let rows = o.rows.saturating_sub(warp_row);
    // SAFETY: a warp's rows of Q are its own, and it has read them for the last time.
    unsafe {
        epilogue::store::<W, C, M, O>(warp, &output, q_tile, warp_row, o.skip_rows(warp_row));
        if params.lse != 0 {
            let head = work.batch as u64 * params.q_heads as u64 + work.head as u64;
            let first = head * params.q.rows as u64 + (work.row + warp_row) as u64;
            epilogue::store_lse(warp, &lse, params.lse + 4 * first, rows);
        }
    }
}
