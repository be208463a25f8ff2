//! NVFP4 in memory: numbers in four bits, e2m1, in blocks of 16 neighbours in a row with a scale each, ue4m3; and an f32 for all of
//! the tensor (NVIDIA, "Pretraining Large Language Models with NVFP4", 2025, section 2).
//!
//! A tensor `[.., D]` lies in memory as pairs of numbers `[.., D / 2]` and scales `[.., D / 16]`. A number stands for itself times
//! its block's scale times the tensor's.

use bytemuck::{Pod, Zeroable};
use float8::F8E4M3;

use crate::refusal::Refusal;

/// Numbers that share a scale.
pub const BLOCK: usize = 16;

/// The largest e2m1.
const MAX: f32 = 6.0;

/// The largest scale.
const MAX_SCALE: f32 = 448.0;

/// The e2m1 of the codes without a sign.
const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// What lies halfway between each of them and the next.
const HALFWAY: [f32; 7] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];

/// The bit of a code's sign.
const SIGN: u8 = 8;

/// Two neighbours of a row in e2m1 (OCP microscaling formats: a sign, two bits of exponent, one of fraction), the first in the low
/// four bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct E2m1x2(u8);

// SAFETY: a transparent byte, any value of which is two codes.
unsafe impl Zeroable for E2m1x2 {}
// SAFETY: as above.
unsafe impl Pod for E2m1x2 {}

impl E2m1x2 {
    /// The pair of these codes.
    pub const fn from_bits(bits: u8) -> Self {
        E2m1x2(bits)
    }

    /// Its codes.
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// Rounds to nearest, of two equally near numbers to that with the even code, and to 6 what lies beyond, of either sign. NaN,
    /// which e2m1 has not, becomes 6. The instruction of sm_120 has the same numbers (PTX ISA, "cvt").
    pub fn from_f32(pair: [f32; 2]) -> Self {
        let [first, second] = pair.map(code);
        E2m1x2(first | second << 4)
    }

    /// The numbers, the first one first.
    pub fn to_f32(self) -> [f32; 2] {
        [self.0 & 15, self.0 >> 4].map(|code| {
            let magnitude = MAGNITUDES[usize::from(code & !SIGN)];
            if code & SIGN == 0 { magnitude } else { -magnitude }
        })
    }
}

/// The code of the e2m1 nearest to `x`.
fn code(x: f32) -> u8 {
    if x.is_nan() {
        return SIGN - 1;
    }
    let passed =
        |&(below, halfway): &(usize, &f32)| x.abs() > *halfway || (x.abs() == *halfway && below % 2 == 1);
    let magnitude = HALFWAY.iter().enumerate().filter(passed).count() as u8;
    if x.is_sign_negative() { magnitude | SIGN } else { magnitude }
}

/// The scale of a block in ue4m3: e4m3 (OCP 8-bit floating point) of non-negative numbers, whose bit of the sign is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Ue4m3(u8);

// SAFETY: a transparent byte, without conditions on its value.
unsafe impl Zeroable for Ue4m3 {}
// SAFETY: as above.
unsafe impl Pod for Ue4m3 {}

impl Ue4m3 {
    /// The scale of this code.
    pub const fn from_bits(bits: u8) -> Self {
        Ue4m3(bits)
    }

    /// Its code.
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// Rounds to nearest even, to 448 what lies beyond, and to 0 what is negative. NaN stays one.
    pub fn from_f32(x: f32) -> Self {
        Ue4m3(F8E4M3::from_f32(x.clamp(0.0, MAX_SCALE).abs()).to_bits())
    }

    /// The number; NaN if the bit of the sign is set.
    pub fn to_f32(self) -> f32 {
        if self.0 < 0x80 { F8E4M3::from_bits(self.0).to_f32() } else { f32::NAN }
    }
}

/// Quantises rows, one after the other, whose length is a multiple of 16. `tensor_scale` is the scale of all of them, by which they
/// are divided first; 1 leaves them as they are.
///
/// A block's scale is its largest magnitude divided by 6, rounded; at most 448. Its numbers are divided by the rounded scale and
/// rounded, all of them to 0 if the scale is 0. Every division is IEEE's, so that a device has the same bits. NaN becomes the
/// largest number of its block.
///
/// A tensor scale of the tensor's largest magnitude divided by 2688, which is 6 times 448, uses all of the scales' range.
///
/// # Errors
/// The number of values is no multiple of 16; the tensor's scale is not positive or not finite.
pub fn quantize(values: &[f32], tensor_scale: f32) -> Result<(Vec<E2m1x2>, Vec<Ue4m3>), Refusal> {
    check(values.len(), tensor_scale)?;
    let (mut pairs, mut scales) =
        (Vec::with_capacity(values.len() / 2), Vec::with_capacity(values.len() / BLOCK));
    for block in values.as_chunks::<BLOCK>().0 {
        let block = block.map(|x| x / tensor_scale);
        let largest = block.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
        let scale = Ue4m3::from_f32(largest / MAX);
        let divisor = scale.to_f32();
        pairs.extend(block.as_chunks().0.iter().map(|pair| match divisor {
            0.0 => E2m1x2::default(),
            _ => E2m1x2::from_f32(pair.map(|x| x / divisor)),
        }));
        scales.push(scale);
    }
    Ok((pairs, scales))
}

/// What quantised rows stand for. The products of numbers and their blocks' scales are exact, those with the tensor's scale rounded.
///
/// # Errors
/// The numbers are no multiple of 16, or there is not one scale for each 16 of them; the tensor's scale is not positive or not
/// finite.
pub fn dequantize(pairs: &[E2m1x2], scales: &[Ue4m3], tensor_scale: f32) -> Result<Vec<f32>, Refusal> {
    let values = 2 * pairs.len();
    check(values, tensor_scale)?;
    if scales.len() != values / BLOCK {
        return Err(Refusal::BlockScales { values, block: BLOCK, needed: values / BLOCK, len: scales.len() });
    }
    let numbers = pairs.chunks_exact(BLOCK / 2).zip(scales).flat_map(|(block, scale)| {
        let scale = scale.to_f32();
        block.iter().flat_map(|pair| pair.to_f32()).map(move |x| x * scale * tensor_scale)
    });
    Ok(numbers.collect())
}

/// Refuses what is no whole number of blocks, and scales that nothing can be divided by.
fn check(values: usize, tensor_scale: f32) -> Result<(), Refusal> {
    if !values.is_multiple_of(BLOCK) {
        return Err(Refusal::NotBlocks { values, block: BLOCK });
    }
    if !(tensor_scale > 0.0 && tensor_scale.is_finite()) {
        return Err(Refusal::TensorScale { scale: tensor_scale });
    }
    Ok(())
}
