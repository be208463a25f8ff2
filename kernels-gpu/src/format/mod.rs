//! Number formats: what tiles hold, which instruction multiplies them, and how results are rounded.
//!
//! A kernel's two products may be computed differently, so each has a trait of its own: [`Scores`] for `Q K^T`, [`Values`] for
//! `P V`. A [`Recipe`] names both, and what the output is rounded to. A 16-bit [`Element`] is a recipe by itself.

mod bf16;
mod half;

pub use bf16::Bf16;
pub use half::F16;

use cuda_std::{Warp, fragment};

use crate::abi::Params;
use crate::tile::{Place, SharedTile};

/// Elements of the output in a chunk of 16 bytes.
pub const OUTPUT_CHUNK: usize = 8;

/// What a kernel computes in.
pub trait Recipe {
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

    /// `d += a b` on one 16x8 tile, over two chunks of k.
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]);

    /// The `k`th two chunks of keys of 16 rows of probabilities, rounded, as an A operand.
    fn round<W: Warp, const N: usize>(warp: W, probabilities: &[[W::F32; 4]; N], k: usize) -> [W::U32; 4];

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
    /// `d += a b` on one 16x8 tile over 16 values of k.
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]);

    /// Two floats rounded to the format, `low` in the low half of the word.
    fn pack<W: Warp>(warp: W, low: W::F32, high: W::F32) -> W::U32;

    /// The two elements of a word, the low one first.
    fn unpack<W: Warp>(warp: W, word: W::U32) -> [W::F32; 2];
}

impl<E: Element> Recipe for E {
    type Scores = E;
    type Values = E;
    type Output = E;
}

impl<E: Element> Scores for E {
    const CHUNK: usize = 8;
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

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]) {
        E::mma(warp, d, a, b);
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
