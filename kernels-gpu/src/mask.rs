//! Which scores count, and what is added to them. A masked score is minus infinity, nothing else: a large finite number is
//! a legal score.

use cuda_std::Warp;

use crate::abi::{MaskKind, Params};
use crate::config::Config;
use crate::schedule::Work;
use crate::tile::Accumulator;

/// Makes raw scores what the softmax takes: with the scale's sign, masked, and cut off where the tile lies on an edge. They
/// are those of the warp's rows from `row` on and of the keys from `key` on, in a tile of keys that ends at `tile_end`.
///
/// # Safety
/// `params` describes live buffers.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn prepare<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    params: &Params,
    work: &Work,
    scores: &mut Accumulator<W, M, N>,
    row: u32,
    key: u32,
    tile_end: u32,
) {
    if params.score_factor != 1.0 {
        scores.scale(params.score_factor);
    }
    let hidden = warp.splat_f32(f32::NEG_INFINITY);
    // SAFETY: the caller's; elements that do not exist are not read.
    unsafe {
        match params.mask.kind {
            _ if !C::MASKED => {}
            MaskKind::None => {}
            MaskKind::Bool => apply(warp, params, work, scores, row, key, |score, at, exists| {
                let visible = warp.less(warp.splat(0), warp.load_global::<1>(at, exists));
                warp.select_f32(visible, score, hidden)
            }),
            MaskKind::F16 => apply(warp, params, work, scores, row, key, |score, at, exists| {
                score + warp.unpack_f16(warp.load_global::<2>(at, exists))
            }),
            MaskKind::Bf16 => apply(warp, params, work, scores, row, key, |score, at, exists| {
                score + warp.float_from_bits(warp.load_global::<2>(at, exists) << 16)
            }),
            MaskKind::F32 => apply(warp, params, work, scores, row, key, |score, at, exists| {
                score + warp.float_from_bits(warp.load_global::<4>(at, exists))
            }),
        }
    }
    if tile_end > work.common_keys {
        cut_off::<W, C, M, N>(warp, params, scores, row, key);
    }
}

/// Changes a tile's scores by the mask's elements: `change` is given a score, the element's address, and whether there is
/// one.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
fn apply<W: Warp, const M: usize, const N: usize>(
    warp: W,
    params: &Params,
    work: &Work,
    scores: &mut Accumulator<W, M, N>,
    first_row: u32,
    first_key: u32,
    change: impl Fn(W::F32, W::U64, W::Bool) -> W::F32,
) {
    let (rows, keys) = (warp.splat(params.q.rows), warp.splat(params.k.rows));
    for m in 0..M {
        for half in 0..2 {
            let row = Accumulator::<W, M, N>::row(warp, m, half) + first_row;
            let base = row_address(warp, params, work, row);
            for n in 0..N {
                for r in 2 * half..2 * half + 2 {
                    let key = Accumulator::<W, M, N>::column(warp, n, r) + first_key;
                    let address = base + warp.mul_wide(key, params.mask.key_stride);
                    let exists = warp.less(row, rows) & warp.less(key, keys);
                    scores.tiles[m][n][r] = change(scores.tiles[m][n][r], address, exists);
                }
            }
        }
    }
}

/// Address of the mask's elements for a query row of the tile's matrix.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn row_address<W: Warp>(warp: W, params: &Params, work: &Work, row: W::U32) -> W::U64 {
    let mask = &params.mask;
    let heads = params.q.rows / params.q_len.max(1);
    let first_head = (work.head * heads) as u64;
    let base = mask.base + work.batch as u64 * mask.batch_stride + first_head * mask.head_stride;
    let (head, row) = head_and_row(warp, params, row);
    warp.mul_wide(row, mask.row_stride) + mul_wide_64(warp, head, mask.head_stride) + base
}

/// A 32-bit number times a 64-bit one, modulo 2^64.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn mul_wide_64<W: Warp>(warp: W, a: W::U32, b: u64) -> W::U64 {
    (warp.mul_wide(a, (b >> 32) as u32) << 32) + warp.mul_wide(a, b as u32)
}

/// Head, counted from the matrix's first, and row in that head of a row of a matrix of packed heads.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn head_and_row<W: Warp>(warp: W, params: &Params, row: W::U32) -> (W::U32, W::U32) {
    if params.q_len == params.q.rows {
        return (warp.splat(0), row);
    }
    // SAFETY: the host keeps it at 1 or more where there are rows.
    unsafe { core::hint::assert_unchecked(params.q_len != 0) };
    (row / params.q_len, row % params.q_len)
}

/// Hides the keys that rows do not see: those beyond the last, and those after the causal diagonal.
///
/// What a row sees is worked out anew for each tile: only tiles on an edge come here, and the registers are needed
/// elsewhere.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn cut_off<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    params: &Params,
    scores: &mut Accumulator<W, M, N>,
    row: u32,
    key: u32,
) {
    let hidden = warp.splat_f32(f32::NEG_INFINITY);
    for m in 0..M {
        for half in 0..2 {
            let row = Accumulator::<W, M, N>::row(warp, m, half) + row;
            let visible = visible_keys::<W, C>(warp, params, row);
            for n in 0..N {
                for r in 2 * half..2 * half + 2 {
                    let column = Accumulator::<W, M, N>::column(warp, n, r) + key;
                    let seen = warp.less(column, visible);
                    scores.tiles[m][n][r] = warp.select_f32(seen, scores.tiles[m][n][r], hidden);
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
fn visible_keys<W: Warp, C: Config>(warp: W, params: &Params, row: W::U32) -> W::U32 {
    let (q_len, kv_len) = (params.q_len, params.k.rows);
    let all = warp.splat(kv_len);
    if params.causal == 0 {
        return all;
    }
    let row = if C::MASKED { head_and_row(warp, params, row).1 } else { row };
    let (shift, hidden) = (kv_len.saturating_sub(q_len), warp.splat(q_len.saturating_sub(kv_len)));
    let end = row + (1 + shift);
    let seen = end - warp.select(warp.less(end, hidden), end, hidden);
    warp.select(warp.less(seen, all), seen, all)
}
