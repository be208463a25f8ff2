//! What is wanted of the columns of K and V, and of Q, of some rows at a time.

use cuda_std::Warp;

use super::{COLUMNS, Eight, QUERIES, columns_of, unpack};
use crate::abi::{Columns, Matrices, QuantizeParams};
use crate::config::Dtype;
use crate::format::{Bf16, Element, F16};
use crate::schedule::divide;
use crate::tile::GlobalTile;

/// Warps of a CTA.
pub const WARPS: usize = 8;
/// Statistics of one matrix, at most.
const KINDS: usize = 3;
/// Dynamic shared memory of a CTA: a float per thread, for each statistic of each column of its chunk.
pub const SHARED_BYTES: usize = KINDS * COLUMNS * PLANE as usize;

/// Bytes from one column's floats to the next's: four banks on, so that neither those who write a column of all threads nor those
/// who read neighbouring columns meet in a bank.
const PLANE: u32 = (32 * WARPS as u32 + 4) * 4;
/// Barriers in the code: for each type of sources one for K, one for V and one for Q.
pub const BARRIERS: usize = 2 * 3;

/// Rows whose loads are in flight together.
const BATCH: usize = 8;

/// One CTA's work: a chunk of the rows of K, or V, of one head, or [`QUERIES`] rows of Q.
///
/// Threads stand side by side along a row, eight columns each, and one group of them below the other; each goes down in steps
/// of all groups.
///
/// # Safety
/// `params` describes live buffers, as [`QuantizeParams`] documents, and the grid has a CTA for each chunk of each head of K
/// and of V, and then for each block of rows of each head of Q if its means are wanted.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn statistics<W: Warp>(warp: W, params: &QuantizeParams) {
    let chunks = 2 * params.batch * params.kv_heads * params.chunks;
    let of_queries = warp.block_idx_x() >= chunks;
    let (which, heads, (head_of_batch, chunk), chunk_rows) = match of_queries {
        false => {
            let (rest, chunk) = divide(warp.block_idx_x(), params.chunks);
            let (head, matrix) = divide(rest, 2);
            let which = if matrix == 0 { Which::K } else { Which::V };
            (which, params.kv_heads, (head, chunk), params.chunk_rows)
        }
        true => {
            let blocks = params.q.rows.div_ceil(QUERIES as u32);
            let place = divide(warp.block_idx_x() - chunks, blocks);
            (Which::Q, params.q_heads, place, QUERIES as u32)
        }
    };
    // Values, not references: a device would have all parameters in local memory to point at some.
    let matrices = match which {
        Which::Q => params.q,
        Which::K => params.k,
        Which::V => params.v,
    };
    let (batch, head) = divide(head_of_batch, heads);
    let rows = (matrices.rows - (chunk * chunk_rows).min(matrices.rows)).min(chunk_rows);
    let from = source(&matrices, batch, head, params).skip_rows(chunk * chunk_rows);
    let cta = Cta { warp, params, head: head_of_batch as u64, chunk };
    // SAFETY: the caller's.
    unsafe {
        match params.source {
            Dtype::F16 => cta.run::<F16>(which, &from, rows),
            Dtype::Bf16 => cta.run::<Bf16>(which, &from, rows),
        }
    }
}

/// The matrix of one batch entry and head.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub(super) fn source(matrices: &Matrices, batch: u32, head: u32, params: &QuantizeParams) -> GlobalTile {
    GlobalTile::new(matrices, batch, head, params.head_dim / COLUMNS as u32)
}

/// Whose columns a CTA walks over.
#[derive(Clone, Copy)]
enum Which {
    Q,
    K,
    V,
}

/// Rows of a thread that are loaded together.
struct Batch<W: Warp> {
    /// Address of this thread's chunk of the first.
    place: W::U64,
    column_exists: W::Bool,
    /// Rows above the first, of those that are left.
    row: W::U32,
    /// Bytes from one to the next.
    stride: u64,
}

#[derive(Clone, Copy)]
struct Cta<'a, W> {
    warp: W,
    params: &'a QuantizeParams,
    head: u64,
    chunk: u32,
}

impl<W: Warp> Cta<'_, W> {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn run<E: Element>(&self, which: Which, from: &GlobalTile, rows: u32) {
        let (warp, params) = (self.warp, self.params);
        // SAFETY: the caller's.
        unsafe {
            match which {
                Which::Q => {
                    let [sums] = self.walk::<E, 1>(from, rows, [0.0], |[sum], x| [sum + x]);
                    let blocks = params.q.rows.div_ceil(QUERIES as u32);
                    let block = self.head * blocks as u64 + self.chunk as u64;
                    let to = params.q_means + block * params.head_dim as u64 * 4;
                    let count = warp.splat_f32(rows as f32);
                    self.combine(&[sums], 0, |_| to, |sum| warp.divide(sum, count));
                }
                Which::K if params.smooth_k != 0 => {
                    let [sums] = self.walk::<E, 1>(from, rows, [0.0], |[sum], x| [sum + x]);
                    self.combine(&[sums], 0, |s| self.left(Columns::KeySum, s), |sum| sum);
                }
                Which::V if params.v_by_columns != 0 => {
                    const LEAST: f32 = f32::NEG_INFINITY;
                    let add = |[sum, highest, lowest]: [_; 3], x| {
                        [sum + x, warp.maximum(highest, x), warp.maximum(lowest, -x)]
                    };
                    let states = self.walk::<E, KINDS>(from, rows, [0.0, LEAST, LEAST], add);
                    let wanted = (params.smooth_v == 0).into();
                    self.combine(&states, wanted, |s| self.left(Columns::ValueSum, s), |x| x);
                }
                Which::K | Which::V => {}
            }
        }
    }

    /// Where the `s`th statistic from one on of this chunk of rows is left: those of a head lie one behind the other, those of
    /// each chunk too.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn left(&self, first: Columns, s: u32) -> u64 {
        let row = s * self.params.chunks + self.chunk;
        columns_of(self.params, first, self.head) + row as u64 * self.params.head_dim as u64 * 4
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn thread(&self) -> W::U32 {
        self.warp.lane_id() + self.warp.splat(self.warp.warp_id() * 32)
    }

    /// Groups of threads below each other: each group has a thread for each chunk of a row, and a power of two.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn groups(&self) -> u32 {
        (32 * WARPS as u32) >> self.params.lanes_log2
    }

    /// What is wanted of a thread's columns over its rows: `S` numbers of each, that begin as `first`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn walk<E: Element, const S: usize>(
        &self,
        from: &GlobalTile,
        rows: u32,
        first: [f32; S],
        add: impl Fn([W::F32; S], W::F32) -> [W::F32; S],
    ) -> [Eight<W>; S] {
        let warp = self.warp;
        let lanes = 1 << self.params.lanes_log2;
        let chunk = self.thread() & (lanes - 1);
        let row = self.thread() >> self.params.lanes_log2;
        let mut batch = Batch {
            place: from.chunk(warp, row, chunk),
            column_exists: warp.less(chunk, warp.splat(from.chunks)),
            row,
            stride: self.groups() as u64 * from.row_stride as u64,
        };
        let at_a_time = BATCH as u32 * self.groups();
        let mut states = first.map(|x| [warp.splat_f32(x); COLUMNS]);
        let mut left = rows;
        while left >= at_a_time {
            // SAFETY: the caller's, here and below.
            unsafe { self.add_batch::<E, S, true>(&batch, left, &mut states, &add) };
            batch.place = batch.place + BATCH as u64 * batch.stride;
            left -= at_a_time;
        }
        if left > 0 {
            // SAFETY: see above.
            unsafe { self.add_batch::<E, S, false>(&batch, left, &mut states, &add) };
        }
        states
    }

    /// Adds a batch of rows of which `left` are left: at least as many as it has, if `WHOLE`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn add_batch<E: Element, const S: usize, const WHOLE: bool>(
        &self,
        batch: &Batch<W>,
        left: u32,
        states: &mut [Eight<W>; S],
        add: impl Fn([W::F32; S], W::F32) -> [W::F32; S],
    ) {
        let warp = self.warp;
        let mut words = [[warp.splat(0); 4]; BATCH];
        let mut exist = [batch.column_exists; BATCH];
        for i in 0..BATCH {
            if !WHOLE {
                let row = batch.row + i as u32 * self.groups();
                exist[i] = exist[i] & warp.less(row, warp.splat(left));
            }
            // SAFETY: the caller's; what does not exist is not read.
            words[i] = unsafe { warp.load_global_x4(batch.place + i as u64 * batch.stride, exist[i]) };
        }
        for i in 0..BATCH {
            let values = unpack::<W, E>(warp, words[i]);
            for c in 0..COLUMNS {
                let mut state = [warp.splat_f32(0.0); S];
                for s in 0..S {
                    state[s] = states[s][c];
                }
                let next = add(state, values[c]);
                for s in 0..S {
                    // Columns that do not exist have any statistics: nobody asks for them.
                    states[s][c] = if WHOLE { next[s] } else { warp.select_f32(exist[i], next[s], state[s]) };
                }
            }
        }
    }

    /// All groups' columns, one after the other, to where `to` has the `s`th statistic, `finished`: of the first the sum, of those
    /// behind it the largest; those before the `wanted`th are not. Each warp takes 32 columns of a statistic at a time.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn combine<const S: usize>(
        &self,
        states: &[Eight<W>; S],
        wanted: u32,
        to: impl Fn(u32) -> u64,
        finished: impl Fn(W::F32) -> W::F32,
    ) {
        let (warp, params) = (self.warp, self.params);
        let plane = |s: u32, c: u32| (s * COLUMNS as u32 + c) * PLANE + warp.shared_base();
        for s in 0..S {
            for c in 0..COLUMNS {
                let place = self.thread() * 4 + plane(s as u32, c as u32);
                // SAFETY: a float per thread, statistic and column fits.
                unsafe {
                    warp.store_shared_f32(place, states[s][c], warp.less(warp.splat(0), warp.splat(1)))
                };
            }
        }
        warp.sync_threads();
        let groups_of_columns = params.head_dim.div_ceil(32);
        let mut turn = wanted * groups_of_columns + warp.warp_id();
        while turn < S as u32 * groups_of_columns {
            let (s, columns) = divide(turn, groups_of_columns);
            let column = warp.lane_id() + 32 * columns;
            let exists = warp.less(column, warp.splat(params.head_dim));
            // Columns that do not exist are read where some do.
            let column_read = warp.select(exists, column, warp.splat(0));
            let place = (column_read & (COLUMNS as u32 - 1)) * PLANE + (column_read >> 3) * 4 + plane(s, 0);
            // SAFETY: as above.
            let load =
                |group: u32| unsafe { warp.load_shared_f32(place + (group << (params.lanes_log2 + 2))) };
            let mut all = load(0);
            let mut group = 1;
            while group < self.groups() {
                // Beyond the last, the last again, which does not count.
                let next = [0, 1, 2, 3, 4, 5, 6, 7].map(|i| load((group + i).min(self.groups() - 1)));
                for i in 0..8 {
                    if group + (i as u32) < self.groups() {
                        all = if s == 0 { all + next[i] } else { warp.maximum(all, next[i]) };
                    }
                }
                group += 8;
            }
            // SAFETY: the caller's.
            unsafe { warp.store_global_f32(warp.mul_wide(column, 4) + to(s), finished(all), exists) };
            turn += WARPS as u32;
        }
    }
}
