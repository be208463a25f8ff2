//! Number formats: what tiles hold, which instruction multiplies them, and how results are rounded.
//!
//! A kernel's two products may be computed differently, so each has a trait of its own: [`Scores`] for `Q K^T`, [`Values`] for
//! `P V`. A [`Recipe`] names both, and what the output is rounded to. A 16-bit [`Element`] is a recipe by itself.

mod bf16;
mod fp8;
mod half;
pub mod nvfp4;

pub use bf16::Bf16;
pub use fp8::{
    BlockScaled, E4m3, E4m3F16, F16_SUMS_LARGEST, F16Sums, Int8, Int8F16, MxE4m3, MxInt8, Plain, Product,
};
pub use half::F16;

use cuda_std::Warp;
use cuda_std::fragment::{self, m16n8k16};

use crate::abi::Params;
use crate::config::{Arithmetic, Dtype};
use crate::tile::{Place, SharedTile};

/// Elements of the output in a chunk of 16 bytes.
pub const OUTPUT_CHUNK: usize = 8;

/// What a kernel computes in.
pub trait Recipe {
    /// The numbers.
    const ARITHMETIC: Arithmetic;
    /// Whether they are multiplied by block-scaled instructions where others give the same products.
    const BLOCK_SCALED: bool;
    /// Whether blocks of `P V` are summed in f16: V's numbers must then be small enough.
    const F16_SUMS: bool;
    /// `Q K^T`.
    type Scores: Scores;
    /// `P V`.
    type Values: Values;
    /// What the output is rounded to.
    type Output: Output;
}

/// How `Q K^T` is computed.
pub trait Scores {
    /// Elements in a chunk of 16 bytes. A matrix instruction takes two chunks of k.
    const CHUNK: usize;
    /// Whether Q and K have [`scales`](crate::scales).
    const SCALED: bool;
    /// An accumulator register.
    type Sum<W: Warp>: Copy;

    /// An accumulator at zero.
    fn zero<W: Warp>(warp: W) -> Self::Sum<W>;

    /// `d += a b` on one 16x8 tile, over two chunks of k.
    fn mma<W: Warp>(warp: W, d: &mut [Self::Sum<W>; 4], a: [W::U32; 4], b: [W::U32; 2]);

    /// What an accumulator holds.
    fn float<W: Warp>(warp: W, sum: Self::Sum<W>) -> W::F32;
}

/// How `P V` is computed.
pub trait Values {
    /// Elements in a chunk of 16 bytes. A matrix instruction takes two chunks of k.
    const CHUNK: usize;
    /// Growth of a row's maximum, in powers of two, that goes without rescaling: see [`softmax`](crate::softmax).
    const SLACK: f32;
    /// What a probability of 1 is stored as.
    const ONE: f32;
    /// The base-2 logarithm of that.
    const ONE_LOG2: f32;
    /// Whether V has [`scales`](crate::scales), and P is rounded so coarsely that a row's sum must be that of the rounded ones,
    /// and sums of products keep so few bits that each block of keys must be summed by itself.
    const SCALED: bool;
    /// Steps of k, of two chunks each, that are taken together: a block of keys where V has scales, and otherwise one, so that few
    /// probabilities are in registers at a time.
    const STEPS: usize;
    /// The accumulators of one 16x8 tile of `P V`, over [`Values::STEPS`] steps.
    type Sums<W: Warp>: Copy;

    /// `d += a b` on one 16x8 tile, over two chunks of k.
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]);

    /// Accumulators for a tile of the output to be added to: the output itself, or zeros where each block of keys is summed by
    /// itself.
    fn begin<W: Warp>(warp: W, output: [W::F32; 4]) -> Self::Sums<W>;

    /// As [`Values::mma`].
    fn add<W: Warp>(warp: W, sums: &mut Self::Sums<W>, a: [W::U32; 4], b: [W::U32; 2]);

    /// The output with the sums that [`Values::begin`] began, times `factor` where V has scales.
    fn end<W: Warp>(warp: W, sums: Self::Sums<W>, factor: W::F32, output: [W::F32; 4]) -> [W::F32; 4];

    /// The `k`th two chunks of keys of 16 rows of probabilities, rounded, as an A operand.
    fn round<W: Warp, const N: usize>(warp: W, probabilities: &[[W::F32; 4]; N], k: usize) -> [W::U32; 4];

    /// The B operand whose first column is ones, and whose others are zeros.
    fn ones<W: Warp>(warp: W) -> [W::U32; 2];

    /// Whether the columns of a lane's accumulators in column tiles `2 n` and `2 n + 1` are four neighbours, in the order of the
    /// registers and, for each, of the tiles.
    const QUADS: bool;

    /// The column of the output that the accumulators `r` of column tile `n` are of, counted from the first of the operands that
    /// were loaded.
    fn column<W: Warp>(warp: W, n: usize, r: usize) -> W::U32;

    /// Where a lane stands in a tile of V to [`Values::load`] operands from column tile `column` on, an even one.
    fn place<W: Warp>(warp: W, tile: SharedTile, column: u32) -> Place<W>;

    /// The B operands of column tiles `2 n` and `2 n + 1`, over the `k`th two chunks of keys, in the keys' order of
    /// [`Values::round`].
    ///
    /// # Safety
    /// The operands lie in the tile's shared memory.
    #[track_caller]
    unsafe fn load<W: Warp>(warp: W, place: Place<W>, k: usize, n: usize) -> [[W::U32; 2]; 2];
}

/// What the output is rounded to: 16 bits.
pub trait Output {
    /// Two floats rounded, `low` in the low half of the word.
    fn pack<W: Warp>(warp: W, params: &Params, low: W::F32, high: W::F32) -> W::U32;
}

/// A 16-bit element format.
pub trait Element {
    /// Its tag.
    const DTYPE: Dtype;

    /// `d += a b` on one 16x8 tile over 16 values of k.
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]);

    /// Two floats rounded to the format, `low` in the low half of the word.
    fn pack<W: Warp>(warp: W, low: W::F32, high: W::F32) -> W::U32;

    /// The two elements of a word, the low one first.
    fn unpack<W: Warp>(warp: W, word: W::U32) -> [W::F32; 2];
}

impl<E: Element> Recipe for E {
    const ARITHMETIC: Arithmetic = Arithmetic::native(E::DTYPE);
    const BLOCK_SCALED: bool = false;
    const F16_SUMS: bool = false;
    type Scores = E;
    type Values = E;
    type Output = E;
}

impl<E: Element> Scores for E {
    const CHUNK: usize = 8;
    const SCALED: bool = false;
    type Sum<W: Warp> = W::F32;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn zero<W: Warp>(warp: W) -> W::F32 {
        warp.splat_f32(0.0)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]) {
        E::mma(warp, d, a, b);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn float<W: Warp>(_warp: W, sum: W::F32) -> W::F32 {
        sum
    }
}

impl<E: Element> Values for E {
    const CHUNK: usize = 8;
    /// Probabilities may then reach 2^8, which no 16-bit format minds.
    const SLACK: f32 = 8.0;
    const ONE: f32 = 1.0;
    const ONE_LOG2: f32 = 0.0;
    const SCALED: bool = false;
    const STEPS: usize = 1;
    const QUADS: bool = false;
    type Sums<W: Warp> = [W::F32; 4];

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]) {
        E::mma(warp, d, a, b);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn begin<W: Warp>(_warp: W, output: [W::F32; 4]) -> [W::F32; 4] {
        output
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn add<W: Warp>(warp: W, sums: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]) {
        E::mma(warp, sums, a, b);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn end<W: Warp>(_warp: W, sums: [W::F32; 4], _factor: W::F32, _output: [W::F32; 4]) -> [W::F32; 4] {
        sums
    }

    /// They never leave the registers: the accumulators of two neighbouring 16x8 tiles are, pair by pair, the A operand of the
    /// next product (FlashAttention-2, section 3).
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn round<W: Warp, const N: usize>(warp: W, probabilities: &[[W::F32; 4]; N], k: usize) -> [W::U32; 4] {
        let [left, right] = [probabilities[2 * k], probabilities[2 * k + 1]];
        [
            E::pack(warp, left[0], left[1]),
            E::pack(warp, left[2], left[3]),
            E::pack(warp, right[0], right[1]),
            E::pack(warp, right[2], right[3]),
        ]
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn ones<W: Warp>(warp: W) -> [W::U32; 2] {
        let one = warp.splat_f32(1.0);
        let first = warp.less(warp.lane_id(), warp.splat(4));
        [warp.select(first, E::pack(warp, one, one), warp.splat(0)); 2]
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn column<W: Warp>(warp: W, n: usize, r: usize) -> W::U32 {
        m16n8k16::accumulator(warp.lane_id(), r as u32).1 + (n * m16n8k16::N) as u32
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn place<W: Warp>(warp: W, tile: SharedTile, column: u32) -> Place<W> {
        let (row, chunk) = fragment::load_matrix::b_by_rows(warp.lane_id());
        tile.place(row, chunk + column)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load<W: Warp>(warp: W, place: Place<W>, k: usize, n: usize) -> [[W::U32; 2]; 2] {
        // SAFETY: the caller's.
        let [a, b, c, d] = unsafe { warp.load_matrix_transposed_x4(place.at(16 * k, 2 * n)) };
        [[a, b], [c, d]]
    }
}

impl<E: Element> Output for E {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn pack<W: Warp>(warp: W, _params: &Params, low: W::F32, high: W::F32) -> W::U32 {
        E::pack(warp, low, high)
    }
}

/// What the call asks for.
pub enum AsAsked {}

impl Output for AsAsked {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn pack<W: Warp>(warp: W, params: &Params, low: W::F32, high: W::F32) -> W::U32 {
        match params.output {
            Dtype::F16 => <F16 as Element>::pack(warp, low, high),
            Dtype::Bf16 => <Bf16 as Element>::pack(warp, low, high),
        }
    }
}
