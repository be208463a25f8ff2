//! Seeded inputs.

/// A reproducible sequence of normally distributed numbers.
pub struct Normal(u64);

impl Normal {
    pub fn new(seed: u64) -> Self {
        Normal(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1).
    fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// The next number (Box and Muller 1958).
    pub fn sample(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// `n` numbers times `scale`.
    pub fn vec(&mut self, n: usize, scale: f64) -> Vec<f64> {
        (0..n).map(|_| self.sample() * scale).collect()
    }
}

#[test]
fn samples_have_mean_zero_and_variance_one() {
    let x = Normal::new(1).vec(100_000, 1.0);
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
}
