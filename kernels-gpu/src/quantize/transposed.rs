//! Values to NVFP4, transposed: a row for each column, along the keys of a tile.
//!
//! A lane has a block of each of four neighbouring columns. The blocks of a column stand side by side.

use cuda_std::Warp;

use super::rows::{Cta, WARPS};
use super::statistics::source;
use crate::format::Element;
use crate::format::nvfp4::{self, Rounding};
use crate::scales::BLOCK;
use crate::schedule::divide;

/// Columns of a lane.
const COLUMNS: usize = 4;

/// Numbers of a block of one column.
type Block<W> = [<W as Warp>::F32; nvfp4::BLOCK];

impl<W: Warp, E: Element, const LANES: usize, const PIECES: usize, const PASSES: usize, const ROTATED: bool>
    Cta<'_, W, E, LANES, PIECES, PASSES, ROTATED>
{
    /// A group of blocks of values: whole tiles.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    pub(super) unsafe fn transposed_values<R: Rounding>(&self, which: (u32, u32)) {
        let (warp, params) = (self.warp, self.params);
        let (head, group) = which;
        // SAFETY: the caller's, here and below.
        let changes = unsafe { self.changes_of_values(which) };
        let (batch, head_of_batch) = divide(head, params.kv_heads);
        let from = source(&params.v, batch, head_of_batch, params);
        let keys = params.value_keys;
        let tile_bytes = params.value_rows * nvfp4::row_bytes(keys as usize) as u32;
        let (tiles, _) = divide(params.v.rows + (keys - 1), keys);
        let (group_tiles, _) = divide(params.group_blocks * BLOCK as u32, keys);
        let blocks = keys / nvfp4::BLOCK as u32;
        // SAFETY: keys are 64 or 128.
        unsafe { core::hint::assert_unchecked(blocks != 0) };
        let (number, lane_columns) = (warp.lane_id() & (blocks - 1), warp.lane_id() / blocks);
        let lanes = 32 / blocks;
        // A block's first key: see `nvfp4::value_key`.
        let first_key = ((number >> 1) << 5) + ((number & 1) << 2);
        for tile in group * group_tiles..tiles.min((group + 1) * group_tiles) {
            let to = params.v8 + (head as u64 * tiles as u64 + tile as u64) * tile_bytes as u64;
            let from = from.skip_rows(tile * keys);
            let mut first = warp.warp_id() * lanes;
            while first < params.value_rows / COLUMNS as u32 {
                let column = (lane_columns + first) * COLUMNS as u32;
                let exists = warp.less(column, warp.splat(params.head_dim));
                let fits = warp.less(column, warp.splat(params.value_rows));
                // SAFETY: what does not exist is not read.
                unsafe {
                    let mut words = [[warp.splat(0); COLUMNS / 2]; nvfp4::BLOCK];
                    let mut rows = [exists; nvfp4::BLOCK];
                    for k in 0..nvfp4::BLOCK {
                        let key = first_key + nvfp4::value_key(k) as u32;
                        rows[k] = exists & warp.less(key, warp.splat(from.rows));
                        let place = from.chunk(warp, key, warp.splat(0)) + warp.mul_wide(column, 2);
                        words[k] = warp.load_global_x2(place, rows[k]);
                    }
                    let fitting = warp.select(fits, column, warp.splat(0));
                    let [means, factors] = [0, 1].map(|s| self.four_columns(changes, s, fitting));
                    let of_column = |c: usize| {
                        let mut block = [warp.splat_f32(0.0); nvfp4::BLOCK];
                        for k in 0..nvfp4::BLOCK {
                            let value = E::unpack(warp, words[k][c / 2])[c % 2];
                            let value = (value - means[c]) * factors[c];
                            block[k] = warp.select_f32(rows[k], value, block[k]);
                        }
                        block
                    };
                    self.store_blocks::<R>((to, number), column, fits, [0, 1, 2, 3].map(of_column));
                }
                first += WARPS as u32 * lanes;
            }
        }
    }

    /// Stores a block of each of four columns, that with a number in a tile's rows.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn store_blocks<R: Rounding>(
        &self,
        (tile, number): (u64, W::U32),
        first_column: W::U32,
        fits: W::Bool,
        columns: [Block<W>; COLUMNS],
    ) {
        let warp = self.warp;
        let row_bytes = nvfp4::row_bytes(self.params.value_keys as usize) as u32;
        // The row of the first column: see `nvfp4::value_row`.
        let first_row = ((first_column >> 4) << 4) + ((first_column & 15) >> 1);
        let place = |row: W::U32| warp.mul_wide(row, row_bytes) + tile;
        let halves = columns.map(|[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]| {
            [[a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]]
        });
        let largest = halves
            .map(|[first, second]| warp.maximum(nvfp4::largest(warp, first), nvfp4::largest(warp, second)));
        let scales = nvfp4::scales(warp, largest);
        let numbers = nvfp4::numbers(warp, scales);
        for c in 0..COLUMNS {
            let codes = halves[c].map(|values| nvfp4::codes::<R, W>(warp, values, numbers[c]));
            let row = first_row + nvfp4::value_row(c) as u32;
            let offset = warp.mul_wide(number, 8) + nvfp4::HEADER as u64;
            // SAFETY: the caller's.
            unsafe { warp.store_global_x2(place(row) + offset, codes, fits) };
        }
        // Four lanes have a word of scales each for four columns, byte by byte: it becomes a word for each column.
        let exchange = |word: W::U32, mask: u32| {
            warp.bits_from_float(warp.shuffle_xor(warp.float_from_bits(word), mask))
        };
        let bit = |mask: u32| warp.less(warp.splat(0), number & mask);
        let joined = |word: W::U32, mask: u32, [first, second]: [u32; 2]| {
            let other = exchange(word, mask);
            let [first, second] = [first, second].map(|bytes| warp.permute_bytes(word, other, bytes));
            warp.select(bit(mask), second, first)
        };
        let pairs = joined(scales, 1, [0x6240, 0x3715]);
        let word = joined(pairs, 2, [0x5410, 0x3276]);
        let column = number & 3;
        let row = first_row + ((column & 1) << 3) + (column >> 1);
        let place = place(row) + warp.mul_wide((number >> 2) << 2, 1);
        // SAFETY: the caller's.
        unsafe { warp.store_global_f32(place, warp.float_from_bits(word), fits) };
    }
}
