//! The two products in NVFP4.
//!
//! V lies in shared memory transposed, its keys in an order in which the accumulators of four neighbouring tiles of scores are,
//! packed, a quarter of an A operand: no value crosses lanes, and K stays in its own order, so that masks need not know of it.
//! Where an operand takes keys `32 h + 8 t + e` from lane `t` of a row's four, that lane holds the scores of the keys
//! `32 h + 8 (e / 2) + 2 t + e % 2`: so the latter are there in V. Keys that share a scale are then those with the same `h` and
//! `t / 2`.
//!
//! Probabilities are 2688 times what they are, so that their scales have all of ue4m3's range ("SageAttention3", section 3.2).

use core::marker::PhantomData;

use cuda_std::Warp;

use super::super::{AsAsked, Fragments, Recipe, Record, Scores, Values};
use super::{MAX, numbers, scales};
use crate::config::Arithmetic;
use crate::tile::SharedTile;

/// e2m1 in all of Q, K, V and P, multiplied as `F` has it.
pub struct NvFp4<F>(PhantomData<F>);

/// The largest number: the largest e2m1 times the largest ue4m3.
pub const LARGEST: f32 = MAX * 448.0;

/// How operands with scales among their elements are multiplied: all of them the same products.
pub trait Product: Fragments {
    /// Whether by block-scaled instructions.
    const BLOCK_SCALED: bool;
    /// Elements of a step of k, at most.
    const STEP: usize;
    /// Keys of a step of k.
    const KEYS: usize;
    /// What loaded elements are to be multiplied with.
    const UNIT: f32;

    /// `d += a b` on two neighbouring 16x8 tiles, over a step of k.
    fn mma<W: Warp>(warp: W, d: &mut [[W::F32; 4]; 2], a: Self::A<W>, b: [Self::B<W>; 2]);

    /// Adds each row of an operand to the first column of a tile, and zeros to the others.
    fn add_rows<W: Warp>(warp: W, d: &mut [W::F32; 4], a: Self::A<W>);

    /// The `k`th step of 16 rows of probabilities, rounded. Their unit is 1.
    fn round<W: Warp, const N: usize>(warp: W, probabilities: &[[W::F32; 4]; N], k: usize) -> Self::A<W>;
}

/// Probabilities that an operand takes from a lane over 32 keys, for the upper and the lower of its two rows, in their order along
/// k.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub(super) fn of_lane<W: Warp, const N: usize>(
    probabilities: &[[W::F32; 4]; N],
    quarter: usize,
) -> [[W::F32; 8]; 2] {
    let first = 4 * quarter;
    [0, 1].map(|half| [0, 1, 2, 3, 4, 5, 6, 7].map(|e| probabilities[first + e / 2][2 * half + e % 2]))
}

/// The scales of what an operand takes from a lane over 64 keys: byte `2 h + i` is that of 32 keys' `h`th quarter and row `i`. Two
/// neighbouring lanes have a block.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub(super) fn lane_scales<W: Warp>(warp: W, quarters: [[[W::F32; 8]; 2]; 2]) -> W::U32 {
    let largest = |[a, b, c, d, e, f, g, h]: [W::F32; 8]| {
        let four = |a, b, c, d| warp.max(warp.max(a, b), warp.max(c, d));
        let of_lane = warp.max(four(a, b, c, d), four(e, f, g, h));
        warp.max(of_lane, warp.shuffle_xor(of_lane, 1))
    };
    let [[a, b], [c, d]] = quarters.map(|rows| rows.map(largest));
    scales(warp, [a, b, c, d])
}

/// The reciprocals of a word's scales, and these.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub(super) fn reciprocals<W: Warp>(warp: W, word: W::U32) -> [[W::F32; 2]; 4] {
    let zero = warp.splat_f32(0.0);
    numbers(warp, word).map(|scale| {
        let exists = warp.less_f32(zero, scale);
        [warp.select_f32(exists, warp.reciprocal(scale), zero), scale]
    })
}

impl<F: Product> Recipe for NvFp4<F> {
    const ARITHMETIC: Arithmetic = Arithmetic::NvFp4;
    const BLOCK_SCALED: bool = F::BLOCK_SCALED;
    const F16_SUMS: bool = false;
    type Scores = NvFp4<F>;
    type Values = NvFp4<F>;
    type Output = AsAsked;
}

impl<F: Product> Scores for NvFp4<F> {
    const RECORD: Record = Record::Scaled;
    const STEP: usize = F::STEP;
    const SCALED: bool = true;
    const TERMS: bool = true;
    const UNIT: f32 = F::UNIT * F::UNIT;
    type Fragments = F;
    type Sum<W: Warp> = W::F32;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn zero<W: Warp>(warp: W) -> W::F32 {
        warp.splat_f32(0.0)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn mma<W: Warp>(warp: W, d: &mut [[W::F32; 4]; 2], a: F::A<W>, b: [F::B<W>; 2]) {
        F::mma(warp, d, a, b);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn float<W: Warp>(_warp: W, sum: W::F32) -> W::F32 {
        sum
    }
}

impl<F: Product> Values for NvFp4<F> {
    const RECORD: Record = Record::Scaled;
    const TRANSPOSED: bool = true;
    const STEP: usize = F::KEYS;
    const STEPS: usize = 1;
    const SLACK: f32 = 0.0;
    const ONE: f32 = LARGEST;
    const ONE_LOG2: f32 = 11.392_317;
    const UNIT: f32 = F::UNIT;
    const ROUNDED_SUMS: bool = true;
    const BLOCK_SCALES: bool = false;
    const COLUMN_SCALES: bool = true;
    const QUADS: bool = true;
    type Place<W: Warp> = F::Place<W>;
    type P<W: Warp> = F::A<W>;
    type B<W: Warp> = F::B<W>;
    type Sums<W: Warp> = [W::F32; 4];

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn begin<W: Warp>(_warp: W, output: [W::F32; 4]) -> [W::F32; 4] {
        output
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn add<W: Warp>(warp: W, sums: &mut [[W::F32; 4]; 2], p: F::A<W>, b: [F::B<W>; 2]) {
        F::mma(warp, sums, p, b);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn end<W: Warp>(_warp: W, sums: [W::F32; 4], _factor: W::F32, _output: [W::F32; 4]) -> [W::F32; 4] {
        sums
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn round<W: Warp, const N: usize>(warp: W, probabilities: &[[W::F32; 4]; N], k: usize) -> F::A<W> {
        F::round(warp, probabilities, k)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn add_rounded<W: Warp>(warp: W, sums: &mut [W::F32; 4], p: F::A<W>) {
        F::add_rows(warp, sums, p);
    }

    /// As [`value_row`](super::value_row) has it.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn column<W: Warp>(warp: W, n: usize, r: usize) -> W::U32 {
        ((warp.lane_id() & 3) << 2) + (16 * (n / 2) + 2 * (r % 2) + n % 2) as u32
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn place<W: Warp>(warp: W, tile: SharedTile, column: u32) -> F::Place<W> {
        F::place_b(warp, tile, 8 * column)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load<W: Warp>(warp: W, place: F::Place<W>, k: usize, n: usize) -> [F::B<W>; 2] {
        // SAFETY: the caller's.
        unsafe { F::load_b(warp, place, n, k, F::KEYS) }
    }
}
