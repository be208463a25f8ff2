//! Matrices in global memory.

use cuda_std::Warp;
use cuda_std::swizzle::CHUNK;

use crate::abi::{Matrices, Params};
use crate::config::Config;
use crate::format::{Record, Scores, Values};
use crate::schedule::Work;

/// One (batch, head)'s matrix: some rows of `chunks` valid chunks of 16 bytes.
#[derive(Clone, Copy)]
pub struct GlobalTile {
    base: u64,
    /// Bytes from one row to the next.
    pub row_stride: u32,
    /// Rows that exist.
    pub rows: u32,
    /// Chunks of a row that exist.
    pub chunks: u32,
}

impl GlobalTile {
    /// The matrix of one batch entry and head.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn new(matrices: &Matrices, batch: u32, head: u32, chunks: u32) -> Self {
        let offset = batch as u64 * matrices.batch_stride + head as u64 * matrices.head_stride;
        GlobalTile {
            base: matrices.base + offset,
            row_stride: matrices.row_stride,
            rows: matrices.rows,
            chunks,
        }
    }

    /// The same matrix without its first `rows` rows.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn skip_rows(self, rows: u32) -> Self {
        GlobalTile {
            base: self.base + rows as u64 * self.row_stride as u64,
            rows: self.rows.saturating_sub(rows),
            ..self
        }
    }

    /// The same matrix without its first `chunks` chunks of each row.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn skip_chunks(self, chunks: u32) -> Self {
        GlobalTile {
            base: self.base + (CHUNK * chunks) as u64,
            chunks: self.chunks.saturating_sub(chunks),
            ..self
        }
    }

    /// Address of a row's 16-byte chunk.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn chunk<W: Warp>(&self, warp: W, row: W::U32, chunk: W::U32) -> W::U64 {
        warp.mul_wide(row, self.row_stride) + warp.mul_wide(chunk, 16) + self.base
    }
}

/// The four matrices of a CTA's work: Q and O from its first row on, K and V from its first key on.
pub struct Operands {
    /// Queries.
    pub q: GlobalTile,
    /// Keys.
    pub k: GlobalTile,
    /// Values.
    pub v: GlobalTile,
    /// Output.
    pub o: GlobalTile,
}

impl Operands {
    /// Those of `work`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn new<C: Config>(params: &Params, work: &Work) -> Self {
        let matrix = |matrices, head, row_bytes: usize| {
            GlobalTile::new(matrices, work.batch, head, row_bytes as u32 / CHUNK)
        };
        let columns = params.head_dim as usize;
        let of_value = if C::Values::TRANSPOSED { C::KEYS } else { columns };
        Operands {
            q: matrix(&params.q, work.head, C::Scores::RECORD.bytes(columns)).skip_rows(work.row),
            k: matrix(&params.k, work.kv_head, C::Scores::RECORD.bytes(columns)).skip_rows(work.first_key),
            v: matrix(&params.v, work.kv_head, C::Values::RECORD.bytes(of_value))
                .skip_rows(C::value_row(work.first_key)),
            o: matrix(&params.o, work.head, Record::Dense(2).bytes(columns)).skip_rows(work.row),
        }
    }
}
