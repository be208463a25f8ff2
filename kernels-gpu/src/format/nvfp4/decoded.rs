//! The same products on machines that multiply no e2m1: every element times its scale is an f16, exactly.

use cuda_std::Warp;
use cuda_std::fragment::m16n8k64;

use super::super::{Element, F16, Fragments, first_column};
use super::products::{Product, lane_scales, of_lane, reciprocals};
use super::{DECODED_UNIT, LINE_ELEMENTS, rounded, scaled};
use crate::tile::{Place, SharedTile};

/// Instructions for f16.
pub enum Decoded {}

/// Steps along a line.
const STEPS: usize = LINE_ELEMENTS / m16n8k64::K;
/// f16 instructions of a step.
const PRODUCTS: usize = 4;
/// Chunks of a line.
const LINE: usize = 8;
/// Chunks of a line before its elements.
const HEADER: usize = super::HEADER / 16;

/// Where a lane stands for elements, and at the scales of its row.
#[derive(Clone, Copy)]
pub struct Places<W: Warp> {
    words: Place<W>,
    scales: Place<W>,
}

impl<W: Warp> Places<W> {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn new(warp: W, words: Place<W>, tile: SharedTile, row: u32) -> Self {
        // A lane's elements are of the row that its number divided by 4 is, and of others 8 further down.
        Places { words, scales: tile.place((warp.lane_id() >> 2) + row, warp.splat(0)) }
    }

    /// The scales of what a lane holds of 32 elements and of the next 32, `rows` rows further down; each twice. `word` is the place
    /// of the step's four scales in its line.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn scales(&self, warp: W, rows: usize, k: usize, word: usize) -> [W::U32; 2] {
        let place = self.scales.at(rows, LINE * (k / STEPS) + word / 4);
        // SAFETY: the caller's.
        let four = unsafe { warp.load_shared_f32(place + (4 * (word % 4)) as u32) };
        let second = warp.less(warp.splat(1), warp.lane_id() & 3);
        warp.unpack_e4m3(warp.bits_from_float(four)).map(|pair| {
            let twice = |selector| warp.permute_bytes(pair, pair, selector);
            warp.select(second, twice(0x3232), twice(0x1010))
        })
    }
}

impl Fragments for Decoded {
    type Place<W: Warp> = Places<W>;
    type A<W: Warp> = [[W::U32; 4]; PRODUCTS];
    type B<W: Warp> = [[W::U32; 2]; PRODUCTS];

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn place_a<W: Warp>(warp: W, tile: SharedTile, row: u32) -> Places<W> {
        Places::new(warp, tile.place_a(warp, row), tile, row)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn place_b<W: Warp>(warp: W, tile: SharedTile, row: u32) -> Places<W> {
        Places::new(warp, tile.place_b_by_columns(warp, row), tile, row)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load_a<W: Warp>(
        warp: W,
        place: Places<W>,
        m: usize,
        k: usize,
        _elements: usize,
    ) -> [[W::U32; 4]; PRODUCTS] {
        let chunk = LINE * (k / STEPS) + HEADER + 2 * (k % STEPS);
        // SAFETY: the caller's.
        unsafe {
            let [a, b, c, d] = place.words.load_a(warp, m, chunk);
            let rows = [0, 1].map(|half| place.scales(warp, 16 * m + 8 * half, k, 2 * (k % STEPS)));
            let scaled = |word, half: usize, i: usize| scaled(warp, word, rows[half][i]);
            operands(scaled(a, 0, 0), scaled(b, 1, 0), scaled(c, 0, 1), scaled(d, 1, 1))
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load_b<W: Warp>(
        warp: W,
        place: Places<W>,
        n: usize,
        k: usize,
        _elements: usize,
    ) -> [[[W::U32; 2]; PRODUCTS]; 2] {
        let chunk = LINE * (k / STEPS) + HEADER + 2 * (k % STEPS);
        // SAFETY: the caller's.
        let (words, scales) = unsafe {
            let scales = [0, 1].map(|i| place.scales(warp, 16 * n + 8 * i, k, k % STEPS));
            (place.words.load_b(warp, n, chunk), scales)
        };
        [0, 1].map(|i| {
            let [low, high] = [0, 1].map(|h| scaled(warp, words[i][h], scales[i][h]));
            [[low[0], low[1]], [low[2], low[3]], [high[0], high[1]], [high[2], high[3]]]
        })
    }
}

/// A operands of pairs, as [`decode`](super::decode) has them: of the upper and the lower row, over 32 values of k and the next.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn operands<U: Copy>(
    upper: [U; 4],
    lower: [U; 4],
    next_upper: [U; 4],
    next_lower: [U; 4],
) -> [[U; 4]; PRODUCTS] {
    let two = |a: [U; 4], b: [U; 4]| [[a[0], b[0], a[1], b[1]], [a[2], b[2], a[3], b[3]]];
    let ([a, b], [c, d]) = (two(upper, lower), two(next_upper, next_lower));
    [a, b, c, d]
}

impl Product for Decoded {
    const BLOCK_SCALED: bool = false;
    const STEP: usize = m16n8k64::K;
    const KEYS: usize = m16n8k64::K;
    const UNIT: f32 = DECODED_UNIT;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn mma<W: Warp>(
        warp: W,
        d: &mut [[W::F32; 4]; 2],
        a: [[W::U32; 4]; PRODUCTS],
        b: [[[W::U32; 2]; PRODUCTS]; 2],
    ) {
        for product in 0..PRODUCTS {
            for i in 0..2 {
                F16::mma(warp, &mut d[i], a[product], b[i][product]);
            }
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn add_rows<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [[W::U32; 4]; PRODUCTS]) {
        let one = warp.splat_f32(1.0);
        let ones = first_column(warp, F16::pack(warp, one, one));
        for product in 0..PRODUCTS {
            F16::mma(warp, d, a[product], ones);
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn round<W: Warp, const N: usize>(
        warp: W,
        probabilities: &[[W::F32; 4]; N],
        k: usize,
    ) -> [[W::U32; 4]; PRODUCTS] {
        let quarters = [0, 1].map(|i| of_lane::<W, N>(probabilities, 2 * k + i));
        let factors = reciprocals(warp, lane_scales(warp, quarters));
        let pairs = |i: usize, half: usize| {
            let [factor, scale] = factors[2 * i + half];
            let values = quarters[i][half].map(|p| rounded(warp, p * factor) * scale);
            [0, 1, 2, 3].map(|pair| F16::pack(warp, values[pair], values[pair + 4]))
        };
        operands(pairs(0, 0), pairs(0, 1), pairs(1, 0), pairs(1, 1))
    }
}
