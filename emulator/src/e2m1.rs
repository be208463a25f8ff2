//! The 4-bit float E2M1 (PTX ISA, "Alternate floating-point data formats"; OCP microscaling formats): a sign, two bits of exponent
//! with bias 1, one of fraction. It has neither infinities nor NaN.

/// The numbers of the codes without a sign.
const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The largest number.
pub const MAX: f32 = MAGNITUDES[7];

/// The bit of the sign.
const SIGN: u8 = 8;

/// The float of the code in the low four bits.
pub fn decode(code: u8) -> f32 {
    let magnitude = MAGNITUDES[usize::from(code & (SIGN - 1))];
    if code & SIGN == 0 { magnitude } else { -magnitude }
}

/// The code of the nearest number, of two equally near ones the even code. Beyond the largest it is that one (`.satfinite`);
/// every NaN becomes the positive largest.
pub fn encode(x: f32) -> u8 {
    if x.is_nan() {
        return SIGN - 1;
    }
    let magnitude = x.abs().min(MAX);
    // Two units of the last place to a normal number, whose leading one then adds one to the exponent; the least exponent, 0,
    // is that of the subnormal number too.
    let (exponent, unit) = match magnitude {
        4.0.. => (2, 2.0),
        2.0.. => (1, 1.0),
        _ => (0, 0.5),
    };
    let sign = if x.is_sign_negative() { SIGN } else { 0 };
    sign | (2 * exponent + (magnitude / unit).round_ties_even() as u8)
}

#[cfg(test)]
mod tests {
    use microfloat::f4e2m1fn;

    use super::*;
    use crate::random::Random;

    #[test]
    fn codes_decode_to_what_the_format_says() {
        for code in 0..16 {
            let want = f4e2m1fn::from_bits(code).to_f32();
            assert_eq!(decode(code).to_bits(), want.to_bits(), "{code:#x}");
            assert_eq!(encode(want), code);
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_even() {
        let ties = [(0.25, 0), (0.75, 2), (1.25, 2), (1.75, 4), (2.5, 4), (3.5, 6), (5.0, 6)];
        for (x, even) in ties {
            let (below, above) = (encode(f32::next_down(x)), encode(f32::next_up(x)));
            assert_eq!(encode(x), even, "{x}");
            assert_eq!(above, below + 1, "{x}");
            assert!(even == below || even == above, "{x}");
        }
        let mut random = Random::new(3, 0);
        let mut samples: Vec<f32> =
            (0..100_000).map(|_| f32::from_bits(random.below(0x7F80_0000) as u32)).collect();
        samples.extend((0..100_000).map(|_| random.below(1 << 24) as f32 / (1 << 21) as f32));
        samples.extend(ties.iter().flat_map(|&(x, _)| [x, x.next_up(), x.next_down()]));
        samples.extend([0.0, f32::MIN_POSITIVE, 1e-45, 6.0, 7.0, 8.0, f32::MAX, f32::INFINITY]);
        for x in samples.into_iter().flat_map(|x| [x, -x]) {
            assert_eq!(encode(x), f4e2m1fn::from_f32(x).to_bits(), "{x:e}");
        }
        assert_eq!((encode(f32::NAN), encode(-f32::NAN)), (0x7, 0x7));
    }
}
