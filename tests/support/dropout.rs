//! Which probabilities dropout keeps, element by element, straight from the documentation.

/// Philox4x32-10 (Salmon et al. 2011, section 3.3), on two 64-bit products a round.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key[0] = key[0].wrapping_add(0x9E37_79B9);
            key[1] = key[1].wrapping_add(0xBB67_AE85);
        }
        let first = u64::from(counter[0]) * 0xD251_1F53;
        let second = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
    }
    counter
}

/// Whether the probability of a row (of a head, counted over all batch entries) and a key is kept.
pub fn is_kept(rate: f32, seed: u64, offset: u32, head: usize, row: usize, key: usize) -> bool {
    let counter = [key as u32 / 2, (row / 16 * 8 + row % 8) as u32, head as u32, offset];
    let words = philox(counter, [seed as u32, (seed >> 32) as u32]);
    let word = words[row / 8 % 2 * 2 + key % 2];
    f64::from(word) >= (f64::from(rate) * 4_294_967_296.0).round()
}
