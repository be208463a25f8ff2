//! Row statistics that warps side by side have of the same rows, brought together through shared memory.

use core::marker::PhantomData;

use cuda_std::Warp;
use cuda_std::fragment::m16n8k16;

use super::{Accumulator, Rows};
use crate::config::SplitD;

/// A float per row of the CTA's tile for each warp along the keys.
pub struct Statistics<W, C> {
    warp: W,
    /// This warp's first row, and its place along the keys.
    row: u32,
    key_warp: u32,
    plan: PhantomData<C>,
}

impl<W: Warp, C: SplitD> Statistics<W, C> {
    /// For the warp whose rows begin at `row` and which stands at `key_warp` along the keys.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn new(warp: W, row: u32, key_warp: u32) -> Self {
        Statistics { warp, row, key_warp, plan: PhantomData }
    }

    /// Combines every warp's values of the same rows. All warps of the CTA must call it together, and it may be called
    /// again only after another barrier.
    ///
    /// # Safety
    /// Shared memory is as large as the plan of `C` says.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn combine<const M: usize>(
        &self,
        values: &Rows<W::F32, M>,
        combine: impl Fn(W::F32, W::F32) -> W::F32,
    ) -> Rows<W::F32, M> {
        let warp = self.warp;
        let (_, column) = m16n8k16::accumulator(warp.lane_id(), 0);
        let first_lane = warp.less(column, warp.splat(1));
        for m in 0..M {
            for half in 0..2 {
                // SAFETY: the caller's; each word has one writer.
                unsafe {
                    warp.store_shared_f32(self.address(m, half, self.key_warp), values[m][half], first_lane)
                };
            }
        }
        warp.sync_threads();
        let mut all = *values;
        for m in 0..M {
            for half in 0..2 {
                for key_warp in 0..C::KEY_WARPS as u32 {
                    // SAFETY: the caller's.
                    let value = unsafe { warp.load_shared_f32(self.address(m, half, key_warp)) };
                    all[m][half] = if key_warp == 0 { value } else { combine(all[m][half], value) };
                }
            }
        }
        all
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn address(&self, m: usize, half: usize, key_warp: u32) -> W::U32 {
        let row = Accumulator::<W, 1, 1>::row(self.warp, m, half) + (self.row + key_warp * C::ROWS as u32);
        row * 4 + (self.warp.shared_base() + C::STATISTICS_OFFSET as u32)
    }
}
