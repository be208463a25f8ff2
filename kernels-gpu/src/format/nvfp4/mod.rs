//! NVFP4: e2m1 (OCP microscaling formats: a sign, two bits of exponent, one of fraction) in blocks of 16 neighbours that share a
//! scale in ue4m3 ("SageAttention3", Zhang et al. 2025, section 3.1).
//!
//! What is here is arithmetic: from floats to codes and scales, with the same bits on every machine, and back to f16, for machines
//! that multiply no e2m1.

mod decoded;
mod products;
mod scaled;

pub use products::{LARGEST, NvFp4, Product};

/// [`NvFp4`] by block-scaled instructions, on tiles of 128 keys.
pub type ScaledNvFp4 = NvFp4<scaled::Scaled<128>>;

/// The same on tiles of 64 keys.
pub type ScaledNvFp4By64 = NvFp4<scaled::Scaled<64>>;

/// [`NvFp4`] in f16, to which all of its numbers are decoded: the same products.
pub type DecodedNvFp4 = NvFp4<decoded::Decoded>;

use cuda_std::Warp;
use cuda_std::fragment::m16n8k64;
use cuda_std::swizzle::LINE;

/// Numbers that share a scale.
pub const BLOCK: usize = m16n8k64::BLOCK;

/// Elements of a line of 128 bytes: see [`row_bytes`].
pub const LINE_ELEMENTS: usize = 3 * m16n8k64::K;

/// Bytes of a line's first two chunks, which hold its scales.
pub const HEADER: usize = 32;

/// Bytes of a row of so many elements, in lines of 128 bytes that each stand by themselves: two chunks of scales, then as many of
/// elements as there are steps of k. The last line ends with its last step.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub const fn row_bytes(elements: usize) -> usize {
    let (lines, rest) = (elements / LINE_ELEMENTS, elements % LINE_ELEMENTS);
    LINE as usize * lines + if rest == 0 { 0 } else { HEADER + rest.next_multiple_of(m16n8k64::K) / 2 }
}

/// The largest e2m1.
pub const MAX: f32 = 6.0;

/// The row of transposed V that a column of it is: in an accumulator four neighbouring columns are then a lane's.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub const fn value_row(column: usize) -> usize {
    column / 16 * 16 + column % 2 * 8 + column % 16 / 2
}

/// Keys of which two blocks are.
pub const TWO_BLOCKS: usize = 2 * BLOCK;

/// The key of a tile that is the `k`th element of a row of transposed V.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub const fn value_key(k: usize) -> usize {
    let (t, e) = (k % 32 / 8, k % 8);
    k / 32 * 32 + e / 2 * 8 + t * 2 + e % 2
}

/// What numbers of [`decode`] and [`scaled`] are to be multiplied with: 2^14.
pub const DECODED_UNIT: f32 = 16384.0;

/// How floats are rounded to e2m1: either way to the same codes.
pub trait Rounding {
    /// Eight floats rounded to nearest even, as [`Warp::pack_e2m1`] has it.
    fn pack<W: Warp>(warp: W, values: [W::F32; 8]) -> W::U32;
}

/// By an instruction: sm_120f only.
pub enum Instruction {}

/// By additions of f32, which every architecture has.
pub enum Additions {}

impl Rounding for Instruction {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn pack<W: Warp>(warp: W, values: [W::F32; 8]) -> W::U32 {
        warp.pack_e2m1(values)
    }
}

impl Rounding for Additions {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn pack<W: Warp>(warp: W, [a, b, c, d, e, f, g, h]: [W::F32; 8]) -> W::U32 {
        let pair = |low, high| code(warp, low) | code(warp, high) << 4;
        let four = |[a, b, c, d]: [W::F32; 4]| pair(a, b) | pair(c, d) << 8;
        four([a, b, c, d]) | four([e, f, g, h]) << 16
    }
}

/// The code of the e2m1 nearest to `x`.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn code<W: Warp>(warp: W, x: W::F32) -> W::U32 {
    // Added to a power of two so large that an f32 of its size has no finer units than e2m1 has at `x`, an addition rounds as e2m1
    // does, and the sum's last bits count the units. A number from 2 on is two of its own units or three, and its code two more
    // than that, from 4 on four more. These are in what is added too: even numbers of units, so that ties go where they should.
    const BELOW_2: f32 = 4_194_304.0;
    const BELOW_4: f32 = 8_388_608.0 + 2.0;
    const BEYOND: f32 = 16_777_216.0 + 4.0 * 2.0;
    let largest = warp.splat_f32(MAX);
    let below = |x, bound: f32| warp.less_f32(x, warp.splat_f32(bound));
    let magnitude = warp.abs(x);
    // NaN is not below.
    let clamped = warp.select_f32(below(magnitude, MAX), magnitude, largest);
    let beyond_2 = warp.select_f32(below(clamped, 4.0), warp.splat_f32(BELOW_4), warp.splat_f32(BEYOND));
    let added = warp.select_f32(below(clamped, 2.0), warp.splat_f32(BELOW_2), beyond_2);
    let code = warp.bits_from_float(clamped + added) & 7;
    let is_nan = warp.less(warp.splat(f32::INFINITY.to_bits()), warp.bits_from_float(magnitude));
    let sign = (warp.bits_from_float(x) >> 28) & 8;
    code | warp.select(is_nan, warp.splat(0), sign)
}

/// The e2m1 nearest to `x`, which is not negative: as [`Additions`] rounds.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn rounded<W: Warp>(warp: W, x: W::F32) -> W::F32 {
    // Half a unit's worth of the last bit, as above.
    let large = |x: f32| warp.splat_f32(x);
    let below = |bound: f32| warp.less_f32(x, warp.splat_f32(bound));
    let beyond_2 = warp.select_f32(below(4.0), large(8_388_608.0), large(16_777_216.0));
    let added = warp.select_f32(below(2.0), large(4_194_304.0), beyond_2);
    let clamped = warp.select_f32(below(MAX), x, large(MAX));
    (clamped + added) - added
}

/// The largest magnitude of eight numbers.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn largest<W: Warp>(warp: W, values: [W::F32; 8]) -> W::F32 {
    let [a, b, c, d, e, f, g, h] = values.map(|x| warp.abs(x));
    let four = |a, b, c, d| warp.maximum(warp.maximum(a, b), warp.maximum(c, d));
    warp.maximum(four(a, b, c, d), four(e, f, g, h))
}

/// The scales of four blocks, from their largest magnitudes: what makes these 6, rounded to nearest even, at most 448. Byte `i` is
/// that of block `i`.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn scales<W: Warp>(warp: W, largest: [W::F32; 4]) -> W::U32 {
    warp.pack_e4m3(largest.map(|largest| warp.divide(largest, warp.splat_f32(MAX))))
}

/// The four numbers of a word of scales.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn numbers<W: Warp>(warp: W, scales: W::U32) -> [W::F32; 4] {
    let [low, high] = warp.unpack_e4m3(scales);
    [low, low >> 16, high, high >> 16].map(|word| warp.unpack_f16(word))
}

/// Eight numbers of a block divided by its scale and rounded, the first in bits 0..4; 0 if the scale is 0.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn codes<R: Rounding, W: Warp>(warp: W, values: [W::F32; 8], scale: W::F32) -> W::U32 {
    let codes = R::pack(warp, values.map(|x| warp.divide(x, scale)));
    warp.select(warp.less_f32(warp.splat_f32(0.0), scale), codes, warp.splat(0))
}

/// Eight numbers as pairs of f16, in units of 2^14: pair `i` is of numbers `i` and `i + 4`, the first in the low half. The operands
/// of a product may have their values of k in this order if both have.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn decode<W: Warp>(_warp: W, codes: W::U32) -> [W::U32; 4] {
    // A code's exponent and fraction are the last two bits of an f16's exponent and the first of its fraction. The biases differ by
    // 14; the one subnormal number is one there too.
    let [first, second, third, fourth] = [codes << 9, codes << 5, codes << 1, codes >> 3];
    let signs = [codes << 12, codes << 8, codes << 4, codes];
    let magnitudes = [first, second, third, fourth];
    [0, 1, 2, 3].map(|i| (magnitudes[i] & 0x0E00_0E00) | (signs[i] & 0x8000_8000))
}

/// Eight numbers times their scale, a pair of it in f16, as [`decode`] has them. These products are exact: they are multiples of
/// 2^-24, the least f16, and have six bits at most.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn scaled<W: Warp>(warp: W, codes: W::U32, scale: W::U32) -> [W::U32; 4] {
    decode(warp, codes).map(|pair| warp.mul_f16x2(pair, scale))
}
