//! What quantised numbers stand for.
//!
//! The scales of Q, K and V are of blocks of rows. Those of K are finer: of a block of [`BLOCK`] keys, the keys whose number
//! modulo 8 is `2 t` or `2 t + 1` share one. These are the keys whose scores lane `t` of a row's four lanes holds, so that a
//! lane has one scale for all of its scores of a block (SageAttention 2, "per-thread quantization").
//!
//! V's may also be of columns: then they wait until the output is done.

use core::ops::Range;

use cuda_std::Warp;
use cuda_std::fragment::m16n8k16;

use crate::abi::{Params, Scale};
use crate::config::Config;
use crate::format::{Scores, Values};
use crate::quantize::QUERIES;
use crate::quantize::terms::KEYS;
use crate::schedule::{Work, divide};
use crate::softmax::Softmax;
use crate::tile::{Accumulator, Rows};

/// Keys that are quantised together.
pub const BLOCK: usize = 64;

/// Blocks of a tile of keys at most.
const BLOCKS: usize = 2;

/// A factor for each block of a tile.
pub type ByBlock<T> = [T; BLOCKS];

/// A warp's scales.
pub struct WarpScales<'a, W: Warp, const M: usize> {
    warp: W,
    params: &'a Params,
    batch: u32,
    kv_head: u32,
    rows: Rows<W::F32, M>,
}

impl<'a, W: Warp, const M: usize> WarpScales<'a, W, M> {
    /// Of the warp whose rows begin at `row` of the matrix.
    ///
    /// # Safety
    /// `params` describes live buffers.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn new<C: Config>(warp: W, params: &'a Params, work: &Work, row: u32) -> Self {
        const { assert!(!C::Scores::SCALED || C::KEYS.is_multiple_of(BLOCK) && C::KEYS / BLOCK <= BLOCKS) };
        let mut rows = [[warp.splat_f32(1.0); 2]; M];
        if C::Scores::SCALED {
            let base = head(&params.scales.q, work.batch, work.head);
            for m in 0..M {
                for half in 0..2 {
                    let row = Accumulator::<W, M, 1>::row(warp, m, half) + row;
                    let exists = warp.less(row, warp.splat(params.q.rows));
                    // SAFETY: the caller's; rows that do not exist are not read.
                    let scale = unsafe { load(warp, &params.scales.q, base, row, exists) };
                    rows[m][half] = if C::Scores::UNIT == 1.0 { scale } else { scale * C::Scores::UNIT };
                }
            }
        }
        WarpScales { warp, params, batch: work.batch, kv_head: work.kv_head, rows }
    }

    /// Of the warp's `8 N` keys that begin at `key`: whole blocks, or a part of one.
    ///
    /// # Safety
    /// As [`WarpScales::new`].
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn of_keys<C: Config, const N: usize>(&self, key: u32) -> ByBlock<W::F32> {
        let (warp, scales) = (self.warp, &self.params.scales);
        let mut factors = [warp.splat_f32(1.0); BLOCKS];
        if C::Scores::SCALED {
            let (_, column) = m16n8k16::accumulator(warp.lane_id(), 0);
            let base = head(&scales.k, self.batch, self.kv_head);
            let base = warp.mul_wide(column >> 1, scales.k_group_stride) + base;
            for block in 0..(8 * N).div_ceil(BLOCK) {
                // SAFETY: the caller's.
                factors[block] = unsafe { self.load_block(&scales.k, base, key, block) };
            }
        }
        factors
    }

    /// Of the tile of V whose keys begin at `key`.
    ///
    /// # Safety
    /// As [`WarpScales::new`].
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn of_values<C: Config>(&self, key: u32) -> ByBlock<W::F32> {
        let (warp, scales) = (self.warp, &self.params.scales);
        let mut factors = [warp.splat_f32(1.0); BLOCKS];
        if C::Values::BLOCK_SCALES && scales.v.base != 0 {
            let base = warp.mul_wide(warp.splat(0), 0) + head(&scales.v, self.batch, self.kv_head);
            for block in 0..C::KEYS / BLOCK {
                // SAFETY: the caller's.
                factors[block] = unsafe { self.load_block(&scales.v, base, key, block) };
            }
        }
        factors
    }

    /// The scale of a block of a tile of keys.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load_block(&self, scale: &Scale, base: W::U64, key: u32, block: usize) -> W::F32 {
        let warp = self.warp;
        let key = key + (block * BLOCK) as u32;
        let exists = warp.less(warp.splat(key), warp.splat(self.params.k.rows));
        let (block, _) = divide(key, scale.rows);
        let address = base + block as u64 * scale.block_stride as u64;
        // SAFETY: the caller's; blocks that do not exist are not read.
        warp.float_from_bits(unsafe { warp.load_global::<4>(address, exists) })
    }

    /// What is added to the scores of the warp's `8 N` keys that begin at `key`, by column tile and key of this lane's; zeros if
    /// nothing is.
    ///
    /// # Safety
    /// As [`WarpScales::new`].
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn terms<C: Config, const N: usize>(&self, work: &Work, key: u32) -> [[W::F32; 2]; N] {
        let (warp, params, scales) = (self.warp, self.params, &self.params.scales);
        let mut terms = [[warp.splat_f32(0.0); 2]; N];
        if C::Scores::TERMS && scales.terms != 0 {
            const {
                let tile = QUERIES.is_multiple_of(C::ROWS) && KEYS.is_multiple_of(C::KEYS);
                assert!(!C::Scores::TERMS || tile);
            }
            let head = work.batch as u64 * params.q_heads as u64 + work.head as u64;
            let blocks = params.q.rows.div_ceil(QUERIES as u32) as u64;
            let block = head * blocks + (work.row / QUERIES as u32) as u64;
            let first = scales.terms + 4 * (block * scales.term_stride as u64 + key as u64);
            let place = warp.mul_wide(Accumulator::<W, M, N>::column(warp, 0, 0), 4) + first;
            let all = warp.less(warp.splat(0), warp.splat(1));
            for n in 0..N {
                // SAFETY: the caller's.
                let pair = unsafe { warp.load_global_x2(place + 32 * n as u64, all) };
                terms[n] = pair.map(|word| warp.float_from_bits(word));
            }
        }
        terms
    }

    /// Makes scores of what the sums of products hold; `factors` are the keys', `terms` what is added.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn apply<C: Config, const N: usize>(
        &self,
        scores: &mut Accumulator<W, M, N>,
        factors: &ByBlock<W::F32>,
        terms: &[[W::F32; 2]; N],
    ) {
        if !C::Scores::SCALED {
            return;
        }
        for m in 0..M {
            for half in 0..2 {
                for block in 0..(8 * N).div_ceil(BLOCK) {
                    let factor = self.rows[m][half] * factors[block];
                    for n in 8 * block..N.min(8 * block + 8) {
                        for r in 2 * half..2 * half + 2 {
                            let score = &mut scores.tiles[m][n][r];
                            *score = match C::Scores::TERMS {
                                false => *score * factor,
                                true => self.warp.fma(*score, factor, terms[n][r % 2]),
                            };
                        }
                    }
                }
            }
        }
    }

    /// Adds to the references, at the end, what the scores lack since something was subtracted from all keys.
    ///
    /// # Safety
    /// As [`WarpScales::new`], for the same rows.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn shift<C: Config>(&self, softmax: &mut Softmax<W, C::Values, M>, work: &Work, row: u32) {
        let (warp, params) = (self.warp, self.params);
        if !C::Scores::SCALED || params.scales.q_shift == 0 {
            return;
        }
        let head = work.batch as u64 * params.q_heads as u64 + work.head as u64;
        let base = params.scales.q_shift + 4 * head * params.q.rows as u64;
        let mut shifts = self.rows;
        for m in 0..M {
            for half in 0..2 {
                let row = Accumulator::<W, M, 1>::row(warp, m, half) + row;
                let exists = warp.less(row, warp.splat(params.q.rows));
                // SAFETY: the caller's; rows that do not exist are not read.
                let shift = unsafe { warp.load_global::<4>(warp.mul_wide(row, 4) + base, exists) };
                shifts[m][half] = warp.float_from_bits(shift) * params.score_factor;
            }
        }
        softmax.shift_references(&shifts);
    }

    /// Brings column tiles of a normalised output, whose columns are those from `column` on, to what V's columns stand for, for
    /// rows that saw a key: those whose sum is not 0.
    ///
    /// # Safety
    /// As [`WarpScales::new`].
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn finish<C: Config, const O: usize>(
        &self,
        output: &mut Accumulator<W, M, O>,
        sums: &Rows<W::F32, M>,
        column: u32,
        tiles: Range<usize>,
    ) {
        let (warp, params, scales) = (self.warp, self.params, &self.params.scales);
        if !C::Values::COLUMN_SCALES || scales.v_columns == 0 {
            return;
        }
        let (heads, _) = divide(params.q_heads, params.gqa_group);
        let first = (self.batch * heads + self.kv_head) as u64 * params.head_dim as u64;
        let zero = warp.splat_f32(0.0);
        for n in 0..tiles.end - tiles.start {
            for r in 0..2 {
                let column = C::Values::column(warp, n, r) + column;
                let exists = warp.less(column, warp.splat(params.head_dim));
                let place = warp.mul_wide(column, 4) + 4 * first;
                // SAFETY: the caller's; columns that do not exist are not read.
                let load =
                    |base: u64| warp.float_from_bits(unsafe { warp.load_global::<4>(place + base, exists) });
                let scale = load(scales.v_columns);
                let mean = if scales.v_mean != 0 { load(scales.v_mean) } else { zero };
                for m in 0..M {
                    for half in 0..2 {
                        let o = &mut output.tiles[m][tiles.start + n][2 * half + r];
                        let seen = warp.less_f32(zero, sums[m][half]);
                        *o = warp.fma(*o, scale, warp.select_f32(seen, mean, zero));
                    }
                }
            }
        }
    }
}

/// Address of the first scale of a head.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn head(scale: &Scale, batch: u32, head: u32) -> u64 {
    scale.base + batch as u64 * scale.batch_stride + head as u64 * scale.head_stride
}

/// The scale of a row.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
unsafe fn load<W: Warp>(warp: W, scale: &Scale, base: u64, row: W::U32, exists: W::Bool) -> W::F32 {
    // SAFETY: the host keeps it at 1 or more.
    unsafe { core::hint::assert_unchecked(scale.rows != 0) };
    let address = warp.mul_wide(row / scale.rows, scale.block_stride) + base;
    // SAFETY: the caller's.
    warp.float_from_bits(unsafe { warp.load_global::<4>(address, exists) })
}
