//! Tiles in the registers of a warp.

use cuda_std::Warp;
use cuda_std::fragment::{ROW_BUTTERFLY, m16n8k16};

/// The accumulators of `M` x `N` MMA tiles: `16 M` rows, `8 N` columns. Each lane holds two rows of each 16.
#[derive(Clone, Copy)]
pub struct Accumulator<W: Warp, const M: usize, const N: usize> {
    /// `[row tile][column tile][register]`, the registers as in [`m16n8k16::accumulator`].
    pub tiles: [[[W::F32; 4]; N]; M],
}

/// A value per row of an accumulator: `[row tile][upper or lower 8 rows]`.
pub type Rows<T, const M: usize> = [[T; 2]; M];

impl<W: Warp, const M: usize, const N: usize> Accumulator<W, M, N> {
    /// All zeros.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn zero(warp: W) -> Self {
        Accumulator { tiles: [[[warp.splat_f32(0.0); 4]; N]; M] }
    }

    /// Multiplies every element with one uniform factor.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn scale(&mut self, factor: f32) {
        for element in self.tiles.as_flattened_mut().as_flattened_mut() {
            *element = *element * factor;
        }
    }

    /// Multiplies each row with its factor.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn scale_rows(&mut self, factors: &Rows<W::F32, M>) {
        for m in 0..M {
            for n in 0..N {
                for r in 0..4 {
                    self.tiles[m][n][r] = self.tiles[m][n][r] * factors[m][r / 2];
                }
            }
        }
    }

    /// The row, within the warp's rows, of the elements in `[m][half]` of a [`Rows`].
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn row(warp: W, m: usize, half: usize) -> W::U32 {
        m16n8k16::accumulator(warp.lane_id(), 2 * half as u32).0 + (m * m16n8k16::M) as u32
    }

    /// The column of the elements in register `r` of column tile `n`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn column(warp: W, n: usize, r: usize) -> W::U32 {
        m16n8k16::accumulator(warp.lane_id(), r as u32).1 + (n * m16n8k16::N) as u32
    }
}

/// Combines a per-lane value over the four lanes that share a row.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn reduce_row<W: Warp>(warp: W, value: W::F32, combine: impl Fn(W::F32, W::F32) -> W::F32) -> W::F32 {
    let half = combine(value, warp.shuffle_xor(value, ROW_BUTTERFLY[0]));
    combine(half, warp.shuffle_xor(half, ROW_BUTTERFLY[1]))
}
