//! The two products of attention on a warp's tiles.

use cuda_std::Warp;
use cuda_std::fragment::m16n8k16;

use crate::config::Config;
use crate::format::{Scores, Values};
use crate::scales::{BLOCK, ByBlock};
use crate::tile::{Accumulator, Place, Rows, SharedTile};

/// The accumulators of `Q K^T`, as those of an [`Accumulator`].
pub type Sums<W, C, const M: usize, const N: usize> =
    [[[<<C as Config>::Scores as Scores>::Sum<W>; 4]; N]; M];

/// Accumulators at zero.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn no_sums<W: Warp, C: Config, const M: usize, const N: usize>(warp: W) -> Sums<W, C, M, N> {
    [[[C::Scores::zero(warp); 4]; N]; M]
}

/// `S += Q K^T` over `steps` times two chunks of columns, on a tile of `8 N` keys.
///
/// # Safety
/// Both tiles lie in shared memory and have arrived.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn add_scores<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    sums: &mut Sums<W, C, M, N>,
    query: Place<W>,
    keys: Place<W>,
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
                C::Scores::mma(warp, &mut sums[m][2 * n], a[m], b[0]);
                C::Scores::mma(warp, &mut sums[m][2 * n + 1], a[m], b[1]);
            }
        }
    }
}

/// The scores that the accumulators hold.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn scores<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    sums: &Sums<W, C, M, N>,
) -> Accumulator<W, M, N> {
    let mut scores = Accumulator::zero(warp);
    for m in 0..M {
        for n in 0..N {
            for r in 0..4 {
                scores.tiles[m][n][r] = C::Scores::float(warp, sums[m][n][r]);
            }
        }
    }
    scores
}

/// The `k`th two chunks of keys of a tile of probabilities, rounded, as A operands.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn round_probabilities<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    probabilities: &Accumulator<W, M, N>,
    k: usize,
) -> [[W::U32; 4]; M] {
    let mut a = [[warp.splat(0); 4]; M];
    for m in 0..M {
        a[m] = C::Values::round(warp, &probabilities.tiles[m], k);
    }
    a
}

/// All of them, of which the first `8 N` keys' worth count.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn round_all<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    probabilities: &Accumulator<W, M, N>,
) -> [[[W::U32; 4]; M]; N] {
    let mut all = [[[warp.splat(0); 4]; M]; N];
    for k in 0..8 * N / (2 * C::Values::CHUNK) {
        all[k] = round_probabilities::<W, C, M, N>(warp, probabilities, k);
    }
    all
}

/// Each row's sum of rounded probabilities, in one of the four lanes that share it; zeros in the others.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn sum_rounded<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    rounded: &[[[W::U32; 4]; M]; N],
) -> Rows<W::F32, M> {
    let mut sums = [[warp.splat_f32(0.0); 2]; M];
    let steps = BLOCK / (2 * C::Values::CHUNK);
    for m in 0..M {
        for block in 0..8 * N / BLOCK {
            let mut products = [warp.splat_f32(0.0); 4];
            for k in block * steps..(block + 1) * steps {
                C::Values::mma(warp, &mut products, rounded[k][m], C::Values::ones(warp));
            }
            for half in 0..2 {
                sums[m][half] = sums[m][half] + products[2 * half];
            }
        }
    }
    sums
}

/// `O += P V` on a whole tile, each block of keys summed by itself and multiplied with its factor.
///
/// # Safety
/// As [`add_values`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn add_blocks<W: Warp, C: Config, const M: usize, const N: usize, const O: usize>(
    warp: W,
    output: &mut Accumulator<W, M, O>,
    rounded: &[[[W::U32; 4]; M]; N],
    values: Place<W>,
    factors: &ByBlock<W::F32>,
) {
    let steps = BLOCK / (2 * C::Values::CHUNK);
    for n in 0..O / 2 {
        for block in 0..8 * N / BLOCK {
            let mut sums = [[[warp.splat_f32(0.0); 4]; 2]; M];
            for k in block * steps..(block + 1) * steps {
                // SAFETY: the caller's.
                let b = unsafe { C::Values::load(warp, values, k, n) };
                for m in 0..M {
                    C::Values::mma(warp, &mut sums[m][0], rounded[k][m], b[0]);
                    C::Values::mma(warp, &mut sums[m][1], rounded[k][m], b[1]);
                }
            }
            for m in 0..M {
                for i in 0..2 {
                    for r in 0..4 {
                        let o = &mut output.tiles[m][2 * n + i][r];
                        *o = warp.fma(sums[m][i][r], factors[block], *o);
                    }
                }
            }
        }
    }
}

/// Rounds a tile of probabilities into a shared tile, at a row and chunk, for other warps to load as A operands.
///
/// # Safety
/// The shared tile holds them, and no other warp accesses their place.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn share_probabilities<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    probabilities: &Accumulator<W, M, N>,
    to: SharedTile,
    row: u32,
    chunk: u32,
) {
    let (lane_row, column) = m16n8k16::accumulator(warp.lane_id(), 0);
    for k in 0..8 * N / (2 * C::Values::CHUNK) {
        let a = round_probabilities::<W, C, M, N>(warp, probabilities, k);
        for right in 0..2 {
            let place = to.place::<W>(lane_row + row, warp.splat(chunk + (2 * k + right) as u32));
            for m in 0..M {
                for half in 0..2 {
                    // An A operand's four registers are its quarters: rows 0 to 7 and 8 to 15, left and right chunk.
                    let address = place.at(16 * m + 8 * half, 0) + (column << 1);
                    // SAFETY: the caller's.
                    unsafe { warp.store_shared(address, a[m][2 * right + half]) };
                }
            }
        }
    }
}

/// `O += P V` over the `k`th two chunks of keys, on `columns` column tiles of O from the `first` on; V's place is at their
/// first column.
///
/// # Safety
/// The tile of V lies in shared memory and has arrived.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn add_values<W: Warp, C: Config, const M: usize, const O: usize>(
    warp: W,
    output: &mut Accumulator<W, M, O>,
    probabilities: [[W::U32; 4]; M],
    values: Place<W>,
    k: usize,
    first: usize,
    columns: usize,
) {
    for n in 0..columns / 2 {
        // SAFETY: the caller's.
        let b = unsafe { C::Values::load(warp, values, k, n) };
        for m in 0..M {
            C::Values::mma(warp, &mut output.tiles[m][first + 2 * n], probabilities[m], b[0]);
            C::Values::mma(warp, &mut output.tiles[m][first + 2 * n + 1], probabilities[m], b[1]);
        }
    }
}
