//! What scores lack when the mean of some queries was subtracted from each of them: the mean's product with every key, in f32, since
//! it is what is large ("SageAttention3", section 3.1).
//!
//! A CTA has a tile of keys, one a thread, and some blocks of queries of a head, whose means lie in shared memory.

use cuda_std::Warp;

use super::statistics::source;
use super::{COLUMNS, QUERIES, columns_of, unpack};
use crate::abi::{Columns, QuantizeParams};
use crate::config::Dtype;
use crate::format::{Bf16, Element, F16};
use crate::schedule::divide;

/// Warps of a CTA.
pub const WARPS: usize = 4;
/// Keys of a CTA.
pub const KEYS: usize = 32 * WARPS;
/// Blocks of queries of a CTA: keys are read once for so many.
pub const BLOCKS: usize = 8;
/// Barriers in the code: for each type of sources one, when the means are there.
pub const BARRIERS: usize = 2;

/// Dynamic shared memory of a CTA: the means of queries, and that of keys.
#[inline]
pub const fn shared_bytes(head_dim: usize) -> usize {
    4 * (BLOCKS + 1) * head_dim
}

/// One CTA's work.
///
/// # Safety
/// `params` describes live buffers, as [`QuantizeParams`] documents, with means of queries and sums of keys, and the grid has a CTA for
/// each tile of keys of each group of blocks of each head of Q.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn terms<W: Warp>(warp: W, params: &QuantizeParams) {
    // SAFETY: the caller's.
    unsafe {
        match params.source {
            Dtype::F16 => of::<W, F16>(warp, params),
            Dtype::Bf16 => of::<W, Bf16>(warp, params),
        }
    }
}

#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
unsafe fn of<W: Warp, E: Element>(warp: W, params: &QuantizeParams) {
    let d = params.head_dim;
    let blocks = params.q.rows.div_ceil(QUERIES as u32);
    let (rest, tile) = divide(warp.block_idx_x(), params.term_stride / KEYS as u32);
    let (q_head, group) = divide(rest, blocks.div_ceil(BLOCKS as u32));
    let (batch, head) = divide(q_head, params.q_heads);
    let (group_size, _) = divide(params.q_heads, params.kv_heads);
    let (kv_head, _) = divide(head, group_size);
    let first_block = q_head * blocks + group * BLOCKS as u32;
    let count = (blocks - group * BLOCKS as u32).min(BLOCKS as u32);
    let thread = warp.lane_id() + warp.splat(32 * warp.warp_id());
    let shared = |row: u32| warp.shared_base() + 4 * row * d;

    // The means, column by column, the last row that of keys.
    let mut column = thread;
    let mut turn = 0;
    while turn < d {
        let exists = warp.less(column, warp.splat(d));
        let place = warp.mul_wide(column, 4);
        // SAFETY: what does not exist is not read, nor written; a float for each column of each row fits.
        unsafe {
            for row in 0..BLOCKS as u32 {
                let from = params.q_means + 4 * (first_block + row) as u64 * d as u64;
                let exists = exists & warp.less(warp.splat(row), warp.splat(count));
                let mean = warp.float_from_bits(warp.load_global::<4>(place + from, exists));
                warp.store_shared_f32(column * 4 + shared(row), mean, warp.less(column, warp.splat(d)));
            }
            let mut mean = warp.splat_f32(0.0);
            if params.smooth_k != 0 {
                let sums = columns_of(params, Columns::KeySum, (batch * params.kv_heads + kv_head) as u64);
                for chunk in 0..params.chunks {
                    let from = sums + 4 * chunk as u64 * d as u64;
                    let sum = warp.float_from_bits(warp.load_global::<4>(place + from, exists));
                    mean = if chunk == 0 { sum } else { mean + sum };
                }
                mean = warp.divide(mean, warp.splat_f32(params.k.rows as f32));
            }
            warp.store_shared_f32(column * 4 + shared(BLOCKS as u32), mean, exists);
        }
        column = column + KEYS as u32;
        turn += KEYS as u32;
    }
    warp.sync_threads();

    let key = thread + tile * KEYS as u32;
    let exists = warp.less(key, warp.splat(params.k.rows));
    let from = source(&params.k, batch, kv_head, params).chunk(warp, key, warp.splat(0));
    let mut products = [warp.splat_f32(0.0); BLOCKS];
    for chunk in 0..d / COLUMNS as u32 {
        // SAFETY: what does not exist is not read.
        unsafe {
            let words = warp.load_global_x4(from + 16 * chunk as u64, exists);
            let load = |row: u32| {
                let place = warp.splat(shared(row) + 4 * COLUMNS as u32 * chunk);
                let [[a, b, c, d], [e, f, g, h]] =
                    [warp.load_shared_x4(place), warp.load_shared_x4(place + 16)];
                [a, b, c, d, e, f, g, h].map(|word| warp.float_from_bits(word))
            };
            let (mean, wide) = (load(BLOCKS as u32), unpack::<W, E>(warp, words));
            let mut values = wide;
            for c in 0..COLUMNS {
                values[c] = wide[c] - mean[c];
            }
            for row in 0..BLOCKS {
                let query = load(row as u32);
                for c in 0..COLUMNS {
                    products[row] = warp.fma(values[c], query[c], products[row]);
                }
            }
        }
    }
    for row in 0..BLOCKS {
        let to = params.terms + 4 * (first_block + row as u32) as u64 * params.term_stride as u64;
        let wanted = warp.less(warp.splat(row as u32), warp.splat(count));
        // What does not exist is 0 too.
        let product = warp.select_f32(exists, products[row], warp.splat_f32(0.0));
        // SAFETY: the caller's.
        unsafe { warp.store_global_f32(warp.mul_wide(key, 4) + to, product, wanted) };
    }
}
