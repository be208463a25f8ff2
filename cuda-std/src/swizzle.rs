//! Where the 16-byte chunks of a shared-memory tile lie.
//!
//! A tile is rows of a multiple of 128 bytes, in lines of 128 that follow each other or lie a panel apart ([`Strides`]).
//! Chunk `c` of row `r` lies at chunk `c ^ (r % 8)` of that row: the XOR
//! permutes the eight chunks of each 128-byte line, so that the eight rows of an 8x8 matrix, read at one logical
//! chunk, fall into eight different groups of four banks, and so do eight neighbouring chunks of one row. Both are
//! what shared memory serves in one wavefront: `ldmatrix` and 16-byte copies never conflict. (The same permutation as
//! the 128-byte swizzle of the bulk tensor copies; PTX ISA, "Swizzling modes".)

use crate::LaneU32;

/// Bytes of a chunk: one row of an `ldmatrix` matrix, and the size of a copy.
pub const CHUNK: u32 = 16;
/// Bytes over which the permutation acts: all 32 banks.
pub const LINE: u32 = 128;

/// How the lines of a tile lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// Bytes from one row to the next.
    pub row: u32,
    /// Bytes from one line of a row to the next: 128 where rows lie whole, a panel's bytes where each line of all rows is one
    /// panel, as bulk copies store it.
    pub line: u32,
}

impl Strides {
    /// Rows of `bytes` bytes, whole.
    pub const fn of_rows(bytes: u32) -> Self {
        Strides { row: bytes, line: LINE }
    }

    /// Panels of `rows` rows of 128 bytes.
    pub const fn of_panels(rows: u32) -> Self {
        Strides { row: LINE, line: rows * LINE }
    }
}

/// A lane's place in a swizzled tile, from which other places are reached by constant steps.
///
/// Stepping costs one XOR, where the full formula costs five instructions: address arithmetic is what eats the issue
/// slots of a kernel that feeds tensor cores from shared memory.
#[derive(Clone, Copy)]
pub struct Cursor<I> {
    row: I,
    chunk: I,
}

impl<I: LaneU32> Cursor<I> {
    /// The place of chunk `chunk` of row `row`, in a tile at `base`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn new(base: u32, strides: Strides, row: I, chunk: I) -> Self {
        let line = chunk >> 3;
        Cursor { row: row * strides.row + line * strides.line + base, chunk: ((chunk & 7) ^ (row & 7)) << 4 }
    }

    /// The byte address `rows` rows further down and `chunks` chunks further right.
    ///
    /// `rows` must be a multiple of 4. The chunk steps must not carry out of a 128-byte line together with the place
    /// itself: a place at chunk 0 or 1 may step by even amounts, a place at any chunk by multiples of 8.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn at(self, strides: Strides, rows: u32, chunks: u32) -> I {
        let permuted = ((chunks & 7) ^ (rows & 7)) * CHUNK;
        self.row + (rows * strides.row + (chunks / 8) * strides.line) + (self.chunk ^ permuted)
    }
}

/// The number of wavefronts that a warp-wide shared-memory access takes beyond the least possible: 0 is conflict-free.
///
/// `addresses` are the active lanes' byte addresses, `bytes` (4, 8 or 16) the size of each. Shared memory has 32 banks
/// of 4 bytes; wide accesses are served in phases of 128 bytes (8 lanes of 16 bytes), and within a phase each bank
/// gives one word.
pub fn bank_conflicts(addresses: &[u32], bytes: u32) -> u32 {
    let lanes_per_phase = (LINE / bytes) as usize;
    let mut extra = 0;
    for phase in addresses.chunks(lanes_per_phase) {
        let mut worst = 1;
        for bank in 0..32 {
            let words = || {
                phase.iter().flat_map(|&a| (0..bytes / 4).map(move |w| a / 4 + w)).filter(|w| w % 32 == bank)
            };
            // Lanes that read the same word share it: count distinct words only.
            let distinct = words().enumerate().filter(|&(i, w)| words().take(i).all(|v| v != w)).count();
            worst = worst.max(distinct as u32);
        }
        extra += worst - 1;
    }
    extra
}
