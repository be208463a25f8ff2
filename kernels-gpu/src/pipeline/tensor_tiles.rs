//! Whole tiles of K and V that a producer's bulk copies bring, as the warps that compute see them.

use core::marker::PhantomData;

use cuda_std::Warp;

use super::KeyTiles;
use crate::config::TensorPersistD;
use crate::tile::SharedTile;

/// What the mbarriers of a CTA are for, and where each lies.
pub struct Barriers<C>(u32, PhantomData<C>);

impl<C: TensorPersistD> Barriers<C> {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn new<W: Warp>(warp: W) -> Self {
        Barriers(warp.shared_base() + C::BARRIERS_OFFSET as u32, PhantomData)
    }

    /// The query tile has arrived.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn query(&self) -> u32 {
        self.0
    }

    /// A tile of K has arrived in its slot; the next mbarrier says that the slot is free.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn keys(&self, stage: u32) -> u32 {
        self.0 + 8 + 16 * stage
    }

    /// The same of V.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn values(&self, stage: u32) -> u32 {
        self.keys(C::STAGES as u32 + stage)
    }
}

/// From an mbarrier that says a slot is full to the one that says it is free.
pub const FREE: u32 = 8;

/// A slot, and the parity of the phase in which its tile arrives.
#[derive(Clone, Copy)]
pub struct Turn {
    pub stage: u32,
    pub parity: u32,
}

impl Turn {
    pub const FIRST: Turn = Turn { stage: 0, parity: 0 };

    /// The next of `stages` slots.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn advance(&mut self, stages: usize) {
        self.stage += 1;
        if self.stage == stages as u32 {
            *self = Turn { stage: 0, parity: self.parity ^ 1 };
        }
    }
}

/// The tiles of K and V of one CTA's work.
pub struct TensorTiles<W: Warp, C> {
    warp: W,
    turn: Turn,
    plan: PhantomData<C>,
}

impl<W: Warp, C: TensorPersistD> TensorTiles<W, C> {
    /// Waits for the query tile.
    ///
    /// # Safety
    /// The mbarriers have been made, and a producer does its part.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn start(warp: W) -> Self {
        // SAFETY: here and below, the mbarriers have been made.
        unsafe { warp.mbarrier_wait(Barriers::<C>::new(warp).query(), 0) };
        TensorTiles { warp, turn: Turn::FIRST, plan: PhantomData }
    }

    /// The tile of keys in the slot whose turn it is, of those that begin at `offset`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn tile(&self, offset: usize) -> SharedTile<C> {
        let slot = offset as u32 + self.turn.stage * C::KV_BYTES as u32;
        SharedTile::panels(self.warp, slot, C::KEYS)
    }
}

impl<W: Warp, C: TensorPersistD> KeyTiles<W, C> for TensorTiles<W, C> {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn query(&self) -> SharedTile<C> {
        SharedTile::panels(self.warp, 0, C::ROWS)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn keys(&mut self, _key: u32) -> SharedTile<C> {
        let full = Barriers::<C>::new(self.warp).keys(self.turn.stage);
        // SAFETY: see start.
        unsafe { self.warp.mbarrier_wait(full, self.turn.parity) };
        self.tile(C::K_OFFSET)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn release_keys(&mut self, _key: u32) {
        let full = Barriers::<C>::new(self.warp).keys(self.turn.stage);
        // SAFETY: see start.
        unsafe { self.warp.mbarrier_arrive(full + FREE) };
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn values(&mut self) -> SharedTile<C> {
        let full = Barriers::<C>::new(self.warp).values(self.turn.stage);
        // SAFETY: see start.
        unsafe { self.warp.mbarrier_wait(full, self.turn.parity) };
        self.tile(C::V_OFFSET)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn release_values(&mut self) {
        let full = Barriers::<C>::new(self.warp).values(self.turn.stage);
        // SAFETY: see start.
        unsafe { self.warp.mbarrier_arrive(full + FREE) };
        self.turn.advance(C::STAGES);
    }

    /// Nothing is in flight: the producer asks for no tile that is not visited.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn finish(self) {}
}
