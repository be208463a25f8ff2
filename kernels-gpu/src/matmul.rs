//! The two products of attention on a warp's tiles.

use cuda_std::Warp;

use crate::config::Config;
use crate::format::Format;
use crate::tile::{Accumulator, Place};

/// A warp's rows of Q as A operands: `M` row tiles, `K` steps of 16 along the head dim.
pub struct Query<W: Warp, C, const M: usize, const K: usize> {
    place: Place<W, C>,
    /// All fragments, if they stay in registers.
    fragments: Option<[[[W::U32; 4]; M]; K]>,
}

impl<W: Warp, C: Config, const M: usize, const K: usize> Query<W, C, M, K> {
    /// Fragments are read from shared memory each time.
    #[inline(always)]
    pub fn in_shared(place: Place<W, C>) -> Self {
        Query { place, fragments: None }
    }

    /// Reads all fragments now.
    ///
    /// # Safety
    /// The tile lies in shared memory and has arrived.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load(&mut self, warp: W) {
        let mut fragments = [[[warp.splat(0); 4]; M]; K];
        for k in 0..K {
            for m in 0..M {
                // SAFETY: the caller's.
                fragments[k][m] = unsafe { self.place.load_a(warp, m, k) };
            }
        }
        self.fragments = Some(fragments);
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn fragment(&self, warp: W, m: usize, k: usize) -> [W::U32; 4] {
        match &self.fragments {
            Some(fragments) => fragments[k][m],
            // SAFETY: the caller's.
            None => unsafe { self.place.load_a(warp, m, k) },
        }
    }
}

/// `S = Q K^T` on one tile of `8 N` keys.
///
/// # Safety
/// Both tiles lie in shared memory and have arrived.
#[inline(always)]
#[track_caller]
pub unsafe fn scores<W: Warp, C: Config, const M: usize, const N: usize, const K: usize>(
    warp: W,
    query: &Query<W, C, M, K>,
    keys: Place<W, C>,
) -> Accumulator<W, M, N> {
    let mut scores = Accumulator::zero(warp);
    for k in 0..K {
        let mut a = [[warp.splat(0); 4]; M];
        for m in 0..M {
            // SAFETY: the caller's.
            a[m] = unsafe { query.fragment(warp, m, k) };
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
    scores
}

/// `O += P V` on one tile of `8 N` keys, P rounded to the input format.
///
/// P never leaves the registers: the accumulators of two neighbouring 16x8 tiles are, pair by pair, the A operand of the
/// next product (FlashAttention-2, section 3).
///
/// # Safety
/// The tile of V lies in shared memory and has arrived.
#[inline(always)]
#[track_caller]
pub unsafe fn accumulate<W: Warp, C: Config, const M: usize, const N: usize, const O: usize>(
    warp: W,
    probabilities: &Accumulator<W, M, N>,
    values: Place<W, C>,
    output: &mut Accumulator<W, M, O>,
) {
    for k in 0..N / 2 {
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
        for n in 0..O / 2 {
            // SAFETY: the caller's.
            let b = unsafe { values.load_b_transposed(warp, k, n) };
            for m in 0..M {
                C::Format::mma(warp, &mut output.tiles[m][2 * n], a[m], b[0]);
                C::Format::mma(warp, &mut output.tiles[m][2 * n + 1], a[m], b[1]);
            }
        }
    }
}
