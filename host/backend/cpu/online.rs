//! Online softmax over one block of query rows (Milakov and Gimelshein 2018), in base 2 and f32.

use ffpa_kernels_gpu::abi::Params;
use ffpa_kernels_gpu::config::Arithmetic;
use ffpa_kernels_gpu::format::{E4m3, Values, nvfp4};
use ffpa_kernels_gpu::schedule::visible_keys;

use super::exp2::exp2;
use super::gemm::{Matrix, TILE_M, TILE_N, multiply_add};
use super::modify::Modifier;
use super::quantize::{e4m3, nvfp4_along_keys};
use super::{Rows, Source};

/// Query rows of a block.
pub const ROWS: usize = 64;
/// Keys of a tile, unless probabilities are rounded tile by tile: scores, K and V of a tile stay in the second-level cache.
const KEYS: usize = 64;
/// What probabilities are rounded to, tile by tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Not at all.
    Exact,
    /// e4m3.
    E4m3,
    /// NVFP4, the keys of a tile that share a scale being those of V.
    NvFp4,
}

impl Rounding {
    /// Those of kernels.
    pub fn of(arithmetic: Arithmetic) -> Self {
        match arithmetic {
            Arithmetic::F16 | Arithmetic::Bf16 => Rounding::Exact,
            Arithmetic::E4m3 | Arithmetic::Int8 => Rounding::E4m3,
            Arithmetic::NvFp4 => Rounding::NvFp4,
        }
    }

    /// Rounds the probabilities of a row and a tile.
    #[inline(always)]
    fn round(self, probabilities: &mut [f32]) {
        let times = |values: &mut [f32], factor: f32| values.iter_mut().for_each(|p| *p *= factor);
        match self {
            Rounding::Exact => {}
            Rounding::E4m3 => {
                const ONE: f32 = <E4m3 as Values>::ONE;
                probabilities.iter_mut().for_each(|p| *p = e4m3(*p * ONE) / ONE);
            }
            Rounding::NvFp4 => {
                times(probabilities, nvfp4::LARGEST);
                nvfp4_along_keys(probabilities);
                times(probabilities, 1.0 / nvfp4::LARGEST);
            }
        }
    }
}

const _: () = assert!(ROWS.is_multiple_of(TILE_M) && KEYS.is_multiple_of(TILE_N));

/// Buffers of one block, used again for the next.
pub struct Block {
    head_dim: usize,
    /// Columns of `v` and `output`: the head dim, rounded up to whole register tiles.
    width: usize,
    /// Keys of a tile.
    keys: usize,
    /// What probabilities are rounded to.
    rounding: Rounding,
    /// `ROWS x head_dim`.
    q: Vec<f32>,
    /// K of a tile, transposed: `head_dim x keys`.
    k: Vec<f32>,
    /// `keys x width`.
    v: Vec<f32>,
    /// Scores of a tile, then probabilities: `ROWS x keys`.
    scores: Vec<f32>,
    /// `ROWS x width`, relative to `maximum`.
    output: Vec<f32>,
    /// Largest score of each row so far, before `scale_log2`.
    maximum: [f32; ROWS],
    /// Sum of each row's probabilities, relative to `maximum`.
    sum: [f32; ROWS],
    /// One row of an input, widened.
    row: Vec<f32>,
}

impl Block {
    /// For rows of `head_dim` columns; `tile` is the keys of a tile in which probabilities are rounded, and to what.
    pub fn new(head_dim: usize, tile: Option<(usize, Rounding)>) -> Self {
        let width = head_dim.next_multiple_of(TILE_N);
        let (keys, rounding) = tile.unwrap_or((KEYS, Rounding::Exact));
        Block {
            head_dim,
            width,
            keys,
            rounding,
            q: vec![0.0; ROWS * head_dim],
            k: vec![0.0; head_dim * keys],
            v: vec![0.0; keys * width],
            scores: vec![0.0; ROWS * keys],
            output: vec![0.0; ROWS * width],
            maximum: [0.0; ROWS],
            sum: [0.0; ROWS],
            row: vec![0.0; head_dim],
        }
    }

    /// Computes the rows from `first_row` on. `terms`, if there are any, are added to each row's scores.
    pub fn run<T: Source>(
        &mut self,
        call: &Modifier<'_>,
        tensors: [&Rows<'_, T>; 3],
        terms: &[f32],
        first_row: usize,
    ) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has the features.
            return unsafe { self.run_avx2(call, tensors, terms, first_row) };
        }
        self.run_with::<T, false>(call, tensors, terms, first_row);
    }

    /// The same code, compiled for wider vectors.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn run_avx2<T: Source>(
        &mut self,
        call: &Modifier<'_>,
        tensors: [&Rows<'_, T>; 3],
        terms: &[f32],
        first_row: usize,
    ) {
        self.run_with::<T, true>(call, tensors, terms, first_row);
    }

    #[inline(always)]
    fn run_with<T: Source, const FMA: bool>(
        &mut self,
        call: &Modifier<'_>,
        [q, k, v]: [&Rows<'_, T>; 3],
        terms: &[f32],
        first_row: usize,
    ) {
        let params = call.params;
        let rows = ROWS.min(params.q.rows as usize - first_row);
        self.q.fill(0.0);
        for row in 0..rows {
            T::widen(q.row(first_row + row), &mut self.q[row * self.head_dim..][..self.head_dim]);
        }
        self.output.fill(0.0);
        self.maximum.fill(f32::NEG_INFINITY);
        self.sum.fill(0.0);
        let visible: [usize; ROWS] = std::array::from_fn(|row| match row < rows {
            true => visible_keys(params, call.row_in_head(first_row + row) as u32) as usize,
            false => 0,
        });
        let keys = visible.into_iter().max().unwrap_or(0);
        let tile = self.keys;
        for key in (0..keys).step_by(tile) {
            self.load(k, v, key, tile.min(keys - key));
            let q = Matrix { data: &self.q, stride: self.head_dim };
            let kt = Matrix { data: &self.k, stride: tile };
            self.scores.fill(0.0);
            if !terms.is_empty() {
                let terms = &terms[key..keys.min(key + tile)];
                self.scores.chunks_mut(tile).for_each(|row| row[..terms.len()].copy_from_slice(terms));
            }
            multiply_add::<FMA>([ROWS, tile, self.head_dim], q, kt, &mut self.scores, tile);
            for (row, visible) in visible.iter().enumerate() {
                let visible = visible.saturating_sub(key).min(tile);
                self.softmax(call, first_row + row, key, row, visible);
            }
            let p = Matrix { data: &self.scores, stride: tile };
            let v = Matrix { data: &self.v, stride: self.width };
            multiply_add::<FMA>([ROWS, self.width, tile], p, v, &mut self.output, self.width);
        }
    }

    /// Widens a tile of K, transposing it, and one of V. Rows that do not exist are zeros.
    #[inline(always)]
    fn load<T: Source>(&mut self, k: &Rows<'_, T>, v: &Rows<'_, T>, first: usize, rows: usize) {
        let keys = self.keys;
        for row in 0..keys {
            if row < rows {
                T::widen(k.row(first + row), &mut self.row);
                T::widen(v.row(first + row), &mut self.v[row * self.width..][..self.head_dim]);
            } else {
                self.row.fill(0.0);
                self.v[row * self.width..][..self.head_dim].fill(0.0);
            }
            for (column, value) in self.row.iter().enumerate() {
                self.k[column * keys + row] = *value;
            }
        }
    }

    /// Turns a row of raw scores, of which the first `visible` count, into probabilities. It is the call's row `row` from key
    /// `key` on, and the block's row `place`.
    #[inline(always)]
    fn softmax(&mut self, call: &Modifier<'_>, row: usize, key: usize, place: usize, visible: usize) {
        let scores = &mut self.scores[place * self.keys..][..self.keys];
        let (factor, scale) = (call.params.score_factor, call.params.scale_log2);
        scores.iter_mut().for_each(|score| *score *= factor);
        call.mask(row, key, &mut scores[..visible]);
        scores[visible..].fill(f32::NEG_INFINITY);
        let mut maximum = self.maximum[place];
        for score in scores.iter() {
            maximum = if *score > maximum { *score } else { maximum };
        }
        // Without visible keys there is no maximum; 0 keeps differences of infinities away.
        let reference = if maximum == f32::NEG_INFINITY { 0.0 } else { maximum };
        let factor = exp2((self.maximum[place] - reference) * scale);
        let mut sums = [0.0_f32; 8];
        scores.iter_mut().for_each(|score| *score = exp2((*score - reference) * scale));
        self.rounding.round(scores);
        for chunk in scores.chunks_exact(8) {
            sums.iter_mut().zip(chunk).for_each(|(sum, p)| *sum += p);
        }
        call.drop_out(row, key, scores);
        self.maximum[place] = maximum;
        self.sum[place] = self.sum[place] * factor + sums.iter().sum::<f32>();
        if factor != 1.0 {
            self.output[place * self.width..][..self.width].iter_mut().for_each(|o| *o *= factor);
        }
    }

    /// A finished row, normalised, and its log-sum-exp: zeros and minus infinity where no key was visible.
    pub fn finish(&mut self, row: usize, params: &Params) -> (&[f32], f32) {
        let (sum, output) = (self.sum[row], &mut self.output[row * self.width..][..self.width]);
        if sum == 0.0 {
            return (output, f32::NEG_INFINITY);
        }
        output.iter_mut().for_each(|o| *o = *o / sum * params.dropout.scale);
        let natural = params.scale_log2 * std::f32::consts::LN_2;
        (output, self.maximum[row] * natural + sum.ln())
    }
}
