//! The two products of attention on a warp's tiles.

use core::ops::Range;

use cuda_std::Warp;
use cuda_std::fragment::m16n8k16;
use cuda_std::swizzle::CHUNK;

use crate::config::{Config, PANEL_ROW, SplitD};
use crate::format::{Fragments, Scores, Values};
use crate::scales::ByBlock;
use crate::tile::{Accumulator, Rows, SharedTile};

/// The accumulators of `Q K^T`, as those of an [`Accumulator`].
pub type Sums<W, C, const M: usize, const N: usize> =
    [[[<<C as Config>::Scores as Scores>::Sum<W>; 4]; N]; M];

/// Accumulators at zero.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn no_sums<W: Warp, C: Config, const M: usize, const N: usize>(warp: W) -> Sums<W, C, M, N> {
    [[[C::Scores::zero(warp); 4]; N]; M]
}

/// Where a lane stands in a tile of Q or K.
pub type Place<W, C> = <ScoreFragments<C> as Fragments>::Place<W>;

/// What a warp holds of Q and K.
pub type ScoreFragments<C> = <<C as Config>::Scores as Scores>::Fragments;

/// `S += Q K^T` over so many columns, on a tile of `8 N` keys.
///
/// # Safety
/// Both tiles lie in shared memory and have arrived.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn add_scores<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    sums: &mut Sums<W, C, M, N>,
    query: Place<W, C>,
    keys: Place<W, C>,
    columns: usize,
) {
    for k in 0..columns.div_ceil(C::Scores::STEP) {
        let elements = C::Scores::STEP.min(columns - k * C::Scores::STEP);
        // Fragments of Q are read anew for each tile of K: kept in registers they cost more than they save (D = 64:
        // no difference, D = 256: 330 -> 285 TFLOPS; bf16, N = 8192, H200).
        // SAFETY: the caller's, here and below.
        let load_a = |m| unsafe { ScoreFragments::<C>::load_a(warp, query, m, k, elements) };
        let mut a = [load_a(0); M];
        for m in 1..M {
            a[m] = load_a(m);
        }
        for n in 0..N / 2 {
            // SAFETY: see above.
            let b = unsafe { ScoreFragments::<C>::load_b(warp, keys, n, k, elements) };
            for m in 0..M {
                C::Scores::mma(warp, &mut sums[m].as_chunks_mut().0[n], a[m], b);
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

/// Steps of k in a block of keys, at most.
const STEPS: usize = 2;

/// Rounded probabilities of 16 rows over a step of k.
type P<W, C> = <<C as Config>::Values as Values>::P<W>;

/// Rounded probabilities of a block of keys, [`Values::STEPS`] steps of k.
pub type Block<W, C, const M: usize> = [[P<W, C>; M]; STEPS];

/// Blocks of so many keys; the last may be a part of one.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn blocks<C: Config>(keys: usize) -> usize {
    keys.div_ceil(C::Values::STEP * C::Values::STEPS)
}

/// Steps of k in a block of a tile of `8 N` keys.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn steps<C: Config, const N: usize>(block: usize) -> usize {
    C::Values::STEPS.min(8 * N / C::Values::STEP - block * C::Values::STEPS)
}

/// A block of a tile of probabilities, rounded.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn round_probabilities<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    probabilities: &Accumulator<W, M, N>,
    block: usize,
) -> Block<W, C, M> {
    let round = |k, m: usize| C::Values::round(warp, &probabilities.tiles[m], block * C::Values::STEPS + k);
    let mut rounded = [[round(0, 0); M]; STEPS];
    for k in 0..steps::<C, N>(block) {
        for m in 0..M {
            if k + m > 0 {
                rounded[k][m] = round(k, m);
            }
        }
    }
    rounded
}

/// Each row's sum of a block of a tile of rounded probabilities, in one of the four lanes that share it; zeros in the others.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn sum_rounded<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    rounded: &Block<W, C, M>,
    block: usize,
) -> Rows<W::F32, M> {
    let mut sums = [[warp.splat_f32(0.0); 2]; M];
    for m in 0..M {
        let mut products = [warp.splat_f32(0.0); 4];
        for k in 0..steps::<C, N>(block) {
            C::Values::add_rounded(warp, &mut products, rounded[k][m]);
        }
        for half in 0..2 {
            sums[m][half] = products[2 * half];
        }
    }
    sums
}

/// Stores a block of a tile of rounded probabilities into a shared tile, at a row and chunk of the tile's, for other warps to
/// load.
///
/// # Safety
/// The shared tile holds them, and no other warp accesses their place.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn share_probabilities<W: Warp, C: Config, const M: usize, const N: usize>(
    warp: W,
    rounded: &Block<W, C, M>,
    block: usize,
    to: SharedTile,
    row: u32,
    chunk: u32,
) where
    C::Values: Values<P<W> = [W::U32; 4]>,
{
    let (lane_row, column) = m16n8k16::accumulator(warp.lane_id(), 0);
    for k in 0..steps::<C, N>(block) {
        for right in 0..2 {
            let right_chunk = (2 * (block * C::Values::STEPS + k) + right) as u32;
            let place = to.place::<W>(lane_row + row, warp.splat(chunk + right_chunk));
            for m in 0..M {
                for half in 0..2 {
                    // An A operand's four registers are its quarters: rows 0 to 7 and 8 to 15, left and right chunk.
                    let address = place.at(16 * m + 8 * half, 0) + (column << 1);
                    // SAFETY: the caller's.
                    unsafe { warp.store_shared(address, rounded[k][m][2 * right + half]) };
                }
            }
        }
    }
}

/// Loads what all warps have shared of a block of keys, in panels one behind the other.
///
/// # Safety
/// The panels lie in shared memory, and their stores are done.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn load_probabilities<W: Warp, C: SplitD, const M: usize>(
    warp: W,
    from: SharedTile,
    block: usize,
    row: u32,
) -> Block<W, C, M>
where
    C::Values: Values<P<W> = [W::U32; 4]>,
{
    // A block lies in one panel.
    const PANEL_STEPS: usize = PANEL_ROW / (2 * CHUNK as usize);
    let step = block * C::Values::STEPS;
    let place = from.skip_bytes((step / PANEL_STEPS * C::Q_PANEL) as u32).place_a(warp, row);
    let mut rounded = [[[warp.splat(0); 4]; M]; STEPS];
    for k in 0..C::Values::STEPS {
        for m in 0..M {
            // SAFETY: the caller's.
            rounded[k][m] = unsafe { place.load_a(warp, m, 2 * (step % PANEL_STEPS + k)) };
        }
    }
    rounded
}

/// `O += P V` over a block of keys, on some column tiles of O; V's place is at their first column.
/// Where V's blocks have scales, each is summed by itself and multiplied with its factor.
///
/// # Safety
/// The tile of V lies in shared memory and has arrived.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn add_values<W: Warp, C: Config, const M: usize, const O: usize>(
    warp: W,
    output: &mut Accumulator<W, M, O>,
    rounded: &Block<W, C, M>,
    block: usize,
    values: <C::Values as Values>::Place<W>,
    factors: &ByBlock<W::F32>,
    tiles: Range<usize>,
) {
    let factor = if C::Values::BLOCK_SCALES { factors[block] } else { warp.splat_f32(1.0) };
    for n in 0..(tiles.end - tiles.start) / 2 {
        let mut sums = [[C::Values::begin(warp, [warp.splat_f32(0.0); 4]); 2]; M];
        for m in 0..M {
            for i in 0..2 {
                sums[m][i] = C::Values::begin(warp, output.tiles[m][tiles.start + 2 * n + i]);
            }
        }
        for k in 0..C::Values::STEPS {
            // SAFETY: the caller's.
            let b = unsafe { C::Values::load(warp, values, block * C::Values::STEPS + k, n) };
            for m in 0..M {
                C::Values::add(warp, &mut sums[m], rounded[k][m], b);
            }
        }
        for m in 0..M {
            for i in 0..2 {
                let tile = &mut output.tiles[m][tiles.start + 2 * n + i];
                *tile = C::Values::end(warp, sums[m][i], factor, *tile);
            }
        }
    }
}
