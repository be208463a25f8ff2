//! Which scores count. A masked score is minus infinity, nothing else: a large finite number is a legal score.

use cuda_std::Warp;

use crate::abi::Params;
use crate::schedule::Work;
use crate::tile::Accumulator;

/// Makes raw scores what the softmax takes: with the scale's sign, and masked where the tile lies on an edge. They are those
/// of the warp's rows from `row` on and of the keys from `key` on, in a tile of keys that ends at `tile_end`.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn prepare<W: Warp, const M: usize, const N: usize>(
    warp: W,
    params: &Params,
    work: &Work,
    scores: &mut Accumulator<W, M, N>,
    row: u32,
    key: u32,
    tile_end: u32,
) {
    if params.score_sign != 1.0 {
        scores.scale(params.score_sign);
    }
    if tile_end > work.common_keys {
        apply(warp, params, scores, row, key);
    }
}

/// Masks scores.
///
/// What a row sees is worked out anew for each tile: only tiles on an edge come here, and the registers are needed
/// elsewhere.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn apply<W: Warp, const M: usize, const N: usize>(
    warp: W,
    params: &Params,
    scores: &mut Accumulator<W, M, N>,
    row: u32,
    key: u32,
) {
    let masked = warp.splat_f32(f32::NEG_INFINITY);
    for m in 0..M {
        for half in 0..2 {
            let row = Accumulator::<W, M, N>::row(warp, m, half) + row;
            let visible = visible_keys(warp, params, row);
            for n in 0..N {
                for r in 2 * half..2 * half + 2 {
                    let column = Accumulator::<W, M, N>::column(warp, n, r) + key;
                    let seen = warp.less(column, visible);
                    scores.tiles[m][n][r] = warp.select_f32(seen, scores.tiles[m][n][r], masked);
                }
            }
        }
    }
}

/// How many keys row `row` sees: [`schedule::visible_keys`](crate::schedule::visible_keys) for lane-varying rows.
///
/// Under a causal mask that is `row + 1 + kv_len - q_len`, clamped to 0 and `kv_len`. In unsigned arithmetic: `hidden`
/// rows at the top see nothing, and `shift` keys are seen by all rows; one of the two is 0.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn visible_keys<W: Warp>(warp: W, params: &Params, row: W::U32) -> W::U32 {
    let (q_len, kv_len) = (params.q.rows, params.k.rows);
    let all = warp.splat(kv_len);
    if params.causal == 0 {
        return all;
    }
    let (shift, hidden) = (kv_len.saturating_sub(q_len), warp.splat(q_len.saturating_sub(kv_len)));
    let end = row + (1 + shift);
    let seen = end - warp.select(warp.less(end, hidden), end, hidden);
    warp.select(warp.less(seen, all), seen, all)
}
