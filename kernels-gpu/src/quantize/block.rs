//! The rows of a block that are a lane's: where they lie, and how they come to registers.

use cuda_std::Warp;

use super::COLUMNS;
use super::numbers::Numbers;
use super::rows::Cta;
use super::statistics::source;
use crate::abi::{Matrices, QuantizeParams};
use crate::format::Element;
use crate::scales::BLOCK;
use crate::schedule::divide;

/// A block of rows of a head.
pub(super) struct Block<W: Warp> {
    /// Its number.
    pub(super) number: u32,
    /// Rows of the head from its first on.
    pub(super) rows: u32,
    /// Those from this lane's first on.
    pub(super) lane_rows: W::U32,
    /// The number of its first row among those of all heads.
    pub(super) row: u64,
    /// Address of this lane's first chunk of its first row, as it comes, and bytes from one row to the next.
    pub(super) from: W::U64,
    pub(super) row_stride: u32,
    /// Address of that row's numbers, at what of the chunk's place depends on the lane ([`Numbers::lane_place`]).
    pub(super) to: W::U64,
}

/// The rows of a step, as they came: by pass a row's pieces.
pub(super) struct Rows<W: Warp, const PIECES: usize, const PASSES: usize> {
    pub(super) step: u32,
    pub(super) words: [[[W::U32; 4]; PIECES]; PASSES],
    pub(super) exist: [W::Bool; PASSES],
}

impl<W: Warp> Block<W> {
    /// Blocks from this one on that are the CTA's.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn count(&self, params: &QuantizeParams) -> u32 {
        self.rows.div_ceil(BLOCK as u32).min(params.group_blocks)
    }
}

impl<W: Warp, E: Element, const LANES: usize, const PIECES: usize, const PASSES: usize, const ROTATED: bool>
    Cta<'_, W, E, LANES, PIECES, PASSES, ROTATED>
{
    /// One of this lane's chunks of a row.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn chunk(&self, piece: usize) -> W::U32 {
        (self.warp.lane_id() & (LANES as u32 - 1)) + (LANES * piece) as u32
    }

    /// Whether one of this lane's chunks is among so many columns.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn piece_exists(&self, piece: usize, columns: u32) -> W::Bool {
        self.warp.less(self.chunk(piece), self.warp.splat(columns / COLUMNS as u32))
    }

    /// This lane's first row of a block.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn first_row(&self) -> W::U32 {
        let number = self.warp.lane_id() / LANES as u32;
        ((number >> 1) << 3) + (number & 1) + 2 * self.warp.warp_id()
    }

    /// How far behind its first row a lane's row in a pass of a step is.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn distance(&self, step: u32, pass: usize) -> u32 {
        let number = (step * PASSES as u32 + pass as u32) * (32 / LANES as u32);
        ((number >> 1) << 3) + (number & 1)
    }

    /// Steps of a block.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn steps(&self) -> u32 {
        if Self::ONE_STEP { 1 } else { self.params.steps }
    }

    /// A block's rows of a step.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub(super) unsafe fn load(&self, block: &Block<W>, step: u32) -> Rows<W, PIECES, PASSES> {
        let warp = self.warp;
        let none = warp.less(warp.splat(0), warp.splat(0));
        let words = [[[warp.splat(0); 4]; PIECES]; PASSES];
        let mut rows = Rows { step, words, exist: [none; PASSES] };
        for pass in 0..PASSES {
            let distance = self.distance(step, pass);
            rows.exist[pass] = warp.less(warp.splat(distance), block.lane_rows);
            for piece in 0..PIECES {
                let exists = rows.exist[pass] & self.piece_exists(piece, self.params.head_dim);
                let offset = distance as u64 * block.row_stride as u64 + 16 * (LANES * piece) as u64;
                // SAFETY: the caller's; what does not exist is not read.
                rows.words[pass][piece] = unsafe { warp.load_global_x4(block.from + offset, exists) };
            }
        }
        rows
    }

    /// The first block of a group of a head: of `heads`, whose bytes begin at `to`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn first_block<N: Numbers>(
        &self,
        matrices: &Matrices,
        to: u64,
        heads: u32,
        (head, group): (u32, u32),
    ) -> Block<W> {
        let (warp, params) = (self.warp, self.params);
        let number = group * params.group_blocks;
        let first = number * BLOCK as u32;
        let (batch, head_of_batch) = divide(head, heads);
        let from = source(matrices, batch, head_of_batch, params).skip_rows(first);
        let row = head as u64 * matrices.rows as u64 + first as u64;
        let to = warp.mul_wide(N::lane_place(warp, self.chunk(0)), 1) + (to + row * params.row_bytes as u64);
        Block {
            number,
            rows: from.rows,
            lane_rows: self.lane_rows(from.rows),
            row,
            from: from.chunk(warp, self.first_row(), self.chunk(0)),
            row_stride: from.row_stride,
            to: warp.mul_wide(self.first_row(), params.row_bytes) + to,
        }
    }

    /// The block behind another. Addresses move on from block to block, for each to be one register pair and not one for each pass.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn next_block(&self, block: Block<W>) -> Block<W> {
        let rows = block.rows.saturating_sub(BLOCK as u32);
        Block {
            number: block.number + 1,
            rows,
            lane_rows: self.lane_rows(rows),
            row: block.row + BLOCK as u64,
            from: block.from + BLOCK as u64 * block.row_stride as u64,
            to: block.to + BLOCK as u64 * self.params.row_bytes as u64,
            ..block
        }
    }

    /// Of some rows, those from this lane's first on.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn lane_rows(&self, rows: u32) -> W::U32 {
        let (warp, first) = (self.warp, self.first_row());
        let all = warp.splat(rows);
        all - warp.select(warp.less(first, all), first, all)
    }
}
