//! Panels of K and V by `cp.async`, each step's as a group.

use cuda_std::Warp;

use super::ring::Panels;
use super::stream::Stream;
use crate::config::{PANEL_ROW, SplitD};
use crate::schedule::Work;
use crate::tile::{Operands, SharedTile};

/// The copies of one CTA's panels, made by all of its threads.
pub struct StreamPanels<W: Warp, C> {
    warp: W,
    k: Stream<W, C>,
    v: Stream<W, C>,
}

impl<W: Warp, C: SplitD> Panels<W, C> for StreamPanels<W, C> {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn start(warp: W, operands: &Operands, _work: &Work, _address: u64) -> Self {
        let stream = |matrix| Stream::new(warp, matrix, PANEL_ROW);
        let q = stream(operands.q);
        for panel in 0..C::PANELS {
            // SAFETY: the caller's.
            unsafe { q.copy(C::ROWS, panel, SharedTile::rows(warp, panel * C::Q_PANEL, PANEL_ROW)) };
        }
        StreamPanels { warp, k: stream(operands.k), v: stream(operands.v) }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn await_query(&self) {}

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn fill(&mut self, which: usize, step: usize, slot: SharedTile, _offset: u32) {
        let stream = if which == 0 { &self.k } else { &self.v };
        for i in 0..C::STEP_PANELS {
            let Some(panel) = C::panel(step, i) else { continue };
            let to = slot.skip_bytes((i * C::KV_PANEL) as u32);
            // SAFETY: the caller's, and start's.
            unsafe { stream.copy(C::KEYS, panel, to) };
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn commit(&self) {
        self.warp.cp_async_commit_group();
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn advance(&mut self, which: usize) {
        let stream = if which == 0 { &mut self.k } else { &mut self.v };
        stream.advance(C::KEYS);
    }

    /// All groups but the latest `SLOTS - 2`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn wait(&mut self, _offset: u32) {
        match C::SLOTS {
            2 => self.warp.cp_async_wait_group::<0>(),
            3 => self.warp.cp_async_wait_group::<1>(),
            4 => self.warp.cp_async_wait_group::<2>(),
            _ => self.warp.cp_async_wait_group::<3>(),
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn drain(&self) {
        self.warp.cp_async_wait_group::<0>();
    }
}
