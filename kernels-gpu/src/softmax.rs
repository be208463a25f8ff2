//! Online softmax in base 2 (Milakov and Gimelshein 2018; FlashAttention-2, section 3.1), with lazy rescaling.
//!
//! Each row keeps a reference score `m` and the sum `l` of `2^(scale (s - m))` over the keys so far. The output is
//! rescaled only when a row's maximum has outgrown its reference by more than [`Values::SLACK`] (FlashAttention-4): until
//! then probabilities may reach `2^SLACK`, and since P, O and l all use the same `m`, nothing needs correcting at the end. Sums stay per lane until [`Softmax::finish`].
//!
//! `scale (s - m)` is one fused multiply-add, `scale s - round(scale m)`. Where `scale m` is beyond `LARGE` its rounding
//! would show in a probability that should be 1, so there the difference is taken first, which is exact.

use core::f32::consts::LN_2;
use core::marker::PhantomData;

use cuda_std::Warp;

use crate::abi::Params;
use crate::format::Values;
use crate::tile::{Accumulator, Rows, reduce_row};

/// Scaled references beyond this are not exact enough: an f32 up to here has an error of at most 2^-13, and
/// `2^(2^-13)` still rounds to 1 in f16.
const LARGE: f32 = 4096.0;

/// Running state of a warp's rows.
pub struct Softmax<W: Warp, V, const M: usize> {
    warp: W,
    scale_log2: f32,
    /// What the output is multiplied with beside the sums' reciprocals: dropout's share.
    output_scale: f32,
    /// Reference score of each row, unscaled; minus infinity while no key was visible.
    reference: Rows<W::F32, M>,
    /// This lane's part of each row's sum.
    sum: Rows<W::F32, M>,
    /// Whether a scaled reference of the warp's rows is [`LARGE`].
    large: bool,
    values: PhantomData<V>,
}

impl<W: Warp, V: Values, const M: usize> Softmax<W, V, M> {
    /// No keys yet.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn new(warp: W, params: &Params) -> Self {
        let [reference, sum] = [f32::NEG_INFINITY, 0.0].map(|x| [[warp.splat_f32(x); 2]; M]);
        let (scale_log2, output_scale) = (params.scale_log2, params.dropout.scale);
        Softmax { warp, scale_log2, output_scale, reference, sum, large: false, values: PhantomData }
    }

    /// Turns a tile of raw scores into probabilities relative to the references, for a warp that has its rows to itself.
    /// When references must move, first brings `output` to the new ones.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn update<const N: usize, const O: usize>(
        &mut self,
        scores: &mut Accumulator<W, M, N>,
        output: &mut Accumulator<W, M, O>,
    ) {
        let maximum = self.row_maxima(scores);
        if self.warp.vote_any(self.outgrown(&maximum)) {
            output.scale_rows(&self.move_references(&maximum));
        }
        self.exponentiate(scores);
    }

    /// Whether one of this lane's rows has outgrown its reference.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn outgrown(&self, maximum: &Rows<W::F32, M>) -> W::Bool {
        let warp = self.warp;
        let slack = warp.splat_f32(V::SLACK);
        let mut outgrown = warp.less_f32(slack, warp.splat_f32(0.0));
        for m in 0..M {
            for half in 0..2 {
                // Minus infinity minus itself is NaN, which is not larger: rows without visible keys do not grow.
                let growth = (maximum[m][half] - self.reference[m][half]) * self.scale_log2;
                outgrown = outgrown | warp.less_f32(slack, growth);
            }
        }
        outgrown
    }

    /// Turns raw scores into probabilities relative to the references, and adds them up, unless the rounded ones are to be.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn exponentiate<const N: usize>(&mut self, scores: &mut Accumulator<W, M, N>) {
        let warp = self.warp;
        if self.large {
            self.subtract_references(scores);
        }
        let scale = warp.splat_f32(self.scale_log2);
        for m in 0..M {
            for half in 0..2 {
                let scaled = self.finite_reference(m, half) * self.scale_log2;
                let scaled = if self.large { warp.splat_f32(0.0) } else { scaled };
                let offset = -(scaled - warp.splat_f32(V::ONE_LOG2));
                for n in 0..N {
                    for r in 2 * half..2 * half + 2 {
                        let p = warp.exp2(warp.fma(scores.tiles[m][n][r], scale, offset));
                        scores.tiles[m][n][r] = p;
                        if !V::ROUNDED_SUMS {
                            self.sum[m][half] = self.sum[m][half] + p;
                        }
                    }
                }
            }
        }
    }

    /// Adds to the sums.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn add_sums(&mut self, sums: &Rows<W::F32, M>) {
        for m in 0..M {
            for half in 0..2 {
                self.sum[m][half] = self.sum[m][half] + sums[m][half];
            }
        }
    }

    /// Adds to the references, at the end, what all of a row's scores lack.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn shift_references(&mut self, by: &Rows<W::F32, M>) {
        for m in 0..M {
            for half in 0..2 {
                self.reference[m][half] = self.reference[m][half] + by[m][half];
            }
        }
    }

    /// Makes scores relative to the references, exactly.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn subtract_references<const N: usize>(&self, scores: &mut Accumulator<W, M, N>) {
        for m in 0..M {
            for n in 0..N {
                for r in 0..4 {
                    scores.tiles[m][n][r] = scores.tiles[m][n][r] - self.finite_reference(m, r / 2);
                }
            }
        }
    }

    /// The largest score of each row of the tile.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn row_maxima<const N: usize>(&self, scores: &Accumulator<W, M, N>) -> Rows<W::F32, M> {
        let warp = self.warp;
        let mut maximum = [[warp.splat_f32(f32::NEG_INFINITY); 2]; M];
        for m in 0..M {
            for half in 0..2 {
                for n in 0..N {
                    let [a, b] = [scores.tiles[m][n][2 * half], scores.tiles[m][n][2 * half + 1]];
                    maximum[m][half] = warp.max(maximum[m][half], warp.max(a, b));
                }
                maximum[m][half] = reduce_row(warp, maximum[m][half], |a, b| warp.max(a, b));
            }
        }
        maximum
    }

    /// Moves the references up to `maximum` and returns what everything relative to the old ones is multiplied with.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn move_references(&mut self, maximum: &Rows<W::F32, M>) -> Rows<W::F32, M> {
        let warp = self.warp;
        let mut factors = self.reference;
        let mut largest = warp.splat_f32(0.0);
        for m in 0..M {
            for half in 0..2 {
                let old = self.reference[m][half];
                self.reference[m][half] = warp.max(old, maximum[m][half]);
                let new = self.finite_reference(m, half);
                largest = warp.max(largest, warp.max(new, -new));
                let factor = warp.exp2((old - new) * self.scale_log2);
                self.sum[m][half] = self.sum[m][half] * factor;
                factors[m][half] = factor;
            }
        }
        self.large = warp.vote_any(warp.less_f32(warp.splat_f32(LARGE), largest * self.scale_log2));
        factors
    }

    /// The reference, or 0 where there is none, so that no difference of infinities arises.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn finite_reference(&self, m: usize, half: usize) -> W::F32 {
        let warp = self.warp;
        let exists = warp.less_f32(warp.splat_f32(f32::NEG_INFINITY), self.reference[m][half]);
        warp.select_f32(exists, self.reference[m][half], warp.splat_f32(0.0))
    }

    /// Each row's sum over the keys that this warp has seen.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn row_sums(&self) -> Rows<W::F32, M> {
        let mut sums = self.sum;
        for m in 0..M {
            for half in 0..2 {
                sums[m][half] = reduce_row(self.warp, self.sum[m][half], |a, b| a + b) * (1.0 / V::ONE);
            }
        }
        sums
    }

    /// Each row's reference score; minus infinity if no key was visible.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn references(&self) -> Rows<W::F32, M> {
        self.reference
    }

    /// From each row's sum over all keys: what its output is multiplied with to normalise it, and its log-sum-exp (natural
    /// log). Rows that saw no key give 0 and minus infinity.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn finish(self, sums: &Rows<W::F32, M>) -> (Rows<W::F32, M>, Rows<W::F32, M>) {
        let warp = self.warp;
        let (zero, mut factors, mut lse) = (warp.splat_f32(0.0), self.sum, self.sum);
        for m in 0..M {
            for half in 0..2 {
                let sum = sums[m][half];
                let empty = !(warp.less_f32(sum, zero) | warp.less_f32(zero, sum)) & !self.is_nan(sum);
                let factor = warp.reciprocal(sum) * (self.output_scale * (V::UNIT / V::ONE));
                factors[m][half] = warp.select_f32(empty, zero, factor);
                // By the natural scale, so that the reference does not overflow: it may be a mask's least float.
                let scale = warp.splat_f32(self.scale_log2 * LN_2);
                lse[m][half] = warp.fma(self.finite_reference(m, half), scale, warp.log2(sum) * LN_2);
            }
        }
        (factors, lse)
    }

    /// A NaN compares with nothing.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn is_nan(&self, x: W::F32) -> W::Bool {
        let infinity = self.warp.splat_f32(f32::INFINITY);
        !(self.warp.less_f32(x, infinity) | self.warp.less_f32(-infinity, x))
    }
}
