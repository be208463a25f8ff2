//! Scalar instructions, with PTX's roundings, flushes and NaN rules (PTX ISA, "Floating-point instructions").

use half::{bf16, f16};

use crate::{e2m1, e4m3};

/// A result or operand of an `.ftz` instruction: subnormals become zeros of the same sign.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

/// `max.f32`: the other operand if one is NaN; +0 is larger than -0.
pub fn max(a: f32, b: f32) -> f32 {
    match a.partial_cmp(&b) {
        Some(std::cmp::Ordering::Less) => b,
        Some(std::cmp::Ordering::Greater) => a,
        Some(std::cmp::Ordering::Equal) => f32::from_bits(a.to_bits() & b.to_bits()),
        None if a.is_nan() && b.is_nan() => f32::from_bits(0x7FFF_FFFF),
        None => {
            if a.is_nan() {
                b
            } else {
                a
            }
        }
    }
}

/// `max.NaN.f32`: NaN if either operand is; otherwise as [`max`].
pub fn maximum(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::from_bits(0x7FFF_FFFF) } else { max(a, b) }
}

/// `ex2.approx.ftz.f32`, here rounded once.
pub fn exp2(x: f32) -> f32 {
    flush(f64::from(flush(x)).exp2() as f32)
}

/// `lg2.approx.ftz.f32`, here rounded once.
pub fn log2(x: f32) -> f32 {
    flush(f64::from(flush(x)).log2() as f32)
}

/// `rcp.approx.ftz.f32`, here rounded once.
pub fn reciprocal(x: f32) -> f32 {
    flush(1.0 / flush(x))
}

/// `cvt.rn.f16x2.f32`; NaN becomes the canonical one.
pub fn pack_f16(low: f32, high: f32) -> u32 {
    pack(low, high, |x| f16::from_f32(x).to_bits())
}

/// `cvt.rn.bf16x2.f32`; NaN becomes the canonical one.
pub fn pack_bf16(low: f32, high: f32) -> u32 {
    pack(low, high, |x| bf16::from_f32(x).to_bits())
}

fn pack(low: f32, high: f32, round: impl Fn(f32) -> u16) -> u32 {
    let bits = |x: f32| u32::from(if x.is_nan() { 0x7FFF } else { round(x) });
    bits(low) | bits(high) << 16
}

/// `cvt.rn.satfinite.e4m3x2.f32`, twice.
pub fn pack_e4m3(values: [f32; 4]) -> u32 {
    u32::from_le_bytes(values.map(e4m3::encode))
}

/// `cvt.rni.s32.f32`, `cvt.pack.sat.s8.s32.b32`: Rust's casts saturate too, and make NaN zero.
pub fn pack_s8(values: [f32; 4]) -> u32 {
    u32::from_le_bytes(values.map(|x| (x.round_ties_even() as i8).cast_unsigned()))
}

/// `cvt.rn.satfinite.e2m1x2.f32`, four times.
pub fn pack_e2m1(values: [f32; 8]) -> u32 {
    values.iter().rev().fold(0, |word, &x| word << 4 | u32::from(e2m1::encode(x)))
}

/// `cvt.rn.f16x2.e4m3x2`, on half of the word.
pub fn unpack_e4m3(low: u8, high: u8) -> u32 {
    pack_f16(e4m3::decode(low), e4m3::decode(high))
}

/// `mul.rn.f16x2`. Products of f16 are exact in f32.
pub fn mul_f16x2(a: u32, b: u32) -> u32 {
    let product = |shift: u32| {
        let [a, b] = [a, b].map(|pair| f16::from_bits((pair >> shift) as u16).to_f32());
        a * b
    };
    pack_f16(product(0), product(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_one_of_zeros_and_of_what_is_no_number() {
        assert_eq!(max(f32::NAN, 1.0), 1.0);
        assert_eq!(max(-2.0, f32::NAN), -2.0);
        assert!(max(f32::NAN, f32::NAN).is_nan());
        assert!(max(-0.0, 0.0).is_sign_positive());
        assert_eq!(max(f32::NEG_INFINITY, -1e30), -1e30);
        assert!(maximum(f32::NAN, 1.0).is_nan() && maximum(-2.0, f32::NAN).is_nan());
        assert_eq!(maximum(f32::NEG_INFINITY, -1e30), -1e30);
        assert!(maximum(-0.0, 0.0).is_sign_positive());
    }

    #[test]
    fn exponentials_flush_subnormals() {
        assert_eq!(exp2(-126.0), f32::MIN_POSITIVE);
        assert_eq!(exp2(-127.0), 0.0);
        assert_eq!(exp2(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp2(200.0), f32::INFINITY);
        assert!(exp2(f32::NAN).is_nan());
        assert_eq!(log2(1e-40), f32::NEG_INFINITY);
        assert_eq!(log2(8.0), 3.0);
        assert_eq!(reciprocal(f32::MAX), 0.0);
        assert_eq!(reciprocal(0.0), f32::INFINITY);
    }

    #[test]
    fn conversions_round_to_nearest_even() {
        // 2049 lies halfway between the f16 neighbours 2048 and 2050, 2051 between 2050 and 2052.
        assert_eq!(pack_f16(2049.0, 2051.0), 0x6802_6800);
        assert_eq!(pack_f16(65519.0, 65520.0), 0x7C00_7BFF);
        assert_eq!(pack_f16(f32::NAN, -f32::INFINITY), 0xFC00_7FFF);
        // 1 + 2^-8 lies halfway between 1 and 1 + 2^-7.
        assert_eq!(pack_bf16(1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0), 0x3F82_3F80);
        assert_eq!(pack_bf16(f32::MAX, f32::NAN), 0x7FFF_7F80);
        // 17 lies halfway between the e4m3 neighbours 16 and 18, 464 between 448 and what would be 480.
        assert_eq!(pack_e4m3([17.0, -19.0, 464.0, -1e9]), 0xFE7E_DA58);
        assert_eq!(pack_e4m3([-f32::NAN, f32::INFINITY, -0.0, 1.0 / 1024.0]), 0x0080_7E7F);
    }

    #[test]
    fn conversions_to_bytes_saturate() {
        for (x, want) in [
            (0.5, 0),
            (1.5, 2),
            (-0.5, 0),
            (-2.5, -2),
            (126.5, 126),
            (127.49, 127),
            (127.5, 127),
            (1e30, 127),
            (f32::INFINITY, 127),
            (-127.5, -128),
            (-128.5, -128),
            (-129.0, -128),
            (f32::NEG_INFINITY, -128),
            (f32::NAN, 0),
        ] {
            let got = pack_s8([x, 1.0, -1.0, 3.0]);
            assert_eq!(got, 0x03FF_0100 | u32::from(want as u8), "{x}");
        }
        // The nearest by search, an even one if two are.
        for i in -5000..5000 {
            let x = i as f32 / 32.0;
            let distance = |n: &i32| ((*n as f32 - x).abs(), n.rem_euclid(2));
            let nearest = (-128..=127).min_by(|a, b| distance(a).partial_cmp(&distance(b)).expect("no NaN"));
            assert_eq!(pack_s8([x, 0.0, 0.0, 0.0]) as i8, nearest.expect("some") as i8, "{x}");
        }
    }
}
