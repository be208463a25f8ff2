//! Element formats: what a tile holds, which matrix instruction multiplies it, and how results are rounded to it.

mod bf16;
mod half;

pub use bf16::Bf16;
pub use half::F16;

use cuda_std::Warp;

/// A 16-bit element format.
pub trait Format {
    /// `d += a b` on one 16x8 tile over 16 values of k.
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]);

    /// Two floats rounded to the format, `low` in the low half of the word.
    fn pack<W: Warp>(warp: W, low: W::F32, high: W::F32) -> W::U32;

    /// The two elements of a word, the low one first.
    fn unpack<W: Warp>(warp: W, word: W::U32) -> [W::F32; 2];
}
