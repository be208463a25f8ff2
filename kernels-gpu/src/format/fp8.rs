//! Eight bits: e4m3 (OCP 8-bit floating point) for all of Q, K, V and P, or integers for Q and K, which are four times as
//! exact there (SageAttention 2).
//!
//! Probabilities are stored as 448, the largest e4m3, times what they are: in 0 to 1 most would be subnormal. None may exceed
//! that, so references move with every growth of a row's maximum.
//!
//! V lies in shared memory key by key, and `ldmatrix` transposes 16-bit elements, here pairs of neighbouring columns. Bytes
//! 0 and 2 of its words are the even column's keys, bytes 1 and 3 the odd one's. So of two neighbouring column tiles of the
//! output one has the even columns of 16 and the other the odd ones; and the keys come in an order in which the
//! accumulators of four neighbouring tiles of scores are, packed, an A operand: no value crosses lanes.

use core::marker::PhantomData;

use cuda_std::Warp;
use cuda_std::fragment::m16n8k32;

use super::{AsAsked, Dense, Element, F16, Recipe, Record, Scores, Values, first_column};
use crate::config::Arithmetic;
use crate::scales::BLOCK;
use crate::tile::{Place, SharedTile};

/// e4m3: a sign, four bits of exponent, three of mantissa.
pub struct E4m3<P = Plain>(PhantomData<P>);

/// Signed integers for Q and K, e4m3 for P and V.
pub struct Int8<P = Plain>(PhantomData<P>);

/// [`E4m3`] by block-scaled instructions.
pub type MxE4m3 = E4m3<BlockScaled>;

/// [`Int8`] whose P and V are multiplied by block-scaled instructions.
pub type MxInt8 = Int8<BlockScaled>;

/// [`E4m3`] whose blocks of `P V` are summed in f16.
pub type E4m3F16 = E4m3<F16Sums>;

/// [`Int8`] whose blocks of `P V` are summed in f16.
pub type Int8F16 = Int8<F16Sums>;

/// Instructions that multiply e4m3: all of them the same products.
pub trait Product {
    /// Whether they are block-scaled ones.
    const BLOCK_SCALED: bool;
    /// Whether blocks of `P V` are summed in f16.
    const F16_SUMS: bool;
    /// The accumulators of one 16x8 tile of a block of `P V`.
    type Sums<W: Warp>: Copy;

    /// `d += a b` on one 16x8 tile over 32 values of k.
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]);

    /// Accumulators at zero.
    fn zero<W: Warp>(warp: W) -> Self::Sums<W>;

    /// As [`Product::mma`], for a block of `P V`.
    fn add<W: Warp>(warp: W, sums: &mut Self::Sums<W>, a: [W::U32; 4], b: [W::U32; 2]);

    /// What accumulators hold.
    fn floats<W: Warp>(warp: W, sums: Self::Sums<W>) -> [W::F32; 4];
}

/// One whose sums are all f32.
macro_rules! full_sums {
    () => {
        const F16_SUMS: bool = false;
        type Sums<W: Warp> = [W::F32; 4];

        #[cfg_attr(target_arch = "nvptx64", inline(always))]
        fn zero<W: Warp>(warp: W) -> [W::F32; 4] {
            [warp.splat_f32(0.0); 4]
        }

        #[cfg_attr(target_arch = "nvptx64", inline(always))]
        fn add<W: Warp>(warp: W, sums: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]) {
            Self::mma(warp, sums, a, b);
        }

        #[cfg_attr(target_arch = "nvptx64", inline(always))]
        fn floats<W: Warp>(_warp: W, sums: [W::F32; 4]) -> [W::F32; 4] {
            sums
        }
    };
}

/// The one that every architecture has.
pub enum Plain {}

/// The one of MXFP8 (OCP microscaling formats), with all scales one: sm_120f only.
pub enum BlockScaled {}

/// The one that every architecture has, but blocks of `P V` are summed in f16, which GeForce does at twice the rate. Values
/// are brought to at most [`F16_SUMS_LARGEST`], so that no sum exceeds what f16 holds (SageAttention 2++, Zhang et al. 2025).
pub enum F16Sums {}

/// The largest number that V becomes for sums in f16: with probabilities of at most 448 a block of 64 keys is at most 64512.
pub const F16_SUMS_LARGEST: f32 = 2.25;
const _: () = assert!(BLOCK as f32 * <E4m3<F16Sums> as Values>::ONE * F16_SUMS_LARGEST <= 65504.0);

impl Product for Plain {
    const BLOCK_SCALED: bool = false;
    full_sums!();

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]) {
        warp.mma_m16n8k32_e4m3(d, a, b);
    }
}

impl Product for BlockScaled {
    const BLOCK_SCALED: bool = true;
    full_sums!();

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]) {
        warp.mma_m16n8k32_mxf8(d, a, b);
    }
}

impl Product for F16Sums {
    const BLOCK_SCALED: bool = false;
    const F16_SUMS: bool = true;
    type Sums<W: Warp> = [W::U32; 2];

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]) {
        Plain::mma(warp, d, a, b);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn zero<W: Warp>(warp: W) -> [W::U32; 2] {
        [warp.splat(0); 2]
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn add<W: Warp>(warp: W, sums: &mut [W::U32; 2], a: [W::U32; 4], b: [W::U32; 2]) {
        warp.mma_m16n8k32_e4m3_f16(sums, a, b);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn floats<W: Warp>(warp: W, sums: [W::U32; 2]) -> [W::F32; 4] {
        let [[a, b], [c, d]] = sums.map(|word| F16::unpack(warp, word));
        [a, b, c, d]
    }
}

impl<P: Product> Recipe for E4m3<P> {
    const ARITHMETIC: Arithmetic = Arithmetic::E4m3;
    const BLOCK_SCALED: bool = P::BLOCK_SCALED;
    const F16_SUMS: bool = P::F16_SUMS;
    type Scores = E4m3<P>;
    type Values = E4m3<P>;
    type Output = AsAsked;
}

impl<P: Product> Recipe for Int8<P> {
    const ARITHMETIC: Arithmetic = Arithmetic::Int8;
    const BLOCK_SCALED: bool = P::BLOCK_SCALED;
    const F16_SUMS: bool = P::F16_SUMS;
    type Scores = Int8<P>;
    type Values = E4m3<P>;
    type Output = AsAsked;
}

impl<P: Product> Scores for E4m3<P> {
    const RECORD: Record = Record::Dense(1);
    const STEP: usize = m16n8k32::K;
    const SCALED: bool = true;
    const TERMS: bool = false;
    const UNIT: f32 = 1.0;
    type Fragments = Dense;
    type Sum<W: Warp> = W::F32;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn zero<W: Warp>(warp: W) -> W::F32 {
        warp.splat_f32(0.0)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn mma<W: Warp>(warp: W, [left, right]: &mut [[W::F32; 4]; 2], a: [W::U32; 4], b: [[W::U32; 2]; 2]) {
        P::mma(warp, left, a, b[0]);
        P::mma(warp, right, a, b[1]);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn float<W: Warp>(_warp: W, sum: W::F32) -> W::F32 {
        sum
    }
}

impl<P> Scores for Int8<P> {
    const RECORD: Record = Record::Dense(1);
    const STEP: usize = m16n8k32::K;
    const SCALED: bool = true;
    const TERMS: bool = false;
    const UNIT: f32 = 1.0;
    type Fragments = Dense;
    type Sum<W: Warp> = W::U32;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn zero<W: Warp>(warp: W) -> W::U32 {
        warp.splat(0)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn mma<W: Warp>(warp: W, [left, right]: &mut [[W::U32; 4]; 2], a: [W::U32; 4], b: [[W::U32; 2]; 2]) {
        warp.mma_m16n8k32_s8(left, a, b[0]);
        warp.mma_m16n8k32_s8(right, a, b[1]);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn float<W: Warp>(warp: W, sum: W::U32) -> W::F32 {
        warp.float_from_signed(sum)
    }
}

impl<P: Product> Values for E4m3<P> {
    const RECORD: Record = Record::Dense(1);
    const TRANSPOSED: bool = false;
    const STEP: usize = m16n8k32::K;
    /// Sums of products keep so few bits that each block must be summed by itself.
    const STEPS: usize = BLOCK / <Self as Values>::STEP;
    const SLACK: f32 = 0.0;
    const ONE: f32 = 448.0;
    const ONE_LOG2: f32 = 8.807_355;
    const UNIT: f32 = 1.0;
    const ROUNDED_SUMS: bool = true;
    const BLOCK_SCALES: bool = true;
    const COLUMN_SCALES: bool = true;
    const QUADS: bool = true;
    type Place<W: Warp> = Place<W>;
    type P<W: Warp> = [W::U32; 4];
    type B<W: Warp> = [W::U32; 2];
    type Sums<W: Warp> = P::Sums<W>;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn begin<W: Warp>(warp: W, _output: [W::F32; 4]) -> P::Sums<W> {
        P::zero(warp)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn add<W: Warp>(warp: W, [left, right]: &mut [P::Sums<W>; 2], p: [W::U32; 4], b: [[W::U32; 2]; 2]) {
        P::add(warp, left, p, b[0]);
        P::add(warp, right, p, b[1]);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn end<W: Warp>(warp: W, sums: P::Sums<W>, factor: W::F32, mut output: [W::F32; 4]) -> [W::F32; 4] {
        let sums = P::floats(warp, sums);
        for r in 0..4 {
            output[r] = warp.fma(sums[r], factor, output[r]);
        }
        output
    }

    /// A register holds four values of k: two each of two neighbouring tiles.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn round<W: Warp, const N: usize>(warp: W, probabilities: &[[W::F32; 4]; N], k: usize) -> [W::U32; 4] {
        let quarter = |half: usize, right: usize| {
            let [a, b] = [0, 1].map(|i| probabilities[4 * k + 2 * right + i]);
            warp.pack_e4m3([a[2 * half], a[2 * half + 1], b[2 * half], b[2 * half + 1]])
        };
        [quarter(0, 0), quarter(1, 0), quarter(0, 1), quarter(1, 1)]
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn add_rounded<W: Warp>(warp: W, sums: &mut [W::F32; 4], p: [W::U32; 4]) {
        const ONES: u32 = 0x3838_3838;
        P::mma(warp, sums, p, first_column(warp, warp.splat(ONES)));
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn column<W: Warp>(warp: W, n: usize, r: usize) -> W::U32 {
        ((warp.lane_id() & 3) << 2) + (16 * (n / 2) + 2 * (r % 2) + n % 2) as u32
    }

    /// Lane `l` points at key `l`: the four matrices are eight keys each.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn place<W: Warp>(warp: W, tile: SharedTile, column: u32) -> Place<W> {
        tile.place(warp.lane_id(), warp.splat(column / 2))
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load<W: Warp>(warp: W, place: Place<W>, k: usize, n: usize) -> [[W::U32; 2]; 2] {
        // SAFETY: the caller's.
        let [a, b, c, d] = unsafe { warp.load_matrix_transposed_x4(place.at(32 * k, n)) };
        let columns = |selector| [warp.permute_bytes(a, b, selector), warp.permute_bytes(c, d, selector)];
        [columns(0x6420), columns(0x7531)]
    }
}
