//! Panels of K and V in one ring of slots, for split-D.
//!
//! For each tile of keys the panels of K come in order, then those of V, `STEP_PANELS` at a time. A step waits for its
//! panels, meets the other warps, starts the copies for `SLOTS - 1` steps ahead into the slot that the step before has
//! freed, and hands out its own. One barrier a step.

use cuda_std::Warp;

use crate::config::{PANEL_ROW, SplitD};
use crate::schedule::Work;
use crate::tile::{Operands, SharedTile};

/// How panels come.
pub trait Panels<W: Warp, C: SplitD>: Sized {
    /// Starts the copies of Q.
    ///
    /// # Safety
    /// The operands are live as long as this is, `address` is that of the parameters, whose tensor maps are made if bulk copies
    /// are used, and shared memory is as large as the plan of `C` says.
    #[track_caller]
    unsafe fn start(warp: W, operands: &Operands, work: &Work, address: u64) -> Self;

    /// Q arrives with the first step, or is there now.
    #[track_caller]
    fn await_query(&self);

    /// Starts the copies of step `step` of K (`which` 0) or V (1) to a slot, at `offset` bytes from the first.
    ///
    /// # Safety
    /// Every warp is done with the slot.
    #[track_caller]
    unsafe fn fill(&mut self, which: usize, step: usize, slot: SharedTile, offset: u32);

    /// What was started for a step, perhaps nothing, is complete.
    fn commit(&self);

    /// K or V goes on to the next tile.
    fn advance(&mut self, which: usize);

    /// Waits for the oldest step in flight, in the slot at `offset` bytes from the first.
    #[track_caller]
    fn wait(&mut self, offset: u32);

    /// Waits for what nobody waited for.
    fn drain(&self);
}

/// The panels of K and V of one CTA's work.
pub struct Ring<W: Warp, P> {
    warp: W,
    panels: P,
    /// Keys that no copy has been started for, by the panels of K and of V.
    keys: [u32; 2],
    /// Byte offset of the slot that is filled next.
    filling: u32,
    /// Byte offset of the slot that is handed out next.
    reading: u32,
}

impl<W: Warp, P> Ring<W, P> {
    /// Starts the copies of Q and of the first panels.
    ///
    /// # Safety
    /// As [`Panels::start`].
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn start<C: SplitD>(warp: W, operands: &Operands, work: &Work, address: u64) -> Self
    where
        P: Panels<W, C>,
    {
        const { assert!(C::SLOTS >= 2 && C::SLOTS <= 5 && C::SLOTS <= 2 * C::STEPS) };
        // SAFETY: the caller's.
        let panels = unsafe { P::start(warp, operands, work, address) };
        let keys = work.keys.saturating_sub(work.first_key);
        let mut ring = Ring { warp, panels, keys: [keys; 2], filling: 0, reading: 0 };
        for step in 0..C::SLOTS - 1 {
            ring.fill::<C>(step);
        }
        ring.panels.await_query();
        ring
    }

    /// The panels of step `step`, arrived, one behind the other: of K below `STEPS`, of V from there on.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub fn step<C: SplitD>(&mut self, step: usize) -> SharedTile
    where
        P: Panels<W, C>,
    {
        self.panels.wait(self.reading);
        self.warp.sync_threads();
        self.turn(step)
    }

    /// As [`Ring::step`]; says whether `predicate` holds in any thread of the CTA.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub fn step_or<C: SplitD>(&mut self, step: usize, predicate: W::Bool) -> (SharedTile, bool)
    where
        P: Panels<W, C>,
    {
        self.panels.wait(self.reading);
        let any = self.warp.sync_threads_or(predicate);
        (self.turn(step), any)
    }

    /// Fills the slot that the step before has freed, and hands out this step's.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn turn<C: SplitD>(&mut self, step: usize) -> SharedTile
    where
        P: Panels<W, C>,
    {
        self.fill::<C>((step + C::SLOTS - 1) % (2 * C::STEPS));
        let tile = slots::<W, C>(self.warp).skip_bytes(self.reading);
        self.reading = next_slot::<C>(self.reading);
        tile
    }

    /// Starts the copies for the next step, number `step` of its tile; none beyond the last tile.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn fill<C: SplitD>(&mut self, step: usize)
    where
        P: Panels<W, C>,
    {
        let (which, step) = (step / C::STEPS, step % C::STEPS);
        if self.keys[which] > 0 {
            let slot = slots::<W, C>(self.warp).skip_bytes(self.filling);
            // SAFETY: every warp is done with the slot.
            unsafe { self.panels.fill(which, step, slot, self.filling) };
        }
        if step == C::STEPS - 1 {
            self.panels.advance(which);
            self.keys[which] = self.keys[which].saturating_sub(C::KEYS as u32);
        }
        self.panels.commit();
        self.filling = next_slot::<C>(self.filling);
    }

    /// No more steps. Now all of shared memory is free.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub fn finish<C: SplitD>(self)
    where
        P: Panels<W, C>,
    {
        self.panels.drain();
        self.warp.sync_threads();
    }
}

/// The first slot.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn slots<W: Warp, C: SplitD>(warp: W) -> SharedTile {
    SharedTile::rows(warp, C::SLOTS_OFFSET, PANEL_ROW)
}

#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn next_slot<C: SplitD>(offset: u32) -> u32 {
    let next = offset + C::SLOT as u32;
    if next == (C::SLOTS * C::SLOT) as u32 { 0 } else { next }
}
