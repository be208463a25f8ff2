//! Tiles in shared memory.

use cuda_std::swizzle::{Cursor, Strides};
use cuda_std::{Warp, fragment};

/// A swizzled tile.
#[derive(Clone, Copy)]
pub struct SharedTile {
    base: u32,
    strides: Strides,
}

/// A lane's standing place in a tile for one kind of access.
#[derive(Clone, Copy)]
pub struct Place<W: Warp> {
    cursor: Cursor<W::U32>,
    strides: Strides,
}

impl SharedTile {
    /// The tile of whole rows of `row_bytes` bytes, a multiple of 128, that begins `offset` bytes into the CTA's shared
    /// memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn rows<W: Warp>(warp: W, offset: usize, row_bytes: usize) -> Self {
        SharedTile { base: warp.shared_base() + offset as u32, strides: Strides::of_rows(row_bytes as u32) }
    }

    /// The tile of panels of `rows` rows that begins `offset` bytes into the CTA's shared memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn panels<W: Warp>(warp: W, offset: usize, rows: usize) -> Self {
        SharedTile { base: warp.shared_base() + offset as u32, strides: Strides::of_panels(rows as u32) }
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
    pub fn place<W: Warp>(&self, row: W::U32, chunk: W::U32) -> Place<W> {
        Place { cursor: Cursor::new(self.base, self.strides, row, chunk), strides: self.strides }
    }

    /// For [`Place::load_a`]: the warp's A operand that begins at `row`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn place_a<W: Warp>(&self, warp: W, row: u32) -> Place<W> {
        let (lane_row, chunk) = fragment::load_matrix::a(warp.lane_id());
        self.place(lane_row + row, chunk)
    }

    /// For [`Place::load_b`]: B operands whose columns are the tile's rows from `row` on, as for Q K^T.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn place_b_by_columns<W: Warp>(&self, warp: W, row: u32) -> Place<W> {
        let (lane_row, chunk) = fragment::load_matrix::b_by_columns(warp.lane_id());
        self.place(lane_row + row, chunk)
    }
}

impl<W: Warp> Place<W> {
    /// The address `rows` and `chunks` further on.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn at(&self, rows: usize, chunks: usize) -> W::U32 {
        self.cursor.at(self.strides, rows as u32, chunks as u32)
    }

    /// A operand: rows from `16 m`, k from a chunk on.
    ///
    /// # Safety
    /// The operand lies in the tile's shared memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn load_a(&self, warp: W, m: usize, chunk: usize) -> [W::U32; 4] {
        // SAFETY: the caller's.
        unsafe { warp.load_matrix_x4(self.at(16 * m, chunk)) }
    }

    /// Two B operands: columns from `16 n`, k from a chunk on.
    ///
    /// # Safety
    /// The operands lie in the tile's shared memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub unsafe fn load_b(&self, warp: W, n: usize, chunk: usize) -> [[W::U32; 2]; 2] {
        // SAFETY: the caller's.
        let [a, b, c, d] = unsafe { warp.load_matrix_x4(self.at(16 * n, chunk)) };
        [[a, b], [c, d]]
    }
}
