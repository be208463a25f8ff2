//! Panels of K and V in one ring of slots, for split-D.
//!
//! For each tile of keys the panels of K come in order, then those of V, `STEP_PANELS` at a time. A step waits for its
//! panels, meets the other warps, starts the copies for `SLOTS - 1` steps ahead into the slot that the step before has
//! freed, and hands out its own. One barrier a step.

use cuda_std::Warp;

use super::stream::Stream;
use crate::config::SplitD;
use crate::tile::{GlobalTile, SharedTile};

/// The panels of K and V of one CTA's work.
pub struct Ring<W: Warp, C> {
    warp: W,
    k: Stream<W, C>,
    v: Stream<W, C>,
    /// Keys that no copy has been started for, by the panels of K and of V.
    keys: [u32; 2],
    /// Byte offset of the slot that is filled next.
    filling: u32,
    /// Byte offset of the slot that is handed out next.
    reading: u32,
}

impl<W: Warp, C: SplitD> Ring<W, C> {
    /// Starts the copies of Q and of the first panels. The first `keys` rows of `k` and `v` will be visited.
    ///
    /// # Safety
    /// The global tiles are live as long as the ring is, and shared memory is as large as the plan of `C` says.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn start(warp: W, q: GlobalTile, k: GlobalTile, v: GlobalTile, keys: u32) -> Self {
        const { assert!(C::SLOTS >= 2 && C::SLOTS <= 5 && C::SLOTS <= 2 * C::STEPS) };
        let (k, v) = (Stream::new(warp, k), Stream::new(warp, v));
        let mut ring = Ring { warp, k, v, keys: [keys; 2], filling: 0, reading: 0 };
        let q = Stream::<W, C>::new(warp, q);
        for panel in 0..C::PANELS {
            // SAFETY: the caller's.
            unsafe { q.copy(C::ROWS, panel, SharedTile::at(warp, (panel * C::Q_PANEL) as u32)) };
        }
        for step in 0..C::SLOTS - 1 {
            ring.fill(step);
        }
        ring
    }

    /// The panels of step `step`, arrived, one behind the other: of K below `STEPS`, of V from there on.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub fn step(&mut self, step: usize) -> SharedTile<C> {
        self.wait();
        self.warp.sync_threads();
        self.turn(step)
    }

    /// As [`Ring::step`]; says whether `predicate` holds in any thread of the CTA.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub fn step_or(&mut self, step: usize, predicate: W::Bool) -> (SharedTile<C>, bool) {
        self.wait();
        let any = self.warp.sync_threads_or(predicate);
        (self.turn(step), any)
    }

    /// Waits for the oldest step in flight: all groups but the latest `SLOTS - 2`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn wait(&self) {
        match C::SLOTS {
            2 => self.warp.cp_async_wait_group::<0>(),
            3 => self.warp.cp_async_wait_group::<1>(),
            4 => self.warp.cp_async_wait_group::<2>(),
            _ => self.warp.cp_async_wait_group::<3>(),
        }
    }

    /// Fills the slot that the step before has freed, and hands out this step's.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn turn(&mut self, step: usize) -> SharedTile<C> {
        self.fill((step + C::SLOTS - 1) % (2 * C::STEPS));
        let tile = SharedTile::at(self.warp, C::SLOTS_OFFSET as u32 + self.reading);
        self.reading = Self::next_slot(self.reading);
        tile
    }

    /// Starts the copies for the next step, number `step` of its tile; the group is empty beyond the last tile.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn fill(&mut self, step: usize) {
        let (which, step) = (step / C::STEPS, step % C::STEPS);
        let stream = if which == 0 { &mut self.k } else { &mut self.v };
        if self.keys[which] > 0 {
            let slot = SharedTile::at(self.warp, C::SLOTS_OFFSET as u32 + self.filling);
            for i in 0..C::STEP_PANELS {
                let Some(panel) = C::panel(step, i) else { continue };
                let to = slot.skip_bytes((i * C::KV_PANEL) as u32);
                // SAFETY: start's; every warp is done with the slot.
                unsafe { stream.copy(C::KEYS, panel, to) };
            }
        }
        if step == C::STEPS - 1 {
            stream.advance(C::KEYS);
            self.keys[which] = self.keys[which].saturating_sub(C::KEYS as u32);
        }
        self.warp.cp_async_commit_group();
        self.filling = Self::next_slot(self.filling);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn next_slot(offset: u32) -> u32 {
        let next = offset + C::SLOT as u32;
        if next == (C::SLOTS * C::SLOT) as u32 { 0 } else { next }
    }

    /// Waits for the copies that nobody waited for, those of a CTA without keys. Now all of shared memory is free.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub fn finish(self) {
        self.warp.cp_async_wait_group::<0>();
        self.warp.sync_threads();
    }
}
