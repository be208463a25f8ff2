//! Rows to bytes and scales.
//!
//! A CTA has some blocks of [`BLOCK`] rows of one head of Q, K or V, and goes over them one by one. Warp `w` has the rows whose
//! number modulo 8 is `2 w` or `2 w + 1`: of a block of keys, those that share a [scale](crate::scales). A row's lanes stand
//! side by side, and each has every so many-th chunk of eight columns: its pieces. Other rows stand beside it.

use core::marker::PhantomData;

use cuda_std::Warp;

use super::block::{Block, Rows};
use super::columns::SharedColumns;
use super::numbers::{E4m3, Int8, Numbers, NvFp4, Side};
use super::prepared::{Change, Prepared};
use super::{ByColumn, COLUMNS, QUERIES, unpack};
use crate::abi::{Columns, QuantizeParams};
use crate::config::Dtype;
use crate::format::nvfp4::Rounding;
use crate::format::{Bf16, Element, F16};
use crate::scales::BLOCK;
use crate::schedule::divide;

/// Warps of a CTA: one for each group of a block.
pub const WARPS: usize = 4;
/// Rows of a block that are a warp's.
pub const ROWS: usize = BLOCK / WARPS;
/// Barriers in the code, for each type of sources: after means for queries, after those for keys, after what is known of columns
/// of values, and two around what the warps of a block of values tell each other.
pub const BARRIERS: usize = 2 * 5;

/// The same to NVFP4: after means for queries and keys, and after what is known of columns of values.
pub const NVFP4_BARRIERS: usize = 2 * 3;

/// Dynamic shared memory of a CTA: a float for each warp, and two for each column.
#[inline]
pub const fn shared_bytes(head_dim: usize) -> usize {
    4 * WARPS + 2 * 4 * head_dim
}

/// Lanes of a row. The fewer, the fewer a row's magnitude is gathered from; but each holds more columns' means.
#[inline]
pub const fn lanes(head_dim: usize) -> usize {
    match head_dim {
        0..=64 => 8,
        65..=128 => 16,
        _ => 32,
    }
}

/// Chunks of a row that are a lane's.
#[inline]
pub const fn pieces(head_dim: usize) -> usize {
    head_dim / (COLUMNS * lanes(head_dim))
}

/// Rows of a lane that are in flight together: of short rows all of a block's. Measured on an H200 (bf16, 32 heads of 8192 rows,
/// as a part of the bandwidth of a copy): D = 128, 4 rows 0.89, 8 rows 0.93; D = 192, 4 rows 0.76, 8 rows 0.69.
#[inline]
pub const fn passes(head_dim: usize) -> usize {
    match head_dim {
        65..=128 => 8,
        0..=512 => 4,
        _ => 2,
    }
}

/// Steps in which a warp goes over its rows of a block.
#[inline]
pub const fn steps(head_dim: usize) -> usize {
    ROWS * lanes(head_dim) / (32 * passes(head_dim))
}

/// Magnitudes below this are taken for zero: what brings them to the largest number would be no finite float.
pub const LEAST: f32 = f32::from_bits((127 - 100) << 23);

/// The largest e4m3.
pub const LARGEST_E4M3: f32 = 448.0;
/// The largest integer whose negative is one too.
pub const LARGEST_INT8: f32 = 127.0;

/// One CTA's work, for head dims of at most `8 LANES PIECES` columns; Q and K are rotated if `ROTATED`. A warp's share of a block is `params.steps` times `PASSES`
/// times `32 / LANES` rows, of which a step's are in flight together. Steps are counted at run time: unrolled, all of them
/// would be in registers together.
///
/// # Safety
/// `params` describes live buffers, as [`QuantizeParams`] documents, with the statistics that it asks for, and the grid has a
/// CTA for each group of blocks of each head of Q, then K, then V.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn quantize<
    W: Warp,
    const LANES: usize,
    const PIECES: usize,
    const PASSES: usize,
    const ROTATED: bool,
>(
    warp: W,
    params: &QuantizeParams,
) {
    // Known from here on: a branch at each chunk would keep loads and arithmetic from overlapping.
    // SAFETY: the caller's.
    unsafe {
        match params.source {
            Dtype::F16 => Cta::<W, F16, LANES, PIECES, PASSES, ROTATED>::new(warp, params).to_eight_bits(),
            Dtype::Bf16 => Cta::<W, Bf16, LANES, PIECES, PASSES, ROTATED>::new(warp, params).to_eight_bits(),
        }
    }
}

/// As [`quantize`], to NVFP4.
///
/// # Safety
/// As [`quantize`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn quantize_nvfp4<
    W: Warp,
    R: Rounding,
    const LANES: usize,
    const PIECES: usize,
    const PASSES: usize,
>(
    warp: W,
    params: &QuantizeParams,
) {
    // SAFETY: the caller's.
    unsafe {
        match params.source {
            Dtype::F16 => Cta::<W, F16, LANES, PIECES, PASSES, false>::new(warp, params).to_nvfp4::<R>(),
            Dtype::Bf16 => Cta::<W, Bf16, LANES, PIECES, PASSES, false>::new(warp, params).to_nvfp4::<R>(),
        }
    }
}

/// What a CTA brings to numbers: a group of blocks of a head.
enum Work {
    Queries((u32, u32)),
    Keys((u32, u32)),
    Values((u32, u32)),
}

pub(super) struct Cta<
    'a,
    W,
    E,
    const LANES: usize,
    const PIECES: usize,
    const PASSES: usize,
    const ROTATED: bool,
> {
    pub(super) warp: W,
    pub(super) params: &'a QuantizeParams,
    element: PhantomData<E>,
}

impl<
    'a,
    W: Warp,
    E: Element,
    const LANES: usize,
    const PIECES: usize,
    const PASSES: usize,
    const ROTATED: bool,
> Cta<'a, W, E, LANES, PIECES, PASSES, ROTATED>
{
    /// Whether a step is all of a block.
    pub(super) const ONE_STEP: bool = ROWS * LANES == 32 * PASSES;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn new(warp: W, params: &'a QuantizeParams) -> Self {
        const { assert!((ROWS * LANES).is_multiple_of(32 * PASSES) && LANES.is_power_of_two() && LANES <= 32) };
        Cta { warp, params, element: PhantomData }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn work(&self) -> Work {
        let (block, params) = (self.warp.block_idx_x(), self.params);
        let (q_blocks, kv_blocks) = (params.q_blocks, params.kv_blocks);
        let (q_ctas, kv_ctas) =
            (params.batch * params.q_heads * q_blocks, params.batch * params.kv_heads * kv_blocks);
        if block < q_ctas {
            Work::Queries(divide(block, q_blocks))
        } else if block - q_ctas < kv_ctas {
            Work::Keys(divide(block - q_ctas, kv_blocks))
        } else {
            Work::Values(divide(block - q_ctas - kv_ctas, kv_blocks))
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn to_eight_bits(&self) {
        let integers = self.params.int8 != 0;
        // SAFETY: the caller's, here and below.
        unsafe {
            match self.work() {
                Work::Queries(which) => {
                    let mean = self.mean_for_queries(which.0);
                    match integers {
                        false => self.queries::<E4m3>(which, &mean),
                        true => self.queries::<Int8>(which, &mean),
                    }
                }
                Work::Keys(which) => {
                    let change = self.change_of_keys(which.0);
                    match integers {
                        false => self.keys::<E4m3>(which, &change),
                        true => self.keys::<Int8>(which, &change),
                    }
                }
                Work::Values(which) => self.values(which),
            }
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn to_nvfp4<R: Rounding>(&self) {
        // SAFETY: the caller's, here and below.
        unsafe {
            match self.work() {
                Work::Queries(which) => self.queries::<NvFp4<R>>(which, &self.mean_for_queries(which.0)),
                Work::Keys(which) => self.keys::<NvFp4<R>>(which, &self.change_of_keys(which.0)),
                Work::Values(which) => self.transposed_values::<R>(which),
            }
        }
    }

    /// The largest magnitude of a pass's row, over this lane's columns.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn magnitude(&self, rows: &Prepared<W, PIECES, PASSES>, pass: usize) -> W::F32 {
        let warp = self.warp;
        let mut largest = warp.splat_f32(0.0);
        for piece in 0..PIECES {
            for c in 0..COLUMNS {
                largest = warp.maximum(largest, warp.abs(rows.values[pass][piece][c]));
            }
        }
        warp.select_f32(rows.exist[pass], largest, warp.splat_f32(0.0))
    }

    /// The largest magnitude of a step's rows, over this lane's columns, or another.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn over_passes(&self, rows: &Prepared<W, PIECES, PASSES>, mut largest: W::F32) -> W::F32 {
        for pass in 0..PASSES {
            largest = self.warp.maximum(largest, self.magnitude(rows, pass));
        }
        largest
    }

    /// The largest of the values of `count` neighbouring lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn largest(&self, mut value: W::F32, count: usize) -> W::F32 {
        let warp = self.warp;
        for log2 in 0..5 {
            if 1 << log2 < count {
                value = warp.maximum(value, warp.shuffle_xor(value, 1 << log2));
            }
        }
        value
    }

    /// What numbers of at most this magnitude are multiplied with to become at most `to`, and what those are multiplied with to
    /// be the numbers again. Both are NaN, or a product of both, where the magnitude is no finite number.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn factors(&self, magnitude: W::F32, to: f32) -> [W::F32; 2] {
        let warp = self.warp;
        let zero = warp.splat_f32(0.0);
        let none = warp.less_f32(magnitude, warp.splat_f32(LEAST));
        [
            warp.select_f32(none, zero, warp.divide(warp.splat_f32(to), magnitude)),
            warp.select_f32(none, zero, magnitude * (1.0 / to)),
        ]
    }

    /// Stores a pass's row as numbers. Chunks beyond the last column are zeros.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn store<N: Numbers>(
        &self,
        block: &Block<W>,
        rows: &Prepared<W, PIECES, PASSES>,
        pass: usize,
        side: Side,
        factor: impl Fn(usize, usize) -> W::F32,
    ) {
        let (warp, params) = (self.warp, self.params);
        for piece in 0..PIECES {
            let values = [0, 1, 2, 3, 4, 5, 6, 7].map(|c| rows.values[pass][piece][c] * factor(piece, c));
            let row = block.to + self.distance(rows.step, pass) as u64 * params.row_bytes as u64;
            let exists = rows.exist[pass] & self.piece_exists(piece, params.row_columns);
            // SAFETY: the caller's; what does not exist is not written.
            unsafe { N::store(warp, row, (self.chunk(0), LANES * piece), values, side, exists) };
        }
    }

    /// No means, or a factor for none.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn zeros(&self) -> ByColumn<W, PIECES> {
        [[self.warp.splat_f32(0.0); COLUMNS]; PIECES]
    }

    /// Where numbers of columns lie in shared memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn shared_columns(&self) -> u32 {
        self.warp.shared_base() + 4 * WARPS as u32
    }

    /// The mean key of a head of K.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn mean_key(&self, kv_head: u32) -> ByColumn<W, PIECES> {
        // SAFETY: the caller's.
        let of = |column, exists| unsafe { [self.mean(Columns::KeySum, kv_head, column, exists)] };
        // SAFETY: the caller's.
        let [mean] = unsafe { self.own_columns(self.share_columns(self.shared_columns(), of)) };
        mean
    }

    /// The mean key that a head's queries are multiplied with, if that is wanted.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn mean_for_queries(&self, head: u32) -> ByColumn<W, PIECES> {
        let params = self.params;
        let (batch, q_head) = divide(head, params.q_heads);
        let (group_size, _) = divide(params.q_heads, params.kv_heads);
        let kv_head = batch * params.kv_heads + divide(q_head, group_size).0;
        match params.q_shift {
            0 => self.zeros(),
            // SAFETY: the caller's.
            _ => unsafe { self.mean_key(kv_head) },
        }
    }

    /// The mean query of those that a block of a head is of.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn mean_query(&self, head: u32, block: u32) -> ByColumn<W, PIECES> {
        let (warp, params) = (self.warp, self.params);
        let blocks = params.q.rows.div_ceil(QUERIES as u32);
        let number = head as u64 * blocks as u64 + (block / (QUERIES / BLOCK) as u32) as u64;
        let first = params.q_means + number * params.head_dim as u64 * 4;
        let mut mean = self.zeros();
        for piece in 0..PIECES {
            let place = warp.mul_wide(self.chunk(piece), 4 * COLUMNS as u32) + first;
            let exists = self.piece_exists(piece, params.head_dim);
            // SAFETY: the caller's; what does not exist is not read.
            let [[a, b, c, d], [e, f, g, h]] =
                unsafe { [warp.load_global_x4(place, exists), warp.load_global_x4(place + 16, exists)] };
            mean[piece] = [a, b, c, d, e, f, g, h].map(|word| warp.float_from_bits(word));
        }
        mean
    }

    /// A row with a scale each, and its product with the mean key if that is wanted.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn queries<N: Numbers>(&self, which: (u32, u32), mean: &ByColumn<W, PIECES>) {
        let (warp, params) = (self.warp, self.params);
        let first_row = warp.mul_wide(self.first_row(), 4);
        let mut block = self.first_block::<N>(&params.q, params.q8, params.q_heads, which);
        let mut change = Change { mean: self.zeros(), rotated: ROTATED };
        for _ in 0..block.count(params) {
            if N::SMOOTH_QUERIES && params.smooth_q != 0 {
                // SAFETY: the caller's.
                change.mean = unsafe { self.mean_query(which.0, block.number) };
            }
            for step in 0..self.steps() {
                // SAFETY: the caller's, here and below.
                let rows = unsafe { self.load(&block, step) };
                // Of rows that are to be rotated, before they are: they would be in registers twice. Others are there anyway.
                let mut products = [warp.splat_f32(0.0); PASSES];
                if ROTATED && params.q_shift != 0 {
                    for pass in 0..PASSES {
                        products[pass] = self.product(&rows, pass, mean);
                    }
                }
                let prepared = self.prepared(&rows, &change);
                // Of all rows before the first division: it has a branch, which keeps the rows' chains of shuffles apart.
                let mut magnitudes = [warp.splat_f32(0.0); PASSES];
                for pass in 0..PASSES {
                    magnitudes[pass] = self.largest(self.magnitude(&prepared, pass), LANES);
                }
                for pass in 0..PASSES {
                    let [factor, scale] = self.factors(magnitudes[pass], N::LARGEST);
                    let stores = rows.exist[pass] & warp.less(self.chunk(0), warp.splat(1));
                    let row = block.row + self.distance(step, pass) as u64;
                    let place = first_row + 4 * row;
                    // SAFETY: see above.
                    unsafe {
                        warp.store_global_f32(place + params.q_scale, scale, stores);
                        if params.q_shift != 0 {
                            let product =
                                if ROTATED { products[pass] } else { self.product(&rows, pass, mean) };
                            warp.store_global_f32(place + params.q_shift, product, stores);
                        }
                        self.store::<N>(&block, &prepared, pass, Side::Query, |_, _| factor);
                    }
                }
            }
            block = self.next_block(block);
        }
    }

    /// The product of a pass's row and another.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn product(&self, rows: &Rows<W, PIECES, PASSES>, pass: usize, other: &ByColumn<W, PIECES>) -> W::F32 {
        let warp = self.warp;
        let mut product = warp.splat_f32(0.0);
        for piece in 0..PIECES {
            let values = unpack::<W, E>(warp, rows.words[pass][piece]);
            for c in 0..COLUMNS {
                product = warp.fma(values[c], other[piece][c], product);
            }
        }
        for log2 in 0..5 {
            if 1 << log2 < LANES {
                product = product + warp.shuffle_xor(product, 1 << log2);
            }
        }
        product
    }

    /// What is done to a head's keys.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn change_of_keys(&self, head: u32) -> Change<W, PIECES> {
        let mean = match self.params.smooth_k {
            0 => self.zeros(),
            // SAFETY: the caller's.
            _ => unsafe { self.mean_key(head) },
        };
        Change { mean, rotated: ROTATED }
    }

    /// A scale for each quarter of a block.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn keys<N: Numbers>(&self, which: (u32, u32), change: &Change<W, PIECES>) {
        let (warp, params) = (self.warp, self.params);
        let blocks = params.k.rows.div_ceil(BLOCK as u32);
        let scale = params.k_scale + 16 * which.0 as u64 * blocks as u64;
        let first_lane = warp.less(warp.lane_id(), warp.splat(1));
        let mut block = self.first_block::<N>(&params.k, params.k8, params.kv_heads, which);
        for _ in 0..block.count(params) {
            // SAFETY: the caller's.
            unsafe {
                self.store_together::<N>(&block, change, |magnitude| {
                    let [factor, back] = self.factors(self.largest(magnitude, 32), N::LARGEST);
                    let place = warp.mul_wide(warp.splat(warp.warp_id()), 4) + 16 * block.number as u64;
                    warp.store_global_f32(place + scale, back, first_lane);
                    factor
                });
            }
            block = self.next_block(block);
        }
    }

    /// Stores a block whose rows share what they are multiplied with: `factor` makes that of the largest magnitude of all of this
    /// lane's. Rows that are not in registers any more are read again, from the first-level cache.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn store_together<N: Numbers>(
        &self,
        block: &Block<W>,
        change: &Change<W, PIECES>,
        factor: impl FnOnce(W::F32) -> W::F32,
    ) {
        let warp = self.warp;
        // SAFETY: the caller's, here and below.
        unsafe {
            let first = self.prepared(&self.load(block, 0), change);
            let mut largest = self.over_passes(&first, warp.splat_f32(0.0));
            for step in 1..self.steps() {
                let rows = self.prepared(&self.load(block, step), change);
                largest = self.over_passes(&rows, largest);
            }
            let factor = factor(largest);
            for pass in 0..PASSES {
                self.store::<N>(block, &first, pass, Side::Key, |_, _| factor);
            }
            for step in 1..self.steps() {
                let rows = self.prepared(&self.load(block, step), change);
                for pass in 0..PASSES {
                    self.store::<N>(block, &rows, pass, Side::Key, |_, _| factor);
                }
            }
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn values(&self, which: (u32, u32)) {
        // SAFETY: the caller's.
        unsafe {
            match self.params.v_by_columns {
                0 => self.blocks_of_values(which),
                _ => self.columns_of_values(which),
            }
        }
    }

    /// A scale for each block.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn blocks_of_values(&self, which: (u32, u32)) {
        let (warp, params) = (self.warp, self.params);
        let change = Change { mean: self.zeros(), rotated: false };
        let blocks = params.v.rows.div_ceil(BLOCK as u32);
        let scale = params.v_scale + 4 * which.0 as u64 * blocks as u64;
        let first_thread = warp.less(warp.lane_id() + warp.splat(warp.warp_id()), warp.splat(1));
        let mut block = self.first_block::<E4m3>(&params.v, params.v8, params.kv_heads, which);
        for _ in 0..block.count(params) {
            // SAFETY: the caller's.
            unsafe {
                self.store_together::<E4m3>(&block, &change, |magnitude| {
                    let magnitude = self.over_warps(self.largest(magnitude, 32));
                    let [factor, back] = self.factors(magnitude, params.v_largest);
                    let place = warp.mul_wide(warp.splat(0), 0) + (scale + 4 * block.number as u64);
                    warp.store_global_f32(place, back, first_thread);
                    factor
                });
            }
            block = self.next_block(block);
        }
    }

    /// Of each column of values: its mean if that is to be subtracted, and what its elements are multiplied with then. The head's
    /// first CTA leaves the means and the way back.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub(super) unsafe fn changes_of_values(&self, (head, group): (u32, u32)) -> SharedColumns<2> {
        let (warp, params) = (self.warp, self.params);
        let zero = warp.splat_f32(0.0);
        let of = |column: W::U32, exists: W::Bool| {
            let place = warp.mul_wide(column, 4) + 4 * head as u64 * params.head_dim as u64;
            let stores = exists & warp.less(warp.splat(group), warp.splat(1));
            let extreme = |which| {
                // SAFETY: the caller's, here and below.
                unsafe { self.of_all_chunks(which, head, column, exists, |a, b| warp.maximum(a, b)) }
            };
            let mut mean = zero;
            if params.smooth_v != 0 {
                // SAFETY: see above.
                unsafe {
                    mean = self.mean(Columns::ValueSum, head, column, exists);
                    warp.store_global_f32(place + params.v_mean, mean, stores);
                }
            }
            let (highest, lowest) = (extreme(Columns::ValueHighest), extreme(Columns::ValueLowest));
            let magnitude = warp.maximum(warp.abs(highest - mean), warp.abs(lowest + mean));
            let [factor, scale] = self.factors(magnitude, params.v_largest);
            // SAFETY: see above.
            unsafe { warp.store_global_f32(place + params.v_columns, scale, stores) };
            [mean, factor]
        };
        // SAFETY: the caller's.
        unsafe { self.share_columns(self.shared_columns(), of) }
    }

    /// A scale for each column, and perhaps a mean.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn columns_of_values(&self, which: (u32, u32)) {
        let params = self.params;
        // SAFETY: the caller's.
        let [mean, factors] = unsafe { self.own_columns(self.changes_of_values(which)) };
        let change = Change { mean, rotated: false };
        let mut block = self.first_block::<E4m3>(&params.v, params.v8, params.kv_heads, which);
        for _ in 0..block.count(params) {
            for step in 0..self.steps() {
                // SAFETY: the caller's.
                unsafe {
                    let rows = self.prepared(&self.load(&block, step), &change);
                    for pass in 0..PASSES {
                        self.store::<E4m3>(&block, &rows, pass, Side::Key, |piece, c| factors[piece][c]);
                    }
                }
            }
            block = self.next_block(block);
        }
    }

    /// The largest of all warps' values.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn over_warps(&self, value: W::F32) -> W::F32 {
        let warp = self.warp;
        let base = warp.splat(warp.shared_base());
        let first_lane = warp.less(warp.lane_id(), warp.splat(1));
        let mut largest = value;
        // SAFETY: a float for each warp fits.
        unsafe {
            warp.store_shared_f32(base + 4 * warp.warp_id(), value, first_lane);
            warp.sync_threads();
            for other in 0..WARPS as u32 {
                largest = warp.maximum(largest, warp.load_shared_f32(base + 4 * other));
            }
        }
        warp.sync_threads();
        largest
    }
}
