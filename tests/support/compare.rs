//! When a result is right.
//!
//! FlashAttention's rule: the largest error against the truth may be twice that of a straightforward implementation in
//! the same precision, plus one rounding of the output.

/// How far a result is from the truth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Difference {
    pub max: f64,
    /// Index of the largest error.
    pub at: usize,
    /// Norm of the errors over norm of the truth.
    pub relative: f64,
    /// Root of the mean square of the errors.
    pub mean: f64,
}

/// The distance of `got` from `want`.
///
/// # Errors
/// The first element where exactly one of the two is NaN, or where an infinity has no equal.
pub fn difference(got: &[f64], want: &[f64]) -> Result<Difference, String> {
    assert_eq!(got.len(), want.len());
    let mut result = Difference::default();
    let (mut errors, mut norm, mut count) = (0.0, 0.0, 0_u32);
    for (at, (&got, &want)) in got.iter().zip(want).enumerate() {
        if got.is_nan() != want.is_nan() || (got != want && (got.is_infinite() || want.is_infinite())) {
            return Err(format!("element {at} is {got}, want {want}"));
        }
        if want.is_nan() || want.is_infinite() {
            continue;
        }
        let error = (got - want).abs();
        if error > result.max {
            (result.max, result.at) = (error, at);
        }
        errors += error * error;
        norm += want * want;
        count += 1;
    }
    result.relative = if errors == 0.0 { 0.0 } else { (errors / norm).sqrt() };
    result.mean = (errors / f64::from(count.max(1))).sqrt();
    Ok(result)
}

/// Half a unit in the last place of the largest output, for significands of `bits` bits.
pub fn rounding(want: &[f64], bits: i32) -> f64 {
    let largest = want.iter().filter(|x| x.is_finite()).fold(0.0_f64, |max, x| max.max(x.abs()));
    largest * 2.0_f64.powi(-bits)
}

/// Checks an output by the rule.
///
/// # Errors
/// What is wrong with it.
pub fn check_output(
    got: &[f64],
    exact: &[f64],
    same_precision: &[f64],
    bits: i32,
) -> Result<Difference, String> {
    let difference_got = difference(got, exact)?;
    let fair = difference(same_precision, exact).map_err(|e| format!("the same-precision reference: {e}"))?;
    let allowed = 2.0 * fair.max + rounding(exact, bits);
    if difference_got.max <= allowed {
        return Ok(difference_got);
    }
    let at = difference_got.at;
    Err(format!(
        "error {:.3e} at element {at} ({} instead of {}), allowed {allowed:.3e}",
        difference_got.max, got[at], exact[at]
    ))
}

/// Checks log-sum-exps: scores are sums of products in f32, so their errors grow with the largest score, and what the
/// approximate exponential and logarithm add is near 2^-22.
///
/// # Errors
/// What is wrong with them.
pub fn check_lse(got: &[f64], exact: &[f64], largest_score: f64) -> Result<(), String> {
    let difference = difference(got, exact).map_err(|e| format!("lse: {e}"))?;
    let allowed = 2e-6 + 1e-6 * largest_score;
    if difference.max <= allowed {
        return Ok(());
    }
    Err(format!("lse: error {:.3e} at {}, allowed {allowed:.3e}", difference.max, difference.at))
}

#[test]
fn nan_on_one_side_only_is_an_error() {
    assert!(difference(&[f64::NAN], &[1.0]).is_err());
    assert!(difference(&[1.0], &[f64::NAN]).is_err());
    assert!(difference(&[f64::NAN], &[f64::NAN]).is_ok());
    assert!(difference(&[f64::INFINITY], &[1.0]).is_err());
    assert!(difference(&[f64::NEG_INFINITY], &[f64::NEG_INFINITY]).is_ok());
}

#[test]
fn the_rule_allows_twice_the_fair_error_and_one_rounding() {
    let (exact, fair) = ([1.0, 0.0], [1.01, 0.0]);
    assert!(check_output(&[1.02, 0.0], &exact, &fair, 11).is_ok());
    assert!(check_output(&[1.03, 0.0], &exact, &fair, 11).is_err());
}
