//! `2^x` in f32, in a form that compilers vectorise.

/// `2^x` with a relative error below 2^-22; below -126 it is 0. NaN stays NaN.
///
/// `2^x = 2^n 2^f` with `n` the nearest integer: `2^n` by its bits, `2^f` for `|f| <= 1/2` by the Taylor polynomial of
/// degree 7, whose remainder is `(f ln 2)^8 / 8!`, at most 2^-27.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    // Adding and subtracting 1.5 * 2^23 rounds to an integer, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2: f32 = std::f32::consts::LN_2;
    let clamped = if x < 127.0 { x } else { 127.0 };
    let shifted = clamped + ROUND;
    let z = (clamped - (shifted - ROUND)) * LN_2;
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p * z + c;
    }
    let exponent = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3F80_0000));
    let y = p * exponent;
    let y = if x < -126.0 { 0.0 } else { y };
    if x.is_nan() { x } else { y }
}

#[cfg(test)]
mod tests {
    use super::exp2;

    #[test]
    fn agrees_with_the_library() {
        for i in -1_260_000..1_270_000 {
            let x = i as f32 / 10_000.0;
            let (got, want) = (f64::from(exp2(x)), f64::from(x).exp2());
            assert!((got / want - 1.0).abs() < 2.4e-7, "2^{x} = {got}, want {want}");
        }
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(exp2(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp2(-1e30), 0.0);
        assert_eq!(exp2(0.0), 1.0);
        assert!(exp2(f32::NAN).is_nan());
    }
}
