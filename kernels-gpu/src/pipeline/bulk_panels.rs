//! Panels of K and V by bulk copies; an mbarrier for each slot says that its panels are there.

use core::marker::PhantomData;

use cuda_std::Warp;

use super::ring::Panels;
use crate::abi::Params;
use crate::config::{PANEL, SplitD};
use crate::schedule::Work;
use crate::tile::{Operands, SharedTile};

/// Bulk copies of one CTA's panels, started by its first warp.
pub struct BulkPanels<W: Warp, C> {
    warp: W,
    address: u64,
    /// Batch entry, key/value head, and first key of the tile that K, or V, is filled from next.
    batch: u32,
    kv_head: u32,
    keys: [u32; 2],
    /// Parity of the phase that the next slot's panels arrive in, by the slot that is handed out.
    parity: u32,
    plan: PhantomData<C>,
}

impl<W: Warp, C: SplitD> Panels<W, C> for BulkPanels<W, C> {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn start(warp: W, _operands: &Operands, work: &Work, address: u64) -> Self {
        if warp.warp_id() == 0 {
            // SAFETY: the mbarriers lie where the plan has room for them.
            unsafe {
                for i in 0..=C::SLOTS {
                    warp.mbarrier_init(Self::barrier(warp, i), 1);
                }
            }
            warp.fence_barrier_init();
        }
        warp.sync_threads();
        if warp.warp_id() == 0 {
            let query = Self::barrier(warp, 0);
            // SAFETY: the caller's.
            unsafe {
                warp.mbarrier_arrive_expect(query, (C::PANELS * C::Q_PANEL) as u32);
                for panel in 0..C::PANELS {
                    let to = warp.shared_base() + (panel * C::Q_PANEL) as u32;
                    let place = [(panel * PANEL) as u32, work.row, work.head, work.batch];
                    warp.copy_tensor(to, address + Params::Q_MAP, place, query);
                }
            }
        }
        let (batch, kv_head, keys) = (work.batch, work.kv_head, [work.first_key; 2]);
        BulkPanels { warp, address, batch, kv_head, keys, parity: 0, plan: PhantomData }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn await_query(&self) {
        // SAFETY: start made it.
        unsafe { self.warp.mbarrier_wait(Self::barrier(self.warp, 0), 0) };
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn wait(&mut self, offset: u32) {
        // SAFETY: start made it.
        unsafe { self.warp.mbarrier_wait(self.slot_barrier(offset), self.parity) };
        if offset == ((C::SLOTS - 1) * C::SLOT) as u32 {
            self.parity ^= 1;
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn fill(&mut self, which: usize, step: usize, slot: SharedTile, offset: u32) {
        if self.warp.warp_id() != 0 {
            return;
        }
        let (full, map) = (self.slot_barrier(offset), [Params::K_MAP, Params::V_MAP][which]);
        let panels = C::STEP_PANELS.min(C::PANELS - step * C::STEP_PANELS);
        // SAFETY: the caller's, and start's.
        unsafe {
            self.warp.mbarrier_arrive_expect(full, (panels * C::KV_PANEL) as u32);
            for i in 0..C::STEP_PANELS {
                let Some(panel) = C::panel(step, i) else { continue };
                let place = [(panel * PANEL) as u32, self.keys[which], self.kv_head, self.batch];
                let to = slot.skip_bytes((i * C::KV_PANEL) as u32).base();
                self.warp.copy_tensor(to, self.address + map, place, full);
            }
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn advance(&mut self, which: usize) {
        self.keys[which] += C::KEYS as u32;
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn commit(&self) {}

    /// Nothing is in flight: no step beyond the last is filled.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn drain(&self) {}
}

impl<W: Warp, C: SplitD> BulkPanels<W, C> {
    /// The mbarrier of Q, or, from 1 on, of a slot.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn barrier(warp: W, number: usize) -> u32 {
        warp.shared_base() + (C::MBARRIERS_OFFSET + 8 * number) as u32
    }

    /// The mbarrier of the slot at a byte offset from the first.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn slot_barrier(&self, offset: u32) -> u32 {
        Self::barrier(self.warp, 1) + offset / C::SLOT as u32 * 8
    }
}
