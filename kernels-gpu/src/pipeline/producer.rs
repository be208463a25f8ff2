//! The warp that starts the bulk copies of whole tiles.

use cuda_std::Warp;

use super::tensor_tiles::{Barriers, FREE, Turn};
use crate::abi::Params;
use crate::config::{PANEL, PANEL_ROW, TensorPersistD};
use crate::schedule::Work;

/// Makes the CTA's mbarriers. All warps call it; at its end they may use them.
///
/// # Safety
/// Shared memory is as large as the plan of `C` says.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn make_barriers<W: Warp, C: TensorPersistD>(warp: W) {
    let barriers = Barriers::<C>::new(warp);
    if warp.warp_id() == 0 {
        // SAFETY: the mbarriers lie where the plan has room for them.
        unsafe {
            warp.mbarrier_init(barriers.query(), 1);
            for slot in 0..2 * C::STAGES as u32 {
                warp.mbarrier_init(barriers.keys(slot), 1);
                warp.mbarrier_init(barriers.keys(slot) + FREE, C::WARPS as u32);
            }
        }
        warp.fence_barrier_init();
    }
    warp.sync_threads();
}

/// Brings Q, and every tile of K and V that is to be visited as soon as its slot is free.
///
/// # Safety
/// `address` is that of the parameters, whose tensor maps are made, and the mbarriers have been made.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn produce<W: Warp, C: TensorPersistD>(warp: W, work: &Work, address: u64) {
    let (barriers, base) = (Barriers::<C>::new(warp), warp.shared_base());
    // SAFETY: the caller's, here and below; a slot is written to when it is free.
    let copy = |map: u64, rows: usize, to: u32, full: u32, row: u32, head: u32| unsafe {
        warp.mbarrier_arrive_expect(full, (rows * C::D * 2) as u32);
        for panel in 0..C::D / PANEL {
            let column = (panel * PANEL) as u32;
            let place = to + (panel * rows * PANEL_ROW) as u32;
            warp.copy_tensor(place, address + map, [column, row, head, work.batch], full);
        }
    };
    copy(Params::Q_MAP, C::ROWS, base, barriers.query(), work.row, work.head);
    let (mut turn, mut key) = (Turn::FIRST, work.first_key);
    while key < work.keys {
        let slot = turn.stage * C::KV_BYTES as u32;
        let (keys, values) = (barriers.keys(turn.stage), barriers.values(turn.stage));
        // SAFETY: see above. Slots are free at first, as if a phase of parity 1 had ended.
        unsafe { warp.mbarrier_wait(keys + FREE, turn.parity ^ 1) };
        copy(Params::K_MAP, C::KEYS, base + C::K_OFFSET as u32 + slot, keys, key, work.kv_head);
        // SAFETY: see above.
        unsafe { warp.mbarrier_wait(values + FREE, turn.parity ^ 1) };
        copy(Params::V_MAP, C::KEYS, base + C::V_OFFSET as u32 + slot, values, key, work.kv_head);
        turn.advance(C::STAGES);
        key += C::KEYS as u32;
    }
}
