//! Which lane and register of a warp holds which element of a matrix operand, for each MMA shape, and which row each
//! lane must point at so that `ldmatrix` puts the elements there.
//!
//! Every map is written once, generic over [`LaneU32`]: kernels call it with a warp's lanes, the emulator and the
//! tests with plain integers. Source: PTX ISA, "Matrix Fragments for mma" and "ldmatrix".

use crate::LaneU32;

/// `mma.m16n8k16`, 16-bit operands: A is 16x16 (rows of k), B is 16x8, C and D are 16x8.
///
/// A operand register holds two elements, `half` 0 in its low bits. An accumulator register holds one.
pub mod m16n8k16 {
    use super::LaneU32;

    /// Rows of A and of the accumulators.
    pub const M: usize = 16;
    /// Columns of B and of the accumulators.
    pub const N: usize = 8;
    /// The summed dimension.
    pub const K: usize = 16;

    /// `(row, k)` of half `half` of A's register `register` (0 to 3).
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn a<I: LaneU32>(lane: I, register: u32, half: u32) -> (I, I) {
        ((lane >> 2) + 8 * (register & 1), ((lane & 3) << 1) + (8 * (register >> 1) + half))
    }

    /// `(k, column)` of half `half` of B's register `register` (0 or 1).
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn b<I: LaneU32>(lane: I, register: u32, half: u32) -> (I, I) {
        (((lane & 3) << 1) + (8 * register + half), lane >> 2)
    }

    /// `(row, column)` of accumulator `register` (0 to 3).
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn accumulator<I: LaneU32>(lane: I, register: u32) -> (I, I) {
        ((lane >> 2) + 8 * (register >> 1), ((lane & 3) << 1) + (register & 1))
    }
}

/// `mma.m16n8k32`, 8-bit operands: A is 16x32 (rows of k), B is 32x8, C and D are 16x8.
///
/// An operand register holds four elements, `byte` 0 in its low bits. An accumulator register holds one. A row's 16 bytes
/// are here 16 values of k, so `ldmatrix` puts bytes in place as it does pairs of 16-bit elements: see [`load_matrix`].
pub mod m16n8k32 {
    use super::LaneU32;
    pub use super::m16n8k16::{M, N, accumulator};

    /// The summed dimension.
    pub const K: usize = 32;

    /// `(row, k)` of byte `byte` of A's register `register` (0 to 3).
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn a<I: LaneU32>(lane: I, register: u32, byte: u32) -> (I, I) {
        ((lane >> 2) + 8 * (register & 1), ((lane & 3) << 2) + (16 * (register >> 1) + byte))
    }

    /// `(k, column)` of byte `byte` of B's register `register` (0 or 1).
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn b<I: LaneU32>(lane: I, register: u32, byte: u32) -> (I, I) {
        (((lane & 3) << 2) + (16 * register + byte), lane >> 2)
    }
}

/// `mma.m16n8k64`, 4-bit operands in blocks of 16 values of k, each with a scale: A is 16x64 (rows of k), B is 64x8, C and D
/// are 16x8.
///
/// An operand register holds eight elements, `nibble` 0 in its low bits. An accumulator register holds one. A row's 16 bytes
/// are here 32 values of k, so `ldmatrix` puts nibbles in place as it does pairs of 16-bit elements: see [`load_matrix`].
///
/// A row of A and a column of B have four scales each, which are the bytes of one word, byte 0 for the first 16 values of k.
/// Fewer lanes than a warp has hold those of an operand, so one register may hold the scales of two operands A, or of four
/// operands B: the instruction's thread id says which of them it takes (PTX ISA, "Block scaling for mma.sync").
pub mod m16n8k64 {
    use super::LaneU32;
    pub use super::m16n8k16::{M, N, accumulator};

    /// The summed dimension.
    pub const K: usize = 64;

    /// Values of k that share a scale.
    pub const BLOCK: usize = 16;

    /// `(row, k)` of nibble `nibble` of A's register `register` (0 to 3).
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn a<I: LaneU32>(lane: I, register: u32, nibble: u32) -> (I, I) {
        ((lane >> 2) + 8 * (register & 1), ((lane & 3) << 3) + (32 * (register >> 1) + nibble))
    }

    /// `(k, column)` of nibble `nibble` of B's register `register` (0 or 1).
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn b<I: LaneU32>(lane: I, register: u32, nibble: u32) -> (I, I) {
        (((lane & 3) << 3) + (32 * register + nibble), lane >> 2)
    }

    /// `(row, thread id)`: the row of A whose scales a lane holds, if the instruction takes those of this thread id (0 or 1).
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn scale_a<I: LaneU32>(lane: I) -> (I, I) {
        ((lane >> 2) + ((lane & 1) << 3), (lane >> 1) & 1)
    }

    /// `(column, thread id)`: the column of B whose scales a lane holds, if the instruction takes those of this thread id
    /// (0 to 3).
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn scale_b<I: LaneU32>(lane: I) -> (I, I) {
        (lane >> 2, lane & 3)
    }
}

/// The lanes that share a row of the accumulators are those that differ in these bits: the masks of the butterfly
/// that reduces a row.
pub const ROW_BUTTERFLY: [u32; 2] = [1, 2];

/// Where each lane points for an `ldmatrix.x4`: `(row, chunk)`, a chunk being 16 bytes: 8 elements of 16 bits, 16 of 8
/// or 32 of 4. Only the transposed load, which moves 16 bits at a time, is for 16-bit elements alone.
pub mod load_matrix {
    use super::LaneU32;

    /// An A operand of 16 rows that lies in memory row by row: words 0 to 3 are A's registers.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn a<I: LaneU32>(lane: I) -> (I, I) {
        (lane & 15, lane >> 4)
    }

    /// Two B operands (16 columns of B, all of k) that lie in memory column by column, as K does for Q K^T: row
    /// `n` of memory is column `n` of B. Words 0, 1 are the first operand's registers, 2, 3 the second's.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn b_by_columns<I: LaneU32>(lane: I) -> (I, I) {
        ((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1)
    }

    /// Two B operands that lie in memory row by row, as V does for P V, for the transposed load: row `k` of memory
    /// is row `k` of B. Words 0, 1 are the first operand's registers, 2, 3 the second's.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn b_by_rows<I: LaneU32>(lane: I) -> (I, I) {
        (lane & 15, lane >> 4)
    }
}
