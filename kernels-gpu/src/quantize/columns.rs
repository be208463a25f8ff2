//! Numbers of each column, that all rows of a CTA are brought to bytes with: a thread makes those of some columns, and all find
//! them in shared memory.

use cuda_std::Warp;

use super::rows::{Cta, WARPS};
use super::{COLUMNS, Eight, columns_of};
use crate::abi::Columns;
use crate::format::Element;

/// Where `S` numbers of each column are in shared memory.
#[derive(Clone, Copy)]
pub(super) struct SharedColumns<const S: usize>(u32);

/// Columns that are made at a time: one a thread.
const AT_A_TIME: usize = 32 * WARPS;

/// Chunks of rows whose statistics are in flight together. After the first, three times this are all.
const IN_FLIGHT: usize = 5;

impl<W: Warp, E: Element, const LANES: usize, const PIECES: usize, const PASSES: usize, const ROTATED: bool>
    Cta<'_, W, E, LANES, PIECES, PASSES, ROTATED>
{
    /// Columns that the kernel is made for.
    const WIDTH: usize = COLUMNS * LANES * PIECES;

    /// `S` numbers of each column in shared memory: `of` makes those of a column, if it exists. Has a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub(super) unsafe fn share_columns<const S: usize>(
        &self,
        base: u32,
        of: impl Fn(W::U32, W::Bool) -> [W::F32; S],
    ) -> SharedColumns<S> {
        let warp = self.warp;
        let zero = warp.splat_f32(0.0);
        for turn in 0..Self::WIDTH.div_ceil(AT_A_TIME) as u32 {
            let column = warp.lane_id() + (32 * warp.warp_id() + turn * AT_A_TIME as u32);
            let exists = warp.less(column, warp.splat(self.params.head_dim));
            let numbers = of(column, exists);
            let fits = warp.less(column, warp.splat(Self::WIDTH as u32));
            for s in 0..S {
                let place = column * 4 + (base + (4 * Self::WIDTH * s) as u32);
                // SAFETY: a float for each number of each column fits.
                unsafe { warp.store_shared_f32(place, warp.select_f32(exists, numbers[s], zero), fits) };
            }
        }
        warp.sync_threads();
        SharedColumns(base)
    }

    /// Those of this lane's columns, by piece.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub(super) unsafe fn own_columns<const S: usize>(
        &self,
        shared: SharedColumns<S>,
    ) -> [[Eight<W>; PIECES]; S] {
        let mut all = [[[self.warp.splat_f32(0.0); COLUMNS]; PIECES]; S];
        for s in 0..S {
            for piece in 0..PIECES {
                let first = self.chunk(piece) * COLUMNS as u32;
                // SAFETY: the caller's.
                let [[a, b, c, d], [e, f, g, h]] =
                    unsafe { [0, 4].map(|behind| self.four_columns(shared, s, first + behind)) };
                all[s][piece] = [a, b, c, d, e, f, g, h];
            }
        }
        all
    }

    /// The `s`th number of four columns, from one on whose number is a multiple of four.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub(super) unsafe fn four_columns<const S: usize>(
        &self,
        SharedColumns(base): SharedColumns<S>,
        s: usize,
        column: W::U32,
    ) -> [W::F32; 4] {
        let warp = self.warp;
        let place = column * 4 + (base + (4 * Self::WIDTH * s) as u32);
        // SAFETY: the caller's.
        unsafe { warp.load_shared_x4(place) }.map(|word| warp.float_from_bits(word))
    }

    /// A column's statistic over all chunks of rows, one after the other.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub(super) unsafe fn of_all_chunks(
        &self,
        which: Columns,
        head: u32,
        column: W::U32,
        exists: W::Bool,
        add: impl Fn(W::F32, W::F32) -> W::F32,
    ) -> W::F32 {
        let (warp, params) = (self.warp, self.params);
        let bytes = params.head_dim as u64 * 4;
        let mut next = warp.mul_wide(column, 4) + columns_of(params, which, head as u64);
        // SAFETY: the caller's; what does not exist is not read.
        let load = |place, exists| warp.float_from_bits(unsafe { warp.load_global::<4>(place, exists) });
        let mut all = load(next, exists);
        let mut done = 1;
        while done < params.chunks {
            let mut of_chunks = [all; IN_FLIGHT];
            for i in 0..IN_FLIGHT {
                next = next + bytes;
                let exists = exists & warp.less(warp.splat(done + i as u32), warp.splat(params.chunks));
                of_chunks[i] = load(next, exists);
            }
            for i in 0..IN_FLIGHT {
                let counts = warp.less(warp.splat(done + i as u32), warp.splat(params.chunks));
                all = warp.select_f32(counts, add(all, of_chunks[i]), all);
            }
            done += IN_FLIGHT as u32;
        }
        all
    }

    /// The mean of a column, from its sum.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub(super) unsafe fn mean(&self, which: Columns, head: u32, column: W::U32, exists: W::Bool) -> W::F32 {
        // SAFETY: the caller's.
        let sum = unsafe { self.of_all_chunks(which, head, column, exists, |a, b| a + b) };
        self.warp.divide(sum, self.warp.splat_f32(self.params.k.rows as f32))
    }
}
