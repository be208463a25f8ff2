//! Values to NVFP4, transposed: a row for each column, along the keys of a tile.

use cuda_std::Warp;

use super::rows::{Cta, WARPS};
use super::statistics::source;
use super::{COLUMNS, unpack};
use crate::format::Element;
use crate::format::nvfp4::{self, Rounding};
use crate::scales::BLOCK;
use crate::schedule::divide;

/// Keys of a tile.
pub const KEYS: usize = 128;
/// Blocks of a row of a tile, each a lane's, of eight columns.
const BLOCKS: u32 = (KEYS / nvfp4::BLOCK) as u32;
/// Chunks of columns that a CTA has at a time.
const CHUNKS: u32 = WARPS as u32 * 32 / BLOCKS;

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
        let columns = unsafe { self.changes_of_values(which) };
        let (batch, head_of_batch) = divide(head, params.kv_heads);
        let from = source(&params.v, batch, head_of_batch, params);
        let row_bytes = nvfp4::row_bytes(KEYS) as u32;
        let tile_bytes = params.value_rows * row_bytes;
        let tiles = params.v.rows.div_ceil(KEYS as u32);
        let group_tiles = params.group_blocks * BLOCK as u32 / KEYS as u32;
        let lane = warp.lane_id() & (BLOCKS - 1);
        // A block's first key: see `nvfp4::value_key`.
        let first_key = ((lane >> 1) << 5) + ((lane & 1) << 2);
        for tile in group * group_tiles..tiles.min((group + 1) * group_tiles) {
            let first_row = tile * KEYS as u32;
            let to = params.v8 + (head as u64 * tiles as u64 + tile as u64) * tile_bytes as u64;
            let from = from.skip_rows(first_row);
            let mut first_chunk = 0;
            while first_chunk < params.value_rows / COLUMNS as u32 {
                let chunk = (warp.lane_id() / BLOCKS) + (first_chunk + warp.warp_id() * (32 / BLOCKS));
                let exists = warp.less(chunk, warp.splat(params.head_dim / COLUMNS as u32));
                let fits = warp.less(chunk, warp.splat(params.value_rows / COLUMNS as u32));
                // SAFETY: what does not exist is not read.
                unsafe {
                    let mut words = [[warp.splat(0); 4]; nvfp4::BLOCK];
                    let mut rows = [exists; nvfp4::BLOCK];
                    for k in 0..nvfp4::BLOCK {
                        let key = first_key + nvfp4::value_key(k) as u32;
                        rows[k] = exists & warp.less(key, warp.splat(from.rows));
                        words[k] = warp.load_global_x4(from.chunk(warp, key, chunk), rows[k]);
                    }
                    let fitting = warp.select(fits, chunk, warp.splat(0));
                    let [means, factors] = [0, 1].map(|s| self.columns_of_chunk(columns, s, fitting));
                    self.store_block::<R>(to, chunk, fits, |c, k| {
                        let value = (unpack::<W, E>(warp, words[k])[c] - means[c]) * factors[c];
                        warp.select_f32(rows[k], value, warp.splat_f32(0.0))
                    });
                }
                first_chunk += CHUNKS;
            }
        }
    }

    /// Stores a block of each of eight columns.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn store_block<R: Rounding>(
        &self,
        tile: u64,
        chunk: W::U32,
        fits: W::Bool,
        value: impl Fn(usize, usize) -> W::F32,
    ) {
        let warp = self.warp;
        let lane = warp.lane_id() & (BLOCKS - 1);
        let row_bytes = nvfp4::row_bytes(KEYS) as u32;
        // The first of 16 columns' rows, and of a chunk of these: see `nvfp4::value_row`.
        let first_row = ((chunk >> 1) << 4) + ((chunk & 1) << 2);
        let place = |row: W::U32| warp.mul_wide(row, row_bytes) + tile;
        for half in 0..2 {
            let column = |i: usize| 4 * half + i;
            let largest = [0, 1, 2, 3].map(|i| {
                let values = |first: usize| [0, 1, 2, 3, 4, 5, 6, 7].map(|k| value(column(i), first + k));
                warp.maximum(nvfp4::largest(warp, values(0)), nvfp4::largest(warp, values(8)))
            });
            let scales = nvfp4::scales(warp, largest);
            let numbers = nvfp4::numbers(warp, scales);
            for i in 0..4 {
                let codes = [0, 8].map(|first| {
                    let values = [0, 1, 2, 3, 4, 5, 6, 7].map(|k| value(column(i), first + k));
                    nvfp4::codes::<R, W>(warp, values, numbers[i])
                });
                let row = first_row + nvfp4::value_row(column(i)) as u32;
                let offset = warp.mul_wide(lane, 8) + nvfp4::HEADER as u64;
                // SAFETY: the caller's.
                unsafe { warp.store_global_x2(place(row) + offset, codes, fits) };
            }
            // Four lanes have a word of scales for each of four columns, byte by byte: a word for each lane.
            let exchange = |word: W::U32, mask: u32| {
                warp.bits_from_float(warp.shuffle_xor(warp.float_from_bits(word), mask))
            };
            let is = |bit: u32| warp.less(warp.splat(0), lane & bit);
            let of = |word, other, first, second| {
                [warp.permute_bytes(word, other, first), warp.permute_bytes(word, other, second)]
            };
            let [even, odd] = of(scales, exchange(scales, 1), 0x6240, 0x3715);
            let pairs = warp.select(is(1), odd, even);
            let [low, high] = of(pairs, exchange(pairs, 2), 0x5410, 0x3276);
            let word = warp.select(is(2), high, low);
            let column = (lane & 3) + 4 * half as u32;
            let row = first_row + ((column & 1) << 3) + (column >> 1);
            let place = place(row) + warp.mul_wide((lane >> 2) << 2, 1);
            // SAFETY: the caller's.
            unsafe { warp.store_global_f32(place, warp.float_from_bits(word), fits) };
        }
    }
}
