//! The 8-bit float E4M3 (PTX ISA, "Alternate floating-point data formats"; Micikevicius et al. 2022, "FP8 formats for deep
//! learning"): a sign, four bits of exponent with bias 7, three of fraction. It has no infinities; its only NaN has all bits
//! of exponent and fraction set, so its largest number is 448.

/// The largest number.
pub const MAX: f32 = 448.0;

/// All bits of exponent and fraction.
const NAN: u8 = 0x7F;

/// The exponent of the smallest normal number; that of subnormal ones counts as the same.
const LEAST_EXPONENT: i32 = -6;

/// The float of a code.
pub fn decode(code: u8) -> f32 {
    if code & NAN == NAN {
        return f32::NAN;
    }
    // Exponent and fraction where those of an f32 stand, read with its bias of 127; subnormal ones are so there too.
    let magnitude = f32::from_bits(u32::from(code & NAN) << 20) * power_of_two(127 - 7);
    if code & !NAN == 0 { magnitude } else { -magnitude }
}

/// The code of the nearest number, of two equally near ones that with an even fraction. Beyond the largest it is that one
/// (`.satfinite`); every NaN becomes the positive one.
pub fn encode(x: f32) -> u8 {
    if x.is_nan() {
        return NAN;
    }
    let magnitude = x.abs().min(MAX);
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(LEAST_EXPONENT);
    // In units of the last place: eight and more for a normal number, whose leading one then adds one to the exponent.
    // Rounding up to sixteen adds another.
    let units = (magnitude * power_of_two(3 - exponent)).round_ties_even() as u8;
    let sign = if x.is_sign_negative() { !NAN } else { 0 };
    sign | (8 * (exponent - LEAST_EXPONENT) as u8 + units)
}

/// 2 to the power of `exponent`, which a normal f32 must have.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use float8::F8E4M3;

    use super::*;
    use crate::random::Random;

    #[test]
    fn codes_decode_to_what_the_format_says() {
        for code in 0..=u8::MAX {
            let (exponent, fraction) = (i32::from(code >> 3 & 15), f64::from(code & 7));
            let magnitude = match exponent {
                15 if fraction == 7.0 => f64::NAN,
                0 => fraction / 8.0 * 2_f64.powi(-6),
                _ => (1.0 + fraction / 8.0) * 2_f64.powi(exponent - 7),
            };
            let want = if code < 0x80 { magnitude } else { -magnitude };
            let got = decode(code);
            assert_eq!(got.is_nan(), want.is_nan(), "{code:#x}");
            assert_eq!(got.is_nan(), F8E4M3::from_bits(code).to_f32().is_nan(), "{code:#x}");
            if !got.is_nan() {
                assert_eq!(f64::from(got).to_bits(), want.to_bits(), "{code:#x}");
                assert_eq!(got.to_bits(), F8E4M3::from_bits(code).to_f32().to_bits(), "{code:#x}");
                assert_eq!(encode(got), code);
            }
        }
        assert_eq!((decode(0x7E), decode(1)), (MAX, 1.0 / 512.0));
    }

    /// The nearest of all numbers by search, of two the one with the even code; NaN for NaN.
    fn nearest(x: f32) -> u8 {
        if x.is_nan() {
            return 0x7F;
        }
        let sign = ((x.to_bits() >> 31) as u8) << 7;
        let distance = |code: u8| (f64::from(decode(code)) - f64::from(x.abs().min(MAX))).abs();
        let better = |a: u8, b: u8| {
            let (near, far) = (distance(a), distance(b));
            if far < near || (far == near && b.is_multiple_of(2)) { b } else { a }
        };
        sign | (0..0x7F).reduce(better).expect("codes")
    }

    #[test]
    fn rounding_is_to_the_nearest_even() {
        let mut samples = vec![0.0, f32::MIN_POSITIVE, 1e-45, 464.0, 465.0, 480.0, 1e4, f32::MAX];
        samples.extend([f32::INFINITY, f32::NAN, f32::from_bits(0x7F80_0001)]);
        for code in 0..0x7E {
            let (low, high) = (decode(code), decode(code + 1));
            samples.extend([low, (low + high) / 2.0]);
        }
        for i in 0..samples.len() {
            samples.extend([samples[i].next_up(), samples[i].next_down()]);
        }
        let mut random = Random::new(1, 0);
        samples.extend((0..100_000).map(|_| f32::from_bits(random.below(1 << 31) as u32)));
        samples.extend((0..100_000).map(|_| random.below(1 << 24) as f32 / (1 << 15) as f32));
        for x in samples.into_iter().flat_map(|x| [x, -x]) {
            let code = encode(x);
            assert_eq!(code, nearest(x), "{x:e}");
            // What CUDA's own headers say, by way of another crate; they leave a NaN its sign.
            let want = F8E4M3::from_f32(x).to_bits();
            assert_eq!(code, if x.is_nan() { want & 0x7F } else { want }, "{x:e}");
        }
    }
}
