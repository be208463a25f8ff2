//! What rows of Q and K are brought to, and those of V where they stay rows.

use core::marker::PhantomData;

use cuda_std::Warp;

use super::Eight;
use super::rows::{LARGEST_E4M3, LARGEST_INT8};
use crate::format::nvfp4::{self, Rounding};

/// Which operand a row is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// A: queries.
    Query,
    /// B: keys, and values.
    Key,
}

/// A kind of numbers.
pub(super) trait Numbers {
    /// The largest.
    const LARGEST: f32;
    /// Whether the mean of some rows may be subtracted from each query.
    const SMOOTH_QUERIES: bool;

    /// Where in a row the numbers of a lane's first chunk of eight columns are, in bytes.
    fn lane_place<W: Warp>(warp: W, chunk: W::U32) -> W::U32;

    /// Stores a chunk of a row. `row` is its address at [`Numbers::lane_place`] of a lane's first chunk, behind which the chunk is by
    /// so many. All lanes take part.
    ///
    /// # Safety
    /// The row is live and nobody else's, if it exists.
    #[track_caller]
    unsafe fn store<W: Warp>(
        warp: W,
        row: W::U64,
        chunk: (W::U32, usize),
        values: Eight<W>,
        side: Side,
        exists: W::Bool,
    );
}

/// e4m3.
pub(super) enum E4m3 {}

/// Integers of eight bits.
pub(super) enum Int8 {}

/// e2m1 with a scale for each 16, as [`nvfp4`] has rows.
pub(super) struct NvFp4<R>(PhantomData<R>);

macro_rules! bytes {
    ($kind:ident, $largest:expr, $pack:ident) => {
        impl Numbers for $kind {
            const LARGEST: f32 = $largest;
            const SMOOTH_QUERIES: bool = false;

            #[cfg_attr(target_arch = "nvptx64", inline(always))]
            fn lane_place<W: Warp>(_warp: W, chunk: W::U32) -> W::U32 {
                chunk << 3
            }

            #[cfg_attr(target_arch = "nvptx64", inline(always))]
            #[track_caller]
            unsafe fn store<W: Warp>(
                warp: W,
                row: W::U64,
                (_, behind): (W::U32, usize),
                [a, b, c, d, e, f, g, h]: Eight<W>,
                _side: Side,
                exists: W::Bool,
            ) {
                let words = [warp.$pack([a, b, c, d]), warp.$pack([e, f, g, h])];
                // SAFETY: the caller's.
                unsafe { warp.store_global_x2(row + 8 * behind as u64, words, exists) };
            }
        }
    };
}

bytes!(E4m3, LARGEST_E4M3, pack_e4m3);
bytes!(Int8, LARGEST_INT8, pack_s8);

/// Chunks of a line.
const LINE_CHUNKS: u32 = nvfp4::LINE_ELEMENTS as u32 / 8;

impl<R: Rounding> Numbers for NvFp4<R> {
    const LARGEST: f32 = nvfp4::LARGEST;
    const SMOOTH_QUERIES: bool = true;

    /// The row's beginning.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn lane_place<W: Warp>(warp: W, _chunk: W::U32) -> W::U32 {
        warp.splat(0)
    }

    /// Two neighbouring lanes have a block, eight have a step's four: the first of those stores their scales.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn store<W: Warp>(
        warp: W,
        row: W::U64,
        (chunk, behind): (W::U32, usize),
        values: Eight<W>,
        side: Side,
        exists: W::Bool,
    ) {
        let largest = nvfp4::largest(warp, values);
        let next = warp.maximum(largest, warp.shuffle_xor(largest, 1));
        let other = warp.shuffle_xor(next, 2);
        let scales =
            nvfp4::scales(warp, [next, other, warp.shuffle_xor(next, 4), warp.shuffle_xor(other, 4)]);
        let [own, ..] = nvfp4::numbers(warp, scales);
        let codes = nvfp4::codes::<R, W>(warp, values, own);
        let chunk = chunk + behind as u32;
        let (line, in_line) = (chunk / LINE_CHUNKS, chunk % LINE_CHUNKS);
        let line = row + warp.mul_wide(line, 128);
        let header = nvfp4::HEADER as u32;
        let (step, lane) = (in_line >> 3, chunk & 7);
        // A operands find each step's scales twice.
        let (place, copies) = match side {
            Side::Query => ((step << 3) + (lane << 2), 2),
            Side::Key => (step << 2, 1),
        };
        let stores = exists & warp.less(lane, warp.splat(copies));
        // The second lane has the scales of the same block first.
        // SAFETY: the caller's.
        unsafe {
            warp.store_global_f32(line + warp.mul_wide(place, 1), warp.float_from_bits(scales), stores);
            let place = line + warp.mul_wide((in_line << 2) + header, 1);
            warp.store_global_f32(place, warp.float_from_bits(codes), exists);
        }
    }
}
