//! Rows to bytes and scales.
//!
//! A CTA has some blocks of [`BLOCK`] rows of one head of Q, K or V, and goes over them one by one. Warp `w` has the rows whose
//! number modulo 8 is `2 w` or `2 w + 1`: of a block of keys, those that share a [scale](crate::scales). A row's lanes stand
//! side by side, eight columns each; where a row has fewer than 32 chunks, several rows stand side by side too.

use cuda_std::Warp;

use super::statistics::source;
use super::{COLUMNS, Eight, columns_of, unpack};
use crate::abi::{Columns, QuantizeParams};
use crate::scales::BLOCK;
use crate::schedule::divide;
use crate::tile::GlobalTile;

/// Warps of a CTA: one for each group of a block.
pub const WARPS: usize = 4;
/// Rows of a block that are a warp's.
pub const ROWS: usize = BLOCK / WARPS;
/// Chunks of a lane that are in flight together.
pub const PASSES: usize = 4;
/// Dynamic shared memory of a CTA: a float for each warp.
pub const SHARED_BYTES: usize = 4 * WARPS;
/// Barriers in the code: two around what the warps of a block of V tell each other.
pub const BARRIERS: usize = 2;

/// Magnitudes up to this are taken for zero: what brings them to the largest number would be no finite float.
pub const LEAST: f32 = f32::from_bits((127 - 100) << 23);

/// The largest e4m3, and the largest integer whose negative is one too.
const LARGEST: [f32; 2] = [448.0, 127.0];

/// One CTA's work, for head dims of at most `8 LANES` columns. A warp's share of a block is `params.steps` times `PASSES` times
/// `32 / LANES` rows, of which a step's are in flight together: what has to be known of all before any is stored is found in a
/// first walk over them, and the second finds them in the first-level cache. Steps are counted at run time: unrolled, all of
/// them would be in registers together.
///
/// # Safety
/// `params` describes live buffers, as [`QuantizeParams`] documents, with the statistics that it asks for, and the grid has a
/// CTA for each group of blocks of each head of Q, then K, then V.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn quantize<W: Warp, const LANES: usize, const PASSES: usize>(warp: W, params: &QuantizeParams) {
    const { assert!((ROWS * LANES).is_multiple_of(32 * PASSES) && LANES.is_power_of_two() && LANES <= 32) };
    let block = warp.block_idx_x();
    let cta = Cta::<W, LANES, PASSES> { warp, params };
    let (q_blocks, kv_blocks) = (params.q_blocks, params.kv_blocks);
    let (q_ctas, kv_ctas) =
        (params.batch * params.q_heads * q_blocks, params.batch * params.kv_heads * kv_blocks);
    // SAFETY: the caller's, here and below.
    unsafe {
        if block < q_ctas {
            cta.queries(divide(block, q_blocks));
        } else if block - q_ctas < kv_ctas {
            cta.keys(divide(block - q_ctas, kv_blocks));
        } else {
            cta.values(divide(block - q_ctas - kv_ctas, kv_blocks));
        }
    }
}

struct Cta<'a, W, const LANES: usize, const PASSES: usize> {
    warp: W,
    params: &'a QuantizeParams,
}

/// The rows of a step: by pass, a chunk of a row each, as it came, so that registers hold many in flight.
struct Rows<W: Warp, const PASSES: usize> {
    step: u32,
    words: [[W::U32; 4]; PASSES],
    exist: [W::Bool; PASSES],
    mean: Eight<W>,
}

impl<W: Warp, const LANES: usize, const PASSES: usize> Cta<'_, W, LANES, PASSES> {
    /// This lane's chunk of a row.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn chunk(&self) -> W::U32 {
        self.warp.lane_id() & (LANES as u32 - 1)
    }

    /// The row, in its block, that is this lane's in a pass of a step.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn row(&self, step: u32, pass: usize) -> W::U32 {
        let first = (step * PASSES as u32 + pass as u32) * (32 / LANES as u32);
        let number = self.warp.lane_id() / LANES as u32 + first;
        ((number >> 1) << 3) + (number & 1) + 2 * self.warp.warp_id()
    }

    /// Whether this lane's chunk has columns.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn column_exists(&self) -> W::Bool {
        self.warp.less(self.chunk(), self.warp.splat(self.params.head_dim / COLUMNS as u32))
    }

    /// The warp's rows, in a step, of the block that `from` begins with, from which `mean` is to be subtracted.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load(&self, from: &GlobalTile, step: u32, mean: &Eight<W>) -> Rows<W, PASSES> {
        let warp = self.warp;
        let none = warp.less(warp.splat(0), warp.splat(0));
        let mut rows = Rows { step, words: [[warp.splat(0); 4]; PASSES], exist: [none; PASSES], mean: *mean };
        for pass in 0..PASSES {
            let row = self.row(step, pass);
            rows.exist[pass] = self.column_exists() & warp.less(row, warp.splat(from.rows));
            let place = from.chunk(warp, row, self.chunk());
            // SAFETY: the caller's; what does not exist is not read.
            rows.words[pass] = unsafe { warp.load_global_x4(place, rows.exist[pass]) };
        }
        rows
    }

    /// A pass's chunk, widened, less the mean: of rows that do not exist, something.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn widened(&self, rows: &Rows<W, PASSES>, pass: usize) -> Eight<W> {
        let warp = self.warp;
        let mut values = unpack(warp, self.params.source, rows.words[pass]);
        for c in 0..COLUMNS {
            values[c] = values[c] - rows.mean[c];
        }
        values
    }

    /// The largest magnitude of a pass's row, over this lane's columns.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn magnitude(&self, rows: &Rows<W, PASSES>, pass: usize) -> W::F32 {
        let warp = self.warp;
        let values = self.widened(rows, pass);
        let mut largest = warp.splat_f32(0.0);
        for c in 0..COLUMNS {
            largest = warp.max(largest, warp.abs(values[c]));
        }
        warp.select_f32(rows.exist[pass], largest, warp.splat_f32(0.0))
    }

    /// The largest of the values of `count` neighbouring lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn largest(&self, mut value: W::F32, count: usize) -> W::F32 {
        let warp = self.warp;
        for log2 in 0..5 {
            if 1 << log2 < count {
                value = warp.max(value, warp.shuffle_xor(value, 1 << log2));
            }
        }
        value
    }

    /// What numbers of at most this magnitude are multiplied with to become at most `to`, and what those are multiplied with to
    /// be the numbers again.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn factors(&self, magnitude: W::F32, to: f32) -> [W::F32; 2] {
        let warp = self.warp;
        let zero = warp.splat_f32(0.0);
        let some = warp.less_f32(warp.splat_f32(LEAST), magnitude);
        [
            warp.select_f32(some, warp.divide(warp.splat_f32(to), magnitude), zero),
            warp.select_f32(some, magnitude * (1.0 / to), zero),
        ]
    }

    /// Stores a step's rows of a block as bytes: `place` is where the block begins. Chunks beyond the last column are zeros.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn store(
        &self,
        rows: &Rows<W, PASSES>,
        place: u64,
        exist: u32,
        int8: bool,
        factor: impl Fn(usize, usize) -> W::F32,
    ) {
        let (warp, params) = (self.warp, self.params);
        let row_bytes = params.row_bytes;
        let column_exists = warp.less(self.chunk(), warp.splat(row_bytes / COLUMNS as u32));
        for pass in 0..PASSES {
            let all = self.widened(rows, pass);
            let half = |first: usize| {
                let values = [0, 1, 2, 3].map(|c| all[first + c] * factor(pass, first + c));
                if int8 { warp.pack_s8(values) } else { warp.pack_e4m3(values) }
            };
            let address =
                warp.mul_wide(self.row(rows.step, pass), row_bytes) + warp.mul_wide(self.chunk(), 8) + place;
            let exists = column_exists & warp.less(self.row(rows.step, pass), warp.splat(exist));
            // SAFETY: the caller's; rows that do not exist are not written.
            unsafe { warp.store_global_x2(address, [half(0), half(4)], exists) };
        }
    }

    /// A column's statistics over all chunks of rows, for this lane's columns; zeros for those that do not exist.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn columns(&self, which: Columns, head: u64, add: impl Fn(W::F32, W::F32) -> W::F32) -> Eight<W> {
        let (warp, params) = (self.warp, self.params);
        let base = columns_of(params, which, head);
        let load = |chunk: u32| {
            let place = warp.mul_wide(self.chunk(), 32) + (base + chunk as u64 * params.head_dim as u64 * 4);
            // SAFETY: the caller's; columns that do not exist are not read.
            let [[a, b, c, d], [e, f, g, h]] = unsafe {
                let exists = self.column_exists();
                [warp.load_global_x4(place, exists), warp.load_global_x4(place + 16, exists)]
            };
            [a, b, c, d, e, f, g, h].map(|word| warp.float_from_bits(word))
        };
        let mut all = load(0);
        let mut first = 1;
        while first < params.chunks {
            // Beyond the last, the last again, which does not count.
            let next = [0, 1, 2, 3, 4].map(|i| load((first + i).min(params.chunks - 1)));
            for i in 0..5 {
                if first + (i as u32) < params.chunks {
                    for c in 0..COLUMNS {
                        all[c] = add(all[c], next[i][c]);
                    }
                }
            }
            first += 5;
        }
        all
    }

    /// The means of a head's columns, from their sums.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn means(&self, which: Columns, head: u64) -> Eight<W> {
        let warp = self.warp;
        let rows = warp.splat_f32(self.params.k.rows as f32);
        // SAFETY: the caller's.
        let sums = unsafe { self.columns(which, head, |a, b| a + b) };
        sums.map(|sum| warp.divide(sum, rows))
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn queries(&self, (head, group): (u32, u32)) {
        let (warp, params) = (self.warp, self.params);
        let (batch, q_head) = divide(head, params.q_heads);
        let zeros = [warp.splat_f32(0.0); COLUMNS];
        let (group_size, _) = divide(params.q_heads, params.kv_heads);
        let kv_head = batch * params.kv_heads + divide(q_head, group_size).0;
        let shifts = params.q_shift != 0;
        // SAFETY: the caller's, here and below.
        let mean = if shifts { unsafe { self.means(Columns::KeySum, kv_head as u64) } } else { zeros };
        let largest = if params.int8 != 0 { LARGEST[1] } else { LARGEST[0] };
        for block in 0..params.group_blocks {
            let first = (group * params.group_blocks + block) * BLOCK as u32;
            if first >= params.q.rows {
                return;
            }
            let from = source(&params.q, batch, q_head, params).skip_rows(first);
            let row_index = head as u64 * params.q.rows as u64 + first as u64;
            for step in 0..params.steps {
                // SAFETY: see above.
                let rows = unsafe { self.load(&from, step, &zeros) };
                let mut factors = [warp.splat_f32(0.0); PASSES];
                for pass in 0..PASSES {
                    let magnitude = self.largest(self.magnitude(&rows, pass), LANES);
                    let [factor, scale] = self.factors(magnitude, largest);
                    factors[pass] = factor;
                    let row = self.row(step, pass);
                    let stores =
                        warp.less(self.chunk(), warp.splat(1)) & warp.less(row, warp.splat(from.rows));
                    let place = warp.mul_wide(row, 4) + 4 * row_index;
                    // SAFETY: see above.
                    unsafe { warp.store_global_f32(place + params.q_scale, scale, stores) };
                    if shifts {
                        let product = self.product(&self.widened(&rows, pass), &mean);
                        // SAFETY: see above.
                        unsafe { warp.store_global_f32(place + params.q_shift, product, stores) };
                    }
                }
                let place = params.q8 + row_index * params.row_bytes as u64;
                // SAFETY: see above.
                unsafe { self.store(&rows, place, from.rows, params.int8 != 0, |pass, _| factors[pass]) };
            }
        }
    }

    /// The product of a row, spread over its lanes, and another.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn product(&self, a: &Eight<W>, b: &Eight<W>) -> W::F32 {
        let warp = self.warp;
        let mut product = warp.splat_f32(0.0);
        for c in 0..COLUMNS {
            product = warp.fma(a[c], b[c], product);
        }
        for log2 in 0..5 {
            if 1 << log2 < LANES {
                product = product + warp.shuffle_xor(product, 1 << log2);
            }
        }
        product
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn keys(&self, (head, group): (u32, u32)) {
        let (warp, params) = (self.warp, self.params);
        let (batch, kv_head) = divide(head, params.kv_heads);
        let zeros = [warp.splat_f32(0.0); COLUMNS];
        // SAFETY: the caller's, here and below.
        let mean = match params.smooth_k {
            0 => zeros,
            // SAFETY: see above.
            _ => unsafe { self.means(Columns::KeySum, head as u64) },
        };
        let largest = if params.int8 != 0 { LARGEST[1] } else { LARGEST[0] };
        for block in 0..params.group_blocks {
            let number = group * params.group_blocks + block;
            let first = number * BLOCK as u32;
            if first >= params.k.rows {
                return;
            }
            let from = source(&params.k, batch, kv_head, params).skip_rows(first);
            // SAFETY: see above.
            let magnitude = unsafe { self.magnitude_of_all(&from, &mean) };
            let [factor, scale] = self.factors(self.largest(magnitude, 32), largest);
            let blocks = params.k.rows.div_ceil(BLOCK as u32);
            let place = params.k_scale + 16 * (head as u64 * blocks as u64 + number as u64);
            let first_lane = warp.less(warp.lane_id(), warp.splat(1));
            let row_index = head as u64 * params.k.rows as u64 + first as u64;
            // SAFETY: see above.
            unsafe {
                let group = warp.mul_wide(warp.splat(warp.warp_id()), 4);
                warp.store_global_f32(group + place, scale, first_lane);
                let place = params.k8 + row_index * params.row_bytes as u64;
                self.store_all(&from, &mean, place, params.int8 != 0, |_, _| factor);
            }
        }
    }

    /// The largest magnitude of all of this lane's rows and columns of a block.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn magnitude_of_all(&self, from: &GlobalTile, mean: &Eight<W>) -> W::F32 {
        let mut largest = self.warp.splat_f32(0.0);
        for step in 0..self.params.steps {
            // SAFETY: the caller's.
            let rows = unsafe { self.load(from, step, mean) };
            for pass in 0..PASSES {
                largest = self.warp.max(largest, self.magnitude(&rows, pass));
            }
        }
        largest
    }

    /// Stores a block.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn store_all(
        &self,
        from: &GlobalTile,
        mean: &Eight<W>,
        place: u64,
        int8: bool,
        factor: impl Fn(usize, usize) -> W::F32,
    ) {
        for step in 0..self.params.steps {
            // SAFETY: the caller's.
            unsafe {
                let rows = self.load(from, step, mean);
                self.store(&rows, place, from.rows, int8, &factor);
            }
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn values(&self, (head, group): (u32, u32)) {
        let (warp, params) = (self.warp, self.params);
        let (batch, kv_head) = divide(head, params.kv_heads);
        let zeros = [warp.splat_f32(0.0); COLUMNS];
        let (mut mean, mut by_column) = (zeros, zeros);
        if params.v_by_columns != 0 {
            // SAFETY: the caller's.
            unsafe {
                if params.smooth_v != 0 {
                    mean = self.means(Columns::ValueSum, head as u64);
                }
                let highest = self.columns(Columns::ValueHighest, head as u64, |a, b| warp.max(a, b));
                let lowest = self.columns(Columns::ValueLowest, head as u64, |a, b| warp.max(a, b));
                let place = 4 * head as u64 * params.head_dim as u64;
                let stores =
                    self.column_exists() & warp.less(warp.splat(group + warp.warp_id()), warp.splat(1));
                for c in 0..COLUMNS {
                    let magnitude = warp.max(warp.abs(highest[c] - mean[c]), warp.abs(lowest[c] + mean[c]));
                    let [factor, scale] = self.factors(magnitude, LARGEST[0]);
                    by_column[c] = factor;
                    let column = warp.mul_wide((self.chunk() << 3) + c as u32, 4) + place;
                    // Rows that stand side by side write the same.
                    let stores = stores & warp.less(warp.lane_id(), warp.splat(LANES as u32));
                    warp.store_global_f32(column + params.v_columns, scale, stores);
                    if params.smooth_v != 0 {
                        warp.store_global_f32(column + params.v_mean, mean[c], stores);
                    }
                }
            }
        }
        for block in 0..params.group_blocks {
            let number = group * params.group_blocks + block;
            let first = number * BLOCK as u32;
            if first >= params.v.rows {
                return;
            }
            let from = source(&params.v, batch, kv_head, params).skip_rows(first);
            let row_index = head as u64 * params.v.rows as u64 + first as u64;
            let place = params.v8 + row_index * params.row_bytes as u64;
            if params.v_by_columns != 0 {
                // SAFETY: the caller's.
                unsafe { self.store_all(&from, &mean, place, false, |_, c| by_column[c]) };
            } else {
                // SAFETY: the caller's, here and below.
                let magnitude = unsafe { self.magnitude_of_all(&from, &mean) };
                // SAFETY: see above.
                let magnitude = unsafe { self.over_warps(self.largest(magnitude, 32)) };
                let [factor, scale] = self.factors(magnitude, LARGEST[0]);
                let blocks = params.v.rows.div_ceil(BLOCK as u32);
                let scale_place = params.v_scale + 4 * (head as u64 * blocks as u64 + number as u64);
                let first_lane = warp.less(warp.lane_id() + warp.splat(warp.warp_id()), warp.splat(1));
                // SAFETY: see above.
                unsafe {
                    warp.store_global_f32(warp.mul_wide(warp.splat(0), 0) + scale_place, scale, first_lane);
                    self.store_all(&from, &mean, place, false, |_, _| factor);
                }
            }
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
                largest = warp.max(largest, warp.load_shared_f32(base + 4 * other));
            }
        }
        warp.sync_threads();
        largest
    }
}
