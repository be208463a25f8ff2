//! Tensors brought to eight bits and back: every rounding as the kernels make it ([`quantize`](ffpa_kernels_gpu::quantize)),
//! in the same order, so that bytes, scales and means are the same to the bit. (Products with the mean key are not: they shift the
//! log-sum-exp only.)

use ffpa_kernels_gpu::abi::QuantizeParams;
use ffpa_kernels_gpu::config::Arithmetic;
use ffpa_kernels_gpu::format::nvfp4;
use ffpa_kernels_gpu::quantize::QUERIES;
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
    /// Products of the mean queries that were subtracted and the keys, `[batch, q_heads, row blocks, kv_len]`; empty if none were.
    pub terms: Vec<f32>,
}

/// The nearest e4m3 number; beyond the largest, that.
pub fn e4m3(x: f32) -> f32 {
    F8E4M3::from_f32(if x.is_nan() { x } else { x.clamp(-448.0, 448.0) }).to_f32()
}

/// The nearest integer of 8 bits.
fn int8(x: f32) -> f32 {
    x.round_ties_even().clamp(-128.0, 127.0)
}

/// The e2m1 of the nearest magnitude; 6 beyond that.
fn e2m1(x: f32) -> f32 {
    let magnitude = x.abs().min(6.0);
    // A power of two beside which an f32's last bit is what e2m1's is worth here.
    let large = match magnitude {
        _ if magnitude < 2.0 => 4_194_304.0,
        _ if magnitude < 4.0 => 8_388_608.0,
        _ => 16_777_216.0,
    };
    ((magnitude + large) - large).copysign(x)
}

/// Rounds numbers that share a scale in ue4m3 to NVFP4. NaN makes all of them NaN.
fn nvfp4(block: [&mut f32; nvfp4::BLOCK]) {
    let scale = e4m3(magnitude(block.iter().map(|x| &**x)) / nvfp4::MAX);
    for x in block {
        *x = if scale == 0.0 { 0.0 } else { e2m1(*x / scale) * scale };
    }
}

/// Rounds numbers along keys to NVFP4, a whole number of 32.
pub fn nvfp4_along_keys(numbers: &mut [f32]) {
    for two_blocks in numbers.chunks_exact_mut(nvfp4::TWO_BLOCKS) {
        for first in [0, nvfp4::BLOCK] {
            let keys: [usize; nvfp4::BLOCK] = std::array::from_fn(|k| nvfp4::value_key(first + k));
            nvfp4(two_blocks.get_disjoint_mut(keys).expect("they differ"));
        }
    }
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

/// What numbers become.
#[derive(Clone, Copy)]
struct Numbers {
    largest: f32,
    /// Rounds some neighbours of a row.
    round: fn(&mut [f32]),
}

impl Numbers {
    const E4M3: Numbers = Numbers { largest: 448.0, round: |x| x.iter_mut().for_each(|x| *x = e4m3(*x)) };
    const INT8: Numbers = Numbers { largest: 127.0, round: |x| x.iter_mut().for_each(|x| *x = int8(*x)) };
    const NVFP4: Numbers = Numbers {
        largest: nvfp4::LARGEST,
        round: |x| {
            for block in x.chunks_mut(nvfp4::BLOCK) {
                // A row may end with half a block.
                let mut nothing = [0.0; nvfp4::BLOCK];
                let mut all = block.iter_mut().chain(&mut nothing);
                nvfp4([(); nvfp4::BLOCK].map(|()| all.next().expect("a block and more")));
            }
        },
    };

    /// Those of Q and K.
    fn of_scores(arithmetic: Arithmetic) -> Self {
        match arithmetic {
            Arithmetic::Int8 => Numbers::INT8,
            Arithmetic::NvFp4 => Numbers::NVFP4,
            _ => Numbers::E4M3,
        }
    }

    /// Rounds values that share a scale, in place.
    fn round_trip(self, values: &mut [f32], [factor, scale]: [f32; 2]) {
        values.iter_mut().for_each(|x| *x *= factor);
        (self.round)(values);
        values.iter_mut().for_each(|x| *x *= scale);
    }
}

/// Columns' sums, in the order in which threads and CTAs add them.
fn sums(params: &QuantizeParams, rows: &[f32], columns: usize) -> Vec<f32> {
    let mut all: Option<Vec<f32>> = None;
    for chunk in rows.chunks(params.chunk_rows as usize * columns) {
        all = Some(joined(all, sums_of_chunk(params, chunk, columns)));
    }
    all.unwrap_or_else(|| vec![0.0; columns])
}

/// Those of a CTA's rows.
fn sums_of_chunk(params: &QuantizeParams, chunk: &[f32], columns: usize) -> Vec<f32> {
    let groups = (32 * WARPS) >> params.lanes_log2;
    let mut of_chunk: Option<Vec<f32>> = None;
    for group in 0..groups {
        let mut of_group = vec![0.0; columns];
        for row in chunk.chunks(columns).skip(group).step_by(groups) {
            add(&mut of_group, row);
        }
        of_chunk = Some(joined(of_chunk, of_group));
    }
    of_chunk.unwrap_or_default()
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
    pub fn new<T: Element>(arithmetic: Arithmetic, params: &QuantizeParams, [q, k, v]: [&[T]; 3]) -> Self {
        let numbers = Numbers::of_scores(arithmetic);
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
            .map(|index| quantize_keys(numbers, params, widened(k, &params.k, kv_heads, index), columns))
            .collect();
        let values: Vec<_> = kv
            .into_par_iter()
            .map(|index| {
                let rows = widened(v, &params.v, kv_heads, index);
                match arithmetic {
                    Arithmetic::NvFp4 => quantize_transposed(params, rows, columns),
                    _ => quantize_values(params, rows, columns),
                }
            })
            .collect();
        let queries: Vec<_> = (0..params.batch as usize * q_heads)
            .into_par_iter()
            .map(|index| {
                let kv_head = index / q_heads * kv_heads + index % q_heads / (q_heads / kv_heads);
                let rows = widened(q, &params.q, q_heads, index);
                let shift = products(&rows, &keys[kv_head].1);
                let (rows, means) = smooth_queries(params, rows, columns);
                let mut terms = Vec::new();
                if !means.is_empty() {
                    let mut exact = widened(k, &params.k, kv_heads, kv_head);
                    subtract(&mut exact, &keys[kv_head].1);
                    means.chunks(columns).for_each(|mean| terms.extend(products(&exact, mean)));
                }
                (quantize_queries(numbers, params, rows, columns), shift, terms)
            })
            .collect();
        let mut all = Quantized { q: vec![], k: vec![], v: values.concat(), shift: vec![], terms: vec![] };
        for (q, shift, terms) in queries {
            all.q.extend(q);
            all.shift.extend(shift);
            all.terms.extend(terms);
        }
        keys.into_iter().for_each(|(k, _)| all.k.extend(k));
        all
    }
}

/// A head's keys, and their mean.
fn quantize_keys(
    numbers: Numbers,
    params: &QuantizeParams,
    mut rows: Vec<f32>,
    columns: usize,
) -> (Vec<f32>, Vec<f32>) {
    let mean = match params.smooth_k {
        0 => vec![0.0; columns],
        _ => means(params, &rows, columns),
    };
    subtract(&mut rows, &mean);
    rotate(params, &mut rows);
    for block in rows.chunks_mut(BLOCK * columns) {
        for group in 0..4 {
            let mut shared: Vec<&mut [f32]> = block
                .chunks_mut(columns)
                .enumerate()
                .filter(|(row, _)| row % 8 / 2 == group)
                .map(|(_, x)| x)
                .collect();
            let factors = factors(magnitude(shared.iter().flat_map(|row| row.iter())), numbers.largest);
            shared.iter_mut().for_each(|row| numbers.round_trip(row, factors));
        }
    }
    (rows, mean)
}

fn quantize_values(params: &QuantizeParams, mut rows: Vec<f32>, columns: usize) -> Vec<f32> {
    if params.v_by_columns == 0 {
        for block in rows.chunks_mut(BLOCK * columns) {
            let factors = factors(magnitude(&*block), params.v_largest);
            Numbers::E4M3.round_trip(block, factors);
        }
        return rows;
    }
    of_columns(params, &mut rows, columns, |column, factors| Numbers::E4M3.round_trip(column, factors));
    rows
}

fn quantize_transposed(params: &QuantizeParams, mut rows: Vec<f32>, columns: usize) -> Vec<f32> {
    of_columns(params, &mut rows, columns, |column, [factor, scale]| {
        let mut whole: Vec<f32> = column.iter().map(|x| x * factor).collect();
        whole.resize(column.len().next_multiple_of(nvfp4::TWO_BLOCKS), 0.0);
        nvfp4_along_keys(&mut whole);
        column.iter_mut().zip(whole).for_each(|(to, x)| *to = x * scale);
    });
    rows
}

/// Rounds columns without their means, if these are to be subtracted, and adds them again.
fn of_columns(
    params: &QuantizeParams,
    rows: &mut [f32],
    columns: usize,
    round: impl Fn(&mut [f32], [f32; 2]),
) {
    let mean = match params.smooth_v {
        0 => vec![0.0; columns],
        _ => means(params, rows, columns),
    };
    for (column, mean) in mean.into_iter().enumerate() {
        let values = || rows.iter().skip(column).step_by(columns).copied();
        let (highest, lowest) = (
            values().fold(f32::NEG_INFINITY, maximum),
            values().map(|x| -x).fold(f32::NEG_INFINITY, maximum),
        );
        let magnitude = maximum((highest - mean).abs(), (lowest + mean).abs());
        let factors = factors(magnitude, params.v_largest);
        let mut less: Vec<f32> = values().map(|x| x - mean).collect();
        round(&mut less, factors);
        let places = rows.iter_mut().skip(column).step_by(columns);
        places.zip(less).for_each(|(x, less)| *x = less + mean);
    }
}

/// Each row's product with another, one column after the other.
fn products(rows: &[f32], other: &[f32]) -> Vec<f32> {
    let product = |row: &[f32]| row.iter().zip(other).map(|(x, y)| x * y).sum();
    rows.chunks(other.len()).map(product).collect()
}

/// A head's queries without the means of some rows each, if these are to be subtracted, and those.
fn smooth_queries(params: &QuantizeParams, mut rows: Vec<f32>, columns: usize) -> (Vec<f32>, Vec<f32>) {
    let mut means = Vec::new();
    if params.smooth_q != 0 {
        for block in rows.chunks_mut(QUERIES * columns) {
            let count = (block.len() / columns) as f32;
            let mean: Vec<f32> =
                sums_of_chunk(params, block, columns).into_iter().map(|sum| sum / count).collect();
            subtract(block, &mean);
            means.extend(mean);
        }
    }
    (rows, means)
}

/// A head's queries.
fn quantize_queries(
    numbers: Numbers,
    params: &QuantizeParams,
    mut rows: Vec<f32>,
    columns: usize,
) -> Vec<f32> {
    rotate(params, &mut rows);
    for row in rows.chunks_mut(columns) {
        let factors = factors(magnitude(&*row), numbers.largest);
        numbers.round_trip(row, factors);
    }
    rows
}
