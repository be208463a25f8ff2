//! Tensors brought to eight bits and back: every rounding as the kernels make it ([`quantize`](ffpa_kernels_gpu::quantize)),
//! in the same order, so that bytes, scales and means are the same to the bit. (Products with the mean key are not: they shift the
//! log-sum-exp only.)

use ffpa_kernels_gpu::abi::QuantizeParams;
use ffpa_kernels_gpu::quantize::rows::LEAST;
use ffpa_kernels_gpu::quantize::statistics::WARPS;
use ffpa_kernels_gpu::scales::BLOCK;
use float8::F8E4M3;
use rayon::prelude::*;

use super::Rows;
use crate::element::Element;

/// The tensors of a call as quantised kernels see them: what their bytes stand for, contiguous.
pub struct Quantized {
    /// `[batch, q_heads, q_len, head_dim]`, rotated if that was asked for.
    pub q: Vec<f32>,
    /// `[batch, kv_heads, kv_len, head_dim]`, without their mean if that was subtracted, and rotated as Q.
    pub k: Vec<f32>,
    /// `[batch, kv_heads, kv_len, head_dim]`, their mean added again.
    pub v: Vec<f32>,
    /// Each query row's product with the mean key, `[batch, q_heads, q_len]`.
    pub shift: Vec<f32>,
}

/// The nearest e4m3 number; beyond the largest, that.
pub fn e4m3(x: f32) -> f32 {
    F8E4M3::from_f32(if x.is_nan() { x } else { x.clamp(-448.0, 448.0) }).to_f32()
}

/// The nearest integer of 8 bits.
fn int8(x: f32) -> f32 {
    x.round_ties_even().clamp(-128.0, 127.0)
}

/// What numbers of at most this magnitude are multiplied with to become at most `to`, and the way back.
fn factors(magnitude: f32, to: f32) -> [f32; 2] {
    // The factor of less would be no finite float.
    match magnitude < LEAST {
        true => [0.0; 2],
        false => [to / magnitude, magnitude * (1.0 / to)],
    }
}

fn magnitude<'a>(values: impl IntoIterator<Item = &'a f32>) -> f32 {
    values.into_iter().fold(0.0, |largest, x| maximum(largest, x.abs()))
}

/// The larger one, or NaN if either is.
fn maximum(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) }
}

/// Rounds values that share a scale, in place.
fn round_trip(values: &mut [f32], [factor, scale]: [f32; 2], round: fn(f32) -> f32) {
    values.iter_mut().for_each(|x| *x = round(*x * factor) * scale);
}

/// Columns' sums, in the order in which threads and CTAs add them.
fn sums(params: &QuantizeParams, rows: &[f32], columns: usize) -> Vec<f32> {
    let groups = (32 * WARPS) >> params.lanes_log2;
    let mut all: Option<Vec<f32>> = None;
    for chunk in rows.chunks(params.chunk_rows as usize * columns) {
        let mut of_chunk: Option<Vec<f32>> = None;
        for group in 0..groups {
            let mut of_group = vec![0.0; columns];
            for row in chunk.chunks(columns).skip(group).step_by(groups) {
                add(&mut of_group, row);
            }
            of_chunk = Some(joined(of_chunk, of_group));
        }
        all = Some(joined(all, of_chunk.unwrap_or_default()));
    }
    all.unwrap_or_else(|| vec![0.0; columns])
}

fn add(to: &mut [f32], values: &[f32]) {
    to.iter_mut().zip(values).for_each(|(to, x)| *to += x);
}

fn joined(first: Option<Vec<f32>>, second: Vec<f32>) -> Vec<f32> {
    match first {
        None => second,
        Some(mut first) => {
            add(&mut first, &second);
            first
        }
    }
}

fn means(params: &QuantizeParams, rows: &[f32], columns: usize) -> Vec<f32> {
    sums(params, rows, columns).into_iter().map(|sum| sum / params.k.rows as f32).collect()
}

fn subtract(rows: &mut [f32], mean: &[f32]) {
    for row in rows.chunks_mut(mean.len()) {
        row.iter_mut().zip(mean).for_each(|(x, mean)| *x -= mean);
    }
}

/// Rotates rows, if that is asked for: sums and differences of columns that are ever further apart.
fn rotate(params: &QuantizeParams, rows: &mut [f32]) {
    let together = params.rotated_columns as usize;
    if together == 0 {
        return;
    }
    for columns in rows.chunks_mut(together) {
        let mut distance = 1;
        while distance < together {
            for pairs in columns.chunks_mut(2 * distance) {
                let (first, second) = pairs.split_at_mut(distance);
                first.iter_mut().zip(second).for_each(|(a, b)| (*a, *b) = (*a + *b, *a - *b));
            }
            distance *= 2;
        }
        columns.iter_mut().for_each(|x| *x *= params.rotation_factor);
    }
}

impl Quantized {
    /// Of the tensors in host memory.
    pub fn new<T: Element>(params: &QuantizeParams, [q, k, v]: [&[T]; 3]) -> Self {
        let columns = params.head_dim as usize;
        let (q_heads, kv_heads) = (params.q_heads as usize, params.kv_heads as usize);
        let widened = |data, matrices, heads: usize, index: usize| {
            let rows = Rows::new(data, matrices, index / heads, index % heads, columns);
            let mut wide = vec![0.0; matrices.rows as usize * columns];
            wide.chunks_mut(columns).enumerate().for_each(|(row, to)| T::widen(rows.row(row), to));
            wide
        };
        let kv = 0..params.batch as usize * kv_heads;
        let keys: Vec<_> = kv
            .clone()
            .into_par_iter()
            .map(|index| quantize_keys(params, widened(k, &params.k, kv_heads, index), columns))
            .collect();
        let values: Vec<_> = kv
            .into_par_iter()
            .map(|index| quantize_values(params, widened(v, &params.v, kv_heads, index), columns))
            .collect();
        let queries: Vec<_> = (0..params.batch as usize * q_heads)
            .into_par_iter()
            .map(|index| {
                let kv_head = index / q_heads * kv_heads + index % q_heads / (q_heads / kv_heads);
                quantize_queries(params, widened(q, &params.q, q_heads, index), &keys[kv_head].1)
            })
            .collect();
        let (q, shift): (Vec<_>, Vec<_>) = queries.into_iter().unzip();
        let k: Vec<_> = keys.into_iter().map(|(k, _)| k).collect();
        Quantized { q: q.concat(), k: k.concat(), v: values.concat(), shift: shift.concat() }
    }
}

/// The largest number that Q and K become, and the rounding to such numbers.
fn score_numbers(params: &QuantizeParams) -> (f32, fn(f32) -> f32) {
    if params.int8 != 0 { (127.0, int8) } else { (448.0, e4m3) }
}

/// A head's keys, and their mean.
fn quantize_keys(params: &QuantizeParams, mut rows: Vec<f32>, columns: usize) -> (Vec<f32>, Vec<f32>) {
    let mean = match params.smooth_k {
        0 => vec![0.0; columns],
        _ => means(params, &rows, columns),
    };
    subtract(&mut rows, &mean);
    rotate(params, &mut rows);
    let (largest, round) = score_numbers(params);
    for block in rows.chunks_mut(BLOCK * columns) {
        for group in 0..4 {
            let mut shared: Vec<&mut [f32]> = block
                .chunks_mut(columns)
                .enumerate()
                .filter(|(row, _)| row % 8 / 2 == group)
                .map(|(_, x)| x)
                .collect();
            let factors = factors(magnitude(shared.iter().flat_map(|row| row.iter())), largest);
            shared.iter_mut().for_each(|row| round_trip(row, factors, round));
        }
    }
    (rows, mean)
}

fn quantize_values(params: &QuantizeParams, mut rows: Vec<f32>, columns: usize) -> Vec<f32> {
    if params.v_by_columns == 0 {
        for block in rows.chunks_mut(BLOCK * columns) {
            let factors = factors(magnitude(&*block), params.v_largest);
            round_trip(block, factors, e4m3);
        }
        return rows;
    }
    let mean = match params.smooth_v {
        0 => vec![0.0; columns],
        _ => means(params, &rows, columns),
    };
    for (column, mean) in mean.into_iter().enumerate() {
        let values = || rows.iter().skip(column).step_by(columns).copied();
        let (highest, lowest) = (
            values().fold(f32::NEG_INFINITY, maximum),
            values().map(|x| -x).fold(f32::NEG_INFINITY, maximum),
        );
        let magnitude = maximum((highest - mean).abs(), (lowest + mean).abs());
        let factors = factors(magnitude, params.v_largest);
        for x in rows.iter_mut().skip(column).step_by(columns) {
            let mut less = [*x - mean];
            round_trip(&mut less, factors, e4m3);
            *x = less[0] + mean;
        }
    }
    rows
}

/// A head's queries, and their products with the mean key.
fn quantize_queries(params: &QuantizeParams, mut rows: Vec<f32>, mean: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let (largest, round) = score_numbers(params);
    let shift = rows.chunks(mean.len()).map(|row| row.iter().zip(mean).map(|(x, m)| x * m).sum()).collect();
    rotate(params, &mut rows);
    for row in rows.chunks_mut(mean.len()) {
        let factors = factors(magnitude(&*row), largest);
        round_trip(row, factors, round);
    }
    (rows, shift)
}
