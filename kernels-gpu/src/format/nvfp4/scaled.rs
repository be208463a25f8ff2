//! Products by block-scaled instructions (PTX ISA, "Block scaling for mma.sync"): sm_120f only.

use cuda_std::Warp;
use cuda_std::fragment::m16n8k64;

use super::super::{Fragments, first_column};
use super::products::{Product, lane_scales, of_lane, reciprocals};
use super::{LINE_ELEMENTS, Rounding};
use crate::tile::{Place, SharedTile};

/// Block-scaled instructions; values of tiles of so many keys.
pub enum Scaled<const KEYS: usize> {}

/// Instructions along a line.
const STEPS: usize = LINE_ELEMENTS / m16n8k64::K;
/// Chunks of a line.
const LINE: usize = 8;
/// Chunks of a line before its elements.
const HEADER: usize = super::HEADER / 16;

/// An operand of `REGISTERS` words over a line, or as much of it as there is.
#[derive(Clone, Copy)]
pub struct Line<U, const REGISTERS: usize> {
    /// By instruction.
    words: [[U; REGISTERS]; STEPS],
    /// By instruction: a word of scales, and which of the lanes hold it that could.
    scales: [(U, u32); STEPS],
    /// Instructions.
    steps: usize,
}

impl<const KEYS: usize> Fragments for Scaled<KEYS> {
    type Place<W: Warp> = Place<W>;
    type A<W: Warp> = Line<W::U32, 4>;
    type B<W: Warp> = Line<W::U32, 2>;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn place_a<W: Warp>(warp: W, tile: SharedTile, row: u32) -> Place<W> {
        tile.place_a(warp, row)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn place_b<W: Warp>(warp: W, tile: SharedTile, row: u32) -> Place<W> {
        tile.place_b_by_columns(warp, row)
    }

    /// Of a row's four lanes the instruction takes the scales of the upper row from an even one, and of the lower row from the odd
    /// one beside it, either from the first two or from the others.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load_a<W: Warp>(
        warp: W,
        place: Place<W>,
        m: usize,
        k: usize,
        elements: usize,
    ) -> Line<W::U32, 4> {
        // SAFETY: the caller's, here and below.
        let [upper, lower, upper_third, lower_third] = unsafe { place.load_a(warp, m, LINE * k) };
        let odd = warp.less(warp.splat(0), warp.lane_id() & 1);
        let (both, third) = (warp.select(odd, lower, upper), warp.select(odd, lower_third, upper_third));
        let mut line = Line {
            words: [[warp.splat(0); 4]; STEPS],
            scales: [(both, 0), (both, 1), (third, 0)],
            steps: elements / m16n8k64::K,
        };
        for step in 0..line.steps {
            // SAFETY: see above.
            line.words[step] = unsafe { place.load_a(warp, m, LINE * k + HEADER + 2 * step) };
        }
        line
    }

    /// Lane `t` of a column's four holds its scales of the `t`th step.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load_b<W: Warp>(
        warp: W,
        place: Place<W>,
        n: usize,
        k: usize,
        elements: usize,
    ) -> [Line<W::U32, 2>; 2] {
        // SAFETY: the caller's, here and below.
        let headers = unsafe { place.load_b(warp, n, LINE * k) };
        let mut lines = headers.map(|[scales, _]| Line {
            words: [[warp.splat(0); 2]; STEPS],
            scales: [(scales, 0), (scales, 1), (scales, 2)],
            steps: elements / m16n8k64::K,
        });
        for step in 0..elements / m16n8k64::K {
            // SAFETY: see above.
            let [left, right] = unsafe { place.load_b(warp, n, LINE * k + HEADER + 2 * step) };
            (lines[0].words[step], lines[1].words[step]) = (left, right);
        }
        lines
    }
}

/// `d += a b` over an instruction's elements.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: &Line<W::U32, 4>, b: &Line<W::U32, 2>, step: usize) {
    let ((scale_a, a_lanes), (scale_b, b_lanes)) = (a.scales[step], b.scales[step]);
    let (a, b) = (a.words[step], b.words[step]);
    match (a_lanes, b_lanes) {
        (0, 0) => warp.mma_m16n8k64_nvf4::<0, 0>(d, a, b, scale_a, scale_b),
        (0, 1) => warp.mma_m16n8k64_nvf4::<0, 1>(d, a, b, scale_a, scale_b),
        (0, _) => warp.mma_m16n8k64_nvf4::<0, 2>(d, a, b, scale_a, scale_b),
        (_, _) => warp.mma_m16n8k64_nvf4::<1, 1>(d, a, b, scale_a, scale_b),
    }
}

impl<const KEYS: usize> Product for Scaled<KEYS> {
    const BLOCK_SCALED: bool = true;
    const STEP: usize = LINE_ELEMENTS;
    const KEYS: usize = KEYS;
    const UNIT: f32 = 1.0;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn mma<W: Warp>(warp: W, d: &mut [[W::F32; 4]; 2], a: Line<W::U32, 4>, b: [Line<W::U32, 2>; 2]) {
        for step in 0..a.steps {
            for i in 0..2 {
                mma(warp, &mut d[i], &a, &b[i], step);
            }
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn add_rows<W: Warp>(warp: W, d: &mut [W::F32; 4], a: Line<W::U32, 4>) {
        const ONES: u32 = 0x2222_2222;
        let scales = warp.splat(0x3838_3838);
        let words = [first_column(warp, warp.splat(ONES)); STEPS];
        let ones = Line { words, scales: [(scales, 0), (scales, 1), (scales, 2)], steps: a.steps };
        for step in 0..a.steps {
            mma(warp, d, &a, &ones, step);
        }
    }

    /// A lane holds two of four blocks' scales for each of two rows, and another the others: the instruction takes a row's four
    /// from one lane.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn round<W: Warp, const N: usize>(
        warp: W,
        probabilities: &[[W::F32; 4]; N],
        k: usize,
    ) -> Line<W::U32, 4> {
        let odd = warp.less(warp.splat(0), warp.lane_id() & 1);
        let mut line = Line {
            words: [[warp.splat(0); 4]; STEPS],
            scales: [(warp.splat(0), 0); STEPS],
            steps: Self::KEYS / m16n8k64::K,
        };
        for step in 0..line.steps {
            let first = 4 * k + 2 * step;
            let quarters = [0, 1].map(|i| of_lane::<W, N>(probabilities, first + i));
            let own = lane_scales(warp, quarters);
            let factors = reciprocals(warp, own);
            for i in 0..2 {
                for half in 0..2 {
                    let [factor, _] = factors[2 * i + half];
                    let values = quarters[i][half].map(|p| p * factor);
                    line.words[step][2 * i + half] = super::Instruction::pack(warp, values);
                }
            }
            let other = warp.bits_from_float(warp.shuffle_xor(warp.float_from_bits(own), 2));
            let of_row = |selector| warp.permute_bytes(own, other, selector);
            line.scales[step] = (warp.select(odd, of_row(0x7351), of_row(0x6240)), 0);
        }
        line
    }
}
