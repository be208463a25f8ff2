//! Dropout of probabilities, by a counter-based generator: whether a probability is dropped depends on its batch entry,
//! head, row and key alone, not on tiles, devices or the order of work.
//!
//! Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a counter of
//! four words and a key of two into four random words. For the probability of key `j` and row `i` of head `h`:
//!
//! * the key is the seed, low word first;
//! * the counter is `[j / 2, i / 16 * 8 + i % 8, batch entry * heads + h, offset]`;
//! * the word is number `i / 8 % 2 * 2 + j % 2`.
//!
//! So one draw serves two rows of two keys: the four elements of an accumulator tile that a lane holds. The probability is
//! dropped if the word is less than the dropout rate times 2^32. Kept ones are divided by the share that is kept. The row's
//! sum, and so the log-sum-exp, is that of all probabilities.

use cuda_std::{LaneU32, Warp};

use crate::abi::Params;
use crate::config::Config;
use crate::schedule::Work;
use crate::tile::Accumulator;

/// Multipliers and key increments of Philox4x32.
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const INCREMENTS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn philox4x32_10<I: LaneU32>(counter: [I; 4], mut key: [u32; 2]) -> [I; 4] {
    let [mut a, mut b, mut c, mut d] = counter;
    for _ in 0..10 {
        let [low_a, high_a] = a.multiply_wide(MULTIPLIERS[0]);
        let [low_c, high_c] = c.multiply_wide(MULTIPLIERS[1]);
        [a, b, c, d] = [high_c ^ b ^ key[0], low_c, high_a ^ d ^ key[1], low_a];
        key = [key[0].wrapping_add(INCREMENTS[0]), key[1].wrapping_add(INCREMENTS[1])];
    }
    [a, b, c, d]
}

/// The words for rows `row` and `row + 8` of head `head` (counted over all batch entries) and for keys `key` and `key + 1`:
/// the first row's two, then the second's. `row` has no bit 3, `key` is even.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn words<I: LaneU32>(seed: [u32; 2], offset: I, head: I, row: I, key: I) -> [I; 4] {
    let row_pair = ((row >> 4) << 3) + (row & 7);
    philox4x32_10([key >> 1, row_pair, head, offset], seed)
}

/// Drops probabilities of the warp's rows from `row` on, a multiple of 16, and of the keys from `key` on.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn apply<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    params: &Params,
    work: &Work,
    probabilities: &mut Accumulator<W, M, N>,
    row: u32,
    key: u32,
) {
    let dropout = &params.dropout;
    if !C::MASKED || dropout.threshold == 0 {
        return;
    }
    let (threshold, zero) = (warp.splat(dropout.threshold), warp.splat_f32(0.0));
    let [head, offset] = [work.batch * params.q_heads + work.head, dropout.offset].map(|x| warp.splat(x));
    for m in 0..M {
        let row = Accumulator::<W, M, N>::row(warp, m, 0) + row;
        for n in 0..N {
            let key = Accumulator::<W, M, N>::column(warp, n, 0) + key;
            let words = words(dropout.seed, offset, head, row, key);
            for r in 0..4 {
                let dropped = warp.less(words[r], threshold);
                let p = &mut probabilities.tiles[m][n][r];
                *p = warp.select_f32(dropped, zero, *p);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::philox4x32_10;

    /// Known answers of Random123's distribution (kat_vectors).
    #[test]
    fn philox_gives_the_known_answers() {
        let max = u32::MAX;
        assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32_10([max; 4], [max; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32_10([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}
