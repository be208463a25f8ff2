//! Tiles in shared memory.

use core::marker::PhantomData;

use cuda_std::swizzle::{Cursor, Strides};
use cuda_std::{Warp, fragment};

use crate::config::Config;

/// A swizzled tile, at one of the offsets of the plan of `C`.
pub struct SharedTile<C> {
    base: u32,
    strides: Strides,
    plan: PhantomData<C>,
}

/// A lane's standing place in a tile for one kind of access.
pub struct Place<W: Warp, C> {
    cursor: Cursor<W::U32>,
    strides: Strides,
    plan: PhantomData<C>,
}

// Derived implementations would ask the same of C, which is only a name.
impl<C> Clone for SharedTile<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for SharedTile<C> {}
impl<W: Warp, C> Clone for Place<W, C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<W: Warp, C> Copy for Place<W, C> {}

impl<C: Config> SharedTile<C> {
    /// The tile of whole rows of [`Config::ROW_BYTES`] that begins `offset` bytes into the CTA's shared memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn at<W: Warp>(warp: W, offset: u32) -> Self {
        const { assert!(C::ROW_BYTES.is_multiple_of(128)) };
        let strides = Strides::of_rows(C::ROW_BYTES as u32);
        SharedTile { base: warp.shared_base() + offset, strides, plan: PhantomData }
    }

    /// The tile of panels of `rows` rows that begins `offset` bytes into the CTA's shared memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn panels<W: Warp>(warp: W, offset: u32, rows: usize) -> Self {
        let strides = Strides::of_panels(rows as u32);
        SharedTile { base: warp.shared_base() + offset, strides, plan: PhantomData }
    }

    /// The address of its first byte.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn base(&self) -> u32 {
        self.base
    }

    /// The tile `bytes` further on.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn skip_bytes(self, bytes: u32) -> Self {
        SharedTile { base: self.base + bytes, ..self }
    }

    /// The place of `(row, chunk)`, both lane-varying.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn place<W: Warp>(&self, row: W::U32, chunk: W::U32) -> Place<W, C> {
        let (strides, plan) = (self.strides, PhantomData);
        Place { cursor: Cursor::new(self.base, strides, row, chunk), strides, plan }
    }

    /// For [`Place::load_a`]: the warp's A operand that begins at `row`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn place_a<W: Warp>(&self, warp: W, row: u32) -> Place<W, C> {
        let (lane_row, chunk) = fragment::load_matrix::a(warp.lane_id());
        self.place(lane_row + row, chunk)
    }

    /// For [`Place::load_b`]: B operands whose columns are the tile's rows from `row` on, as for Q K^T.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn place_b_by_columns<W: Warp>(&self, warp: W, row: u32) -> Place<W, C> {
        let (lane_row, chunk) = fragment::load_matrix::b_by_columns(warp.lane_id());
        self.place(lane_row + row, chunk)
    }

    /// For [`Place::load_b_transposed`]: B operands whose rows are the tile's rows, from chunk `chunk` on, as for P V.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn place_b_by_rows<W: Warp>(&self, warp: W, chunk: u32) -> Place<W, C> {
        let (row, lane_chunk) = fragment::load_matrix::b_by_rows(warp.lane_id());
        self.place(row, lane_chunk + chunk)
    }
}

impl<W: Warp, C: Config> Place<W, C> {
    /// The address `rows` and `chunks` further on.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn at(&self, rows: usize, chunks: usize) -> W::U32 {
        self.cursor.at(self.strides, rows as u32, chunks as u32)
    }

    /// A operand of 16 rows from row `16 m`, k from `16 k`.
    ///
    /// # Safety
    /// The operand lies in the tile's shared memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn load_a(&self, warp: W, m: usize, k: usize) -> [W::U32; 4] {
        // SAFETY: the caller's.
        unsafe { warp.load_matrix_x4(self.at(16 * m, 2 * k)) }
    }

    /// Two B operands: columns from `16 n`, k from `16 k`.
    ///
    /// # Safety
    /// The operands lie in the tile's shared memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn load_b(&self, warp: W, n: usize, k: usize) -> [[W::U32; 2]; 2] {
        // SAFETY: the caller's.
        let [a, b, c, d] = unsafe { warp.load_matrix_x4(self.at(16 * n, 2 * k)) };
        [[a, b], [c, d]]
    }

    /// Two B operands: k from `16 k`, columns from `16 n`.
    ///
    /// # Safety
    /// The operands lie in the tile's shared memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn load_b_transposed(&self, warp: W, k: usize, n: usize) -> [[W::U32; 2]; 2] {
        // SAFETY: the caller's.
        let [a, b, c, d] = unsafe { warp.load_matrix_transposed_x4(self.at(16 * k, 2 * n)) };
        [[a, b], [c, d]]
    }
}
