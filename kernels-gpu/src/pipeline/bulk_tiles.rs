//! Whole tiles of K and V by bulk copies.
//!
//! Each slot has two mbarriers: one says that its tile has arrived, the other that every warp has read it. So warps wait for
//! tiles and never for each other, but for the one that starts the copies. That is a warp that does nothing else, or, where
//! registers are too dear for one, the first that computes: it fills a slot again when it has read it itself.

use core::marker::PhantomData;

use cuda_std::Warp;

use super::KeyTiles;
use crate::abi::Params;
use crate::config::{BulkPersistD, PANEL, PANEL_ROW, Shape};
use crate::schedule::Work;
use crate::tile::SharedTile;

/// From an mbarrier that says a slot is full to the one that says it is free.
const FREE: u32 = 8;

/// A matrix on its way through its slots.
#[derive(Clone, Copy)]
enum Matrix {
    K,
    V,
}

/// A slot, and the parity of the phase in which its tile arrives.
#[derive(Clone, Copy)]
struct Turn {
    stage: u32,
    parity: u32,
}

impl Turn {
    const FIRST: Turn = Turn { stage: 0, parity: 0 };

    /// The next of `stages` slots.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn advance(&mut self, stages: usize) {
        self.stage += 1;
        if self.stage == stages as u32 {
            *self = Turn { stage: 0, parity: self.parity ^ 1 };
        }
    }
}

/// The tiles of K and V of one CTA's work.
pub struct BulkTiles<W: Warp, C> {
    warp: W,
    /// Address of the parameters.
    address: u64,
    batch: u32,
    kv_head: u32,
    /// Keys to visit.
    keys: u32,
    turn: Turn,
    plan: PhantomData<C>,
}

impl<W: Warp, C: BulkPersistD> BulkTiles<W, C> {
    /// Makes the CTA's mbarriers. All warps call it; at its end they may use them.
    ///
    /// # Safety
    /// Shared memory is as large as the plan of `C` says, the work's tensors are live, and `address` is that of the parameters,
    /// whose tensor maps are made.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn new(warp: W, work: &Work, address: u64) -> Self {
        let (batch, kv_head, keys) = (work.batch, work.kv_head, work.keys);
        let tiles = BulkTiles { warp, address, batch, kv_head, keys, turn: Turn::FIRST, plan: PhantomData };
        if warp.warp_id() == 0 {
            // SAFETY: the mbarriers lie where the plan has room for them.
            unsafe {
                warp.mbarrier_init(tiles.query_full(), 1);
                for slot in 0..2 * C::STAGES as u32 {
                    let full = tiles.full(Matrix::K, slot);
                    warp.mbarrier_init(full, 1);
                    warp.mbarrier_init(full + FREE, C::WARPS as u32);
                }
            }
            warp.fence_barrier_init();
        }
        warp.sync_threads();
        tiles
    }

    /// Brings Q, and every tile of K and V that is to be visited as soon as its slot is free: the whole of what a warp does
    /// that only starts copies.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub fn produce(mut self, work: &Work) {
        self.bring_query(work);
        let mut key = work.first_key;
        while key < self.keys {
            // Slots are free at first, as if a phase of parity 1 had ended.
            self.await_free(Matrix::K, self.turn.parity ^ 1);
            self.bring(Matrix::K, self.turn.stage, key);
            self.await_free(Matrix::V, self.turn.parity ^ 1);
            self.bring(Matrix::V, self.turn.stage, key);
            self.turn.advance(C::STAGES);
            key += C::KEYS as u32;
        }
    }

    /// Waits for the query tile. The tiles are then ready for the warps that compute.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub fn start(self, work: &Work) -> Self {
        if self.produces() {
            self.bring_query(work);
            for stage in 0..C::STAGES as u32 {
                let key = work.first_key + stage * C::KEYS as u32;
                self.bring(Matrix::K, stage, key);
                self.bring(Matrix::V, stage, key);
            }
        }
        // SAFETY: here and below, new made the mbarriers.
        unsafe { self.warp.mbarrier_wait(self.query_full(), 0) };
        self
    }

    /// Whether this warp, which computes, also starts copies.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn produces(&self) -> bool {
        C::PRODUCER_WARPS == 0 && self.warp.warp_id() == 0
    }

    /// Says that this warp has read the tile in the slot whose turn it is; fills the slot again if that is its task.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn release(&self, matrix: Matrix, key: u32) {
        // SAFETY: see start.
        unsafe { self.warp.mbarrier_arrive(self.full(matrix, self.turn.stage) + FREE) };
        let next = key + (C::STAGES * C::KEYS) as u32;
        if self.produces() && next < self.keys {
            self.await_free(matrix, self.turn.parity);
            self.bring(matrix, self.turn.stage, next);
        }
    }

    /// Waits for the tile in the slot whose turn it is.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn await_tile(&self, matrix: Matrix) -> SharedTile {
        // SAFETY: see start.
        unsafe { self.warp.mbarrier_wait(self.full(matrix, self.turn.stage), self.turn.parity) };
        let (first, shape) = Self::slots(matrix);
        let tile = SharedTile::panels(self.warp, first, shape.rows);
        tile.skip_bytes(self.turn.stage * shape.bytes() as u32)
    }

    /// Waits until all warps have read what lies in the slot whose turn it is.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn await_free(&self, matrix: Matrix, parity: u32) {
        // SAFETY: see start.
        unsafe { self.warp.mbarrier_wait(self.full(matrix, self.turn.stage) + FREE, parity) };
    }

    /// Starts the copy of the query tile.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn bring_query(&self, work: &Work) {
        self.copy(Params::Q_MAP, C::QUERY, 0, self.query_full(), [work.row, work.head]);
    }

    /// Starts the copy of the tile that begins at key `key` to a slot that is free; none beyond the last key.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn bring(&self, matrix: Matrix, stage: u32, key: u32) {
        let (map, row) = match matrix {
            Matrix::K => (Params::K_MAP, key),
            Matrix::V => (Params::V_MAP, C::value_row(key)),
        };
        if key < self.keys {
            let (first, shape) = Self::slots(matrix);
            let (to, full) = (first as u32 + stage * shape.bytes() as u32, self.full(matrix, stage));
            self.copy(map, shape, to, full, [row, self.kv_head]);
        }
    }

    /// Starts the copy of a tile, panel by panel, that an mbarrier awaits, from a row and head of the tensor on.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn copy(&self, map: u64, shape: Shape, to: u32, full: u32, [row, head]: [u32; 2]) {
        let (warp, map) = (self.warp, self.address + map);
        // SAFETY: new's caller's.
        unsafe {
            warp.mbarrier_arrive_expect(full, shape.bytes() as u32);
            for panel in 0..shape.row_bytes / PANEL_ROW {
                let place = warp.shared_base() + to + (panel * shape.rows * PANEL_ROW) as u32;
                warp.copy_tensor(place, map, [(panel * PANEL) as u32, row, head, self.batch], full);
            }
        }
    }

    /// Where the slots of a matrix begin in shared memory, and how a tile lies in one.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn slots(matrix: Matrix) -> (usize, Shape) {
        match matrix {
            Matrix::K => (C::K_OFFSET, C::KEY),
            Matrix::V => (C::V_OFFSET, C::VALUE),
        }
    }

    /// The mbarrier that says that the query tile has arrived.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn query_full(&self) -> u32 {
        self.warp.shared_base() + C::MBARRIERS_OFFSET as u32
    }

    /// The mbarrier that says that a slot's tile has arrived; the next one says that the slot is free. Those of V's slots follow
    /// those of K's.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn full(&self, matrix: Matrix, stage: u32) -> u32 {
        let slot = match matrix {
            Matrix::K => stage,
            Matrix::V => C::STAGES as u32 + stage,
        };
        self.query_full() + 8 + 16 * slot
    }
}

impl<W: Warp, C: BulkPersistD> KeyTiles<W, C> for BulkTiles<W, C> {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn query(&self) -> SharedTile {
        SharedTile::panels(self.warp, 0, C::ROWS)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn keys(&mut self, _key: u32) -> SharedTile {
        self.await_tile(Matrix::K)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn release_keys(&mut self, key: u32) {
        self.release(Matrix::K, key);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn values(&mut self) -> SharedTile {
        self.await_tile(Matrix::V)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    fn release_values(&mut self, key: u32) {
        self.release(Matrix::V, key);
        self.turn.advance(C::STAGES);
    }

    /// Nothing is in flight: no tile is brought that is not visited.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn finish(self) {}
}
