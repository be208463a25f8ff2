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

/// Which of the probabilities `[batch, heads, rows, keys]` are kept.
pub fn kept([batch, heads, rows, keys]: [usize; 4], rate: f32, seed: u64, offset: u32) -> Vec<bool> {
    let places = (0..batch * heads * rows * keys).map(|i| (i / keys / rows, i / keys % rows, i % keys));
    places.map(|(head, row, key)| is_kept(rate, seed, offset, head, row, key)).collect()
}

/// Whether the probability of a row (of a head, counted over all batch entries) and a key is kept.
fn is_kept(rate: f32, seed: u64, offset: u32, head: usize, row: usize, key: usize) -> bool {
    let counter = [key as u32 / 2, (row / 16 * 8 + row % 8) as u32, head as u32, offset];
    let words = philox(counter, [seed as u32, (seed >> 32) as u32]);
    let word = words[row / 8 % 2 * 2 + key % 2];
    f64::from(word) >= (f64::from(rate) * 4_294_967_296.0).round()
}

#[test]
fn the_share_that_is_kept_is_the_rate_s() {
    for (rate, seed) in [(0.1, 1), (0.5, 2), (0.9, 3)] {
        let kept = kept([2, 3, 100, 200], rate, seed, 0);
        let share = kept.iter().filter(|&&kept| kept).count() as f64 / kept.len() as f64;
        // 120000 draws: 5 standard deviations are at most 0.0072.
        assert!((share - (1.0 - f64::from(rate))).abs() < 0.0073, "{rate}: {share}");
        // Neighbours are independent: pairs along keys and along rows both agree as often as chance has it.
        let agree = |step: usize| {
            let pairs = kept.iter().zip(&kept[step..]).filter(|(a, b)| a == b).count();
            pairs as f64 / (kept.len() - step) as f64
        };
        let chance = share * share + (1.0 - share) * (1.0 - share);
        for step in [1, 2, 200, 8 * 200, 16 * 200, 100 * 200] {
            assert!((agree(step) - chance).abs() < 0.0073, "{rate} {step}: {}", agree(step));
        }
    }
}
