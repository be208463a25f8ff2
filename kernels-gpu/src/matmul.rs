//! The two products of attention on a warp's tiles.

use cuda_std::Warp;

use crate::config::Config;
use crate::format::Format;
use crate::tile::{Accumulator, Place};

/// `S += Q K^T` over `steps` times 16 columns, on a tile of `8 N` keys.
///
/// # Safety
/// Both tiles lie in shared memory and have arrived.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn add_scores<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    scores: &mut Accumulator<W, M, N>,
    query: Place<W, C>,
    keys: Place<W, C>,
    steps: usize,
) {
    for k in 0..steps {
        // Fragments of Q are read anew for each tile of K: kept in registers they cost more than they save (D = 64:
        // no difference, D = 256: 330 -> 285 TFLOPS; bf16, N = 8192, H200).
        let mut a = [[warp.splat(0); 4]; M];
        for m in 0..M {
            // SAFETY: the caller's.
            a[m] = unsafe { query.load_a(warp, m, k) };
        }
        for n in 0..N / 2 {
            // SAFETY: the caller's.
            let b = unsafe { keys.load_b(warp, n, k) };
            for m in 0..M {
                C::Format::mma(warp, &mut scores.tiles[m][2 * n], a[m], b[0]);
                C::Format::mma(warp, &mut scores.tiles[m][2 * n + 1], a[m], b[1]);
            }
        }
    }
}

/// The `k`th 16 keys of a tile of probabilities, rounded to the input format, as A operands.
///
/// They never leave the registers: the accumulators of two neighbouring 16x8 tiles are, pair by pair, the A operand of the
/// next product (FlashAttention-2, section 3).
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn round_probabilities<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    probabilities: &Accumulator<W, M, N>,
    k: usize,
) -> [[W::U32; 4]; M] {
    let mut a = [[warp.splat(0); 4]; M];
    for m in 0..M {
        let [left, right] = [probabilities.tiles[m][2 * k], probabilities.tiles[m][2 * k + 1]];
        a[m] = [
            C::Format::pack(warp, left[0], left[1]),
            C::Format::pack(warp, left[2], left[3]),
            C::Format::pack(warp, right[0], right[1]),
            C::Format::pack(warp, right[2], right[3]),
        ];
    }
    a
}

/// `O += P V` over the `k`th 16 keys, on `columns` column tiles of O from the `first` on; V's place is at their first
/// column.
///
/// # Safety
/// The tile of V lies in shared memory and has arrived.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn add_values<W: Warp, C: Config, const M: usize, const O: usize>(
    warp: W,
    output: &mut Accumulator<W, M, O>,
    probabilities: [[W::U32; 4]; M],
    values: Place<W, C>,
    k: usize,
    first: usize,
    columns: usize,
) {
    for n in 0..columns / 2 {
        // SAFETY: the caller's.
        let b = unsafe { values.load_b_transposed(warp, k, n) };
        for m in 0..M {
            C::Format::mma(warp, &mut output.tiles[m][first + 2 * n], probabilities[m], b[0]);
            C::Format::mma(warp, &mut output.tiles[m][first + 2 * n + 1], probabilities[m], b[1]);
        }
    }
}
