//! The emulator's randomness: one number in, a reproducible sequence out (splitmix64, Steele et al. 2014).

/// A pseudo-random sequence.
pub struct Random(u64);

impl Random {
    /// The sequence of CTA `stream` under `seed`.
    pub fn new(seed: u64, stream: u32) -> Self {
        Random(seed ^ (u64::from(stream) + 1).wrapping_mul(0xD134_2543_DE82_EF95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
