//! Number formats: what tiles hold, which instruction multiplies them, and how results are rounded.
//!
//! A kernel's two products may be computed differently, so each has a trait of its own: [`Scores`] for `Q K^T`, [`Values`] for
//! `P V`. A [`Recipe`] names both, and what the output is rounded to. A 16-bit [`Element`] is a recipe by itself.

mod bf16;
mod fp8;
mod half;
pub mod nvfp4;

pub use bf16::Bf16;
pub use fp8::{
    BlockScaled, E4m3, E4m3F16, F16_SUMS_LARGEST, F16Sums, Int8, Int8F16, MxE4m3, MxInt8, Plain, Product,
};
pub use half::F16;
pub use nvfp4::{DecodedNvFp4, NvFp4, ScaledNvFp4, ScaledNvFp4By64};

use cuda_std::Warp;
use cuda_std::fragment::{self, m16n8k16};
use cuda_std::swizzle::{CHUNK, LINE};

use crate::abi::Params;
use crate::config::{Arithmetic, Dtype};
use crate::tile::{Place, SharedTile};

/// Elements of the output in a chunk of 16 bytes.
pub const OUTPUT_CHUNK: usize = 8;

/// What a kernel computes in.
pub trait Recipe {
    /// The numbers.
    const ARITHMETIC: Arithmetic;
    /// Whether they are multiplied by block-scaled instructions where others give the same products.
    const BLOCK_SCALED: bool;
    /// Whether blocks of `P V` are summed in f16: V's numbers must then be small enough.
    const F16_SUMS: bool;
    /// `Q K^T`.
    type Scores: Scores;
    /// `P V`.
    type Values: Values;
    /// What the output is rounded to.
    type Output: Output;
}

/// How the elements of a row lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// One behind the other, of so many bytes each, in whole chunks of 16 bytes.
    Dense(usize),
    /// With their scales: see [`nvfp4`].
    Scaled,
}

impl Record {
    /// Bytes of a row of so many elements.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub const fn bytes(self, elements: usize) -> usize {
        match self {
            Record::Dense(each) => (elements * each).next_multiple_of(CHUNK as usize),
            Record::Scaled => nvfp4::row_bytes(elements),
        }
    }

    /// Elements of a line of 128 bytes.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub const fn of_line(self) -> usize {
        match self {
            Record::Dense(1) => LINE as usize,
            Record::Dense(_) => LINE as usize / 2,
            Record::Scaled => nvfp4::LINE_ELEMENTS,
        }
    }
}

/// What lanes hold of the operands of matrix instructions, over a step of k, when rows of tiles go along k.
pub trait Fragments {
    /// Where a lane stands in a tile.
    type Place<W: Warp>: Copy;
    /// An A operand: 16 rows.
    type A<W: Warp>: Copy;
    /// A B operand: 8 columns, which are the tile's rows.
    type B<W: Warp>: Copy;

    /// To load A operands of the rows from `row` on.
    fn place_a<W: Warp>(warp: W, tile: SharedTile, row: u32) -> Self::Place<W>;

    /// To load B operands of the rows from `row` on.
    fn place_b<W: Warp>(warp: W, tile: SharedTile, row: u32) -> Self::Place<W>;

    /// The A operand of rows from `16 m` on, over the `k`th step, of `elements` elements.
    ///
    /// # Safety
    /// The operand lies in the tile's shared memory.
    #[track_caller]
    unsafe fn load_a<W: Warp>(
        warp: W,
        place: Self::Place<W>,
        m: usize,
        k: usize,
        elements: usize,
    ) -> Self::A<W>;

    /// Two B operands, of columns from `16 n` on, over the `k`th step, of `elements` elements.
    ///
    /// # Safety
    /// The operands lie in the tile's shared memory.
    #[track_caller]
    unsafe fn load_b<W: Warp>(
        warp: W,
        place: Self::Place<W>,
        n: usize,
        k: usize,
        elements: usize,
    ) -> [Self::B<W>; 2];
}

/// Elements without scales among them: a step is two chunks, and one instruction takes it.
pub enum Dense {}

impl Fragments for Dense {
    type Place<W: Warp> = Place<W>;
    type A<W: Warp> = [W::U32; 4];
    type B<W: Warp> = [W::U32; 2];

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn place_a<W: Warp>(warp: W, tile: SharedTile, row: u32) -> Place<W> {
        tile.place_a(warp, row)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn place_b<W: Warp>(warp: W, tile: SharedTile, row: u32) -> Place<W> {
        tile.place_b_by_columns(warp, row)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load_a<W: Warp>(warp: W, place: Place<W>, m: usize, k: usize, _elements: usize) -> [W::U32; 4] {
        // SAFETY: the caller's.
        unsafe { place.load_a(warp, m, 2 * k) }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load_b<W: Warp>(
        warp: W,
        place: Place<W>,
        n: usize,
        k: usize,
        _elements: usize,
    ) -> [[W::U32; 2]; 2] {
        // SAFETY: the caller's.
        unsafe { place.load_b(warp, n, 2 * k) }
    }
}

/// How `Q K^T` is computed.
pub trait Scores {
    /// How rows of Q and K lie in memory.
    const RECORD: Record;
    /// Elements of a step of k at most; the last of a row may have fewer.
    const STEP: usize;
    /// Whether Q and K have [`scales`](crate::scales).
    const SCALED: bool;
    /// Whether something may be added to scores of some rows and a key.
    const TERMS: bool;
    /// What the sums are to be multiplied with, beside scales.
    const UNIT: f32;
    /// What the operands are.
    type Fragments: Fragments;
    /// An accumulator register.
    type Sum<W: Warp>: Copy;

    /// An accumulator at zero.
    fn zero<W: Warp>(warp: W) -> Self::Sum<W>;

    /// `d += a b` on two neighbouring 16x8 tiles, over a step of k.
    fn mma<W: Warp>(
        warp: W,
        d: &mut [[Self::Sum<W>; 4]; 2],
        a: <Self::Fragments as Fragments>::A<W>,
        b: [<Self::Fragments as Fragments>::B<W>; 2],
    );

    /// What an accumulator holds.
    fn float<W: Warp>(warp: W, sum: Self::Sum<W>) -> W::F32;
}

/// How `P V` is computed.
pub trait Values {
    /// How rows of V lie in memory.
    const RECORD: Record;
    /// Whether those are columns of V: a tile is then of all columns, over its keys.
    const TRANSPOSED: bool;
    /// Keys of a step of k.
    const STEP: usize;
    /// Steps of k that are taken together: a block of keys where each is summed by itself, and otherwise one, so that few
    /// probabilities are in registers at a time.
    const STEPS: usize;
    /// Growth of a row's maximum, in powers of two, that goes without rescaling: see [`softmax`](crate::softmax).
    const SLACK: f32;
    /// What a probability of 1 is stored as.
    const ONE: f32;
    /// The base-2 logarithm of that.
    const ONE_LOG2: f32;
    /// What sums of products are to be multiplied with, beside scales.
    const UNIT: f32;
    /// Whether P is rounded so coarsely that a row's sum must be that of the rounded ones.
    const ROUNDED_SUMS: bool;
    /// Whether V's blocks of keys have [`scales`](crate::scales): each is then summed by itself.
    const BLOCK_SCALES: bool;
    /// Whether V's columns have them.
    const COLUMN_SCALES: bool;
    /// Where a lane stands in a tile of V.
    type Place<W: Warp>: Copy;
    /// Probabilities of 16 rows over a step of k, rounded: an A operand.
    type P<W: Warp>: Copy;
    /// A B operand: 8 columns of the output, over a step of k.
    type B<W: Warp>: Copy;
    /// The accumulators of one 16x8 tile of `P V`, over [`Values::STEPS`] steps.
    type Sums<W: Warp>: Copy;

    /// Accumulators for a tile of the output to be added to: the output itself, or zeros where each block of keys is summed by
    /// itself.
    fn begin<W: Warp>(warp: W, output: [W::F32; 4]) -> Self::Sums<W>;

    /// `sums += p b` on two neighbouring 16x8 tiles, over a step of k.
    fn add<W: Warp>(warp: W, sums: &mut [Self::Sums<W>; 2], p: Self::P<W>, b: [Self::B<W>; 2]);

    /// The output with the sums that [`Values::begin`] began, times `factor` where V's blocks have scales.
    fn end<W: Warp>(warp: W, sums: Self::Sums<W>, factor: W::F32, output: [W::F32; 4]) -> [W::F32; 4];

    /// The `k`th step of 16 rows of probabilities, rounded.
    fn round<W: Warp, const N: usize>(warp: W, probabilities: &[[W::F32; 4]; N], k: usize) -> Self::P<W>;

    /// Adds each row's rounded probabilities to the first column of a tile, and zeros to the others.
    fn add_rounded<W: Warp>(warp: W, sums: &mut [W::F32; 4], p: Self::P<W>);

    /// Whether the columns of a lane's accumulators in column tiles `2 n` and `2 n + 1` are four neighbours, in the order of the
    /// registers and, for each, of the tiles.
    const QUADS: bool;

    /// The column of the output that the accumulators `r` of column tile `n` are of, counted from the first of the operands that
    /// were loaded.
    fn column<W: Warp>(warp: W, n: usize, r: usize) -> W::U32;

    /// Where a lane stands in a tile of V to [`Values::load`] operands from column tile `column` on, an even one.
    fn place<W: Warp>(warp: W, tile: SharedTile, column: u32) -> Self::Place<W>;

    /// The B operands of column tiles `2 n` and `2 n + 1`, over the `k`th step of keys, in the keys' order of [`Values::round`].
    ///
    /// # Safety
    /// The operands lie in the tile's shared memory.
    #[track_caller]
    unsafe fn load<W: Warp>(warp: W, place: Self::Place<W>, k: usize, n: usize) -> [Self::B<W>; 2];
}

/// What the output is rounded to: 16 bits.
pub trait Output {
    /// Two floats rounded, `low` in the low half of the word.
    fn pack<W: Warp>(warp: W, params: &Params, low: W::F32, high: W::F32) -> W::U32;
}

/// A 16-bit element format.
pub trait Element {
    /// Its tag.
    const DTYPE: Dtype;

    /// `d += a b` on one 16x8 tile over 16 values of k.
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]);

    /// Two floats rounded to the format, `low` in the low half of the word.
    fn pack<W: Warp>(warp: W, low: W::F32, high: W::F32) -> W::U32;

    /// The two elements of a word, the low one first.
    fn unpack<W: Warp>(warp: W, word: W::U32) -> [W::F32; 2];
}

impl<E: Element> Recipe for E {
    const ARITHMETIC: Arithmetic = Arithmetic::native(E::DTYPE);
    const BLOCK_SCALED: bool = false;
    const F16_SUMS: bool = false;
    type Scores = E;
    type Values = E;
    type Output = E;
}

impl<E: Element> Scores for E {
    const RECORD: Record = Record::Dense(2);
    const STEP: usize = m16n8k16::K;
    const SCALED: bool = false;
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
        E::mma(warp, left, a, b[0]);
        E::mma(warp, right, a, b[1]);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn float<W: Warp>(_warp: W, sum: W::F32) -> W::F32 {
        sum
    }
}

impl<E: Element> Values for E {
    const RECORD: Record = Record::Dense(2);
    const TRANSPOSED: bool = false;
    const STEP: usize = m16n8k16::K;
    const STEPS: usize = 1;
    /// Probabilities may then reach 2^8, which no 16-bit format minds.
    const SLACK: f32 = 8.0;
    const ONE: f32 = 1.0;
    const ONE_LOG2: f32 = 0.0;
    const UNIT: f32 = 1.0;
    const ROUNDED_SUMS: bool = false;
    const BLOCK_SCALES: bool = false;
    const COLUMN_SCALES: bool = false;
    const QUADS: bool = false;
    type Place<W: Warp> = Place<W>;
    type P<W: Warp> = [W::U32; 4];
    type B<W: Warp> = [W::U32; 2];
    type Sums<W: Warp> = [W::F32; 4];

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn begin<W: Warp>(_warp: W, output: [W::F32; 4]) -> [W::F32; 4] {
        output
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn add<W: Warp>(warp: W, [left, right]: &mut [[W::F32; 4]; 2], p: [W::U32; 4], b: [[W::U32; 2]; 2]) {
        E::mma(warp, left, p, b[0]);
        E::mma(warp, right, p, b[1]);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn end<W: Warp>(_warp: W, sums: [W::F32; 4], _factor: W::F32, _output: [W::F32; 4]) -> [W::F32; 4] {
        sums
    }

    /// They never leave the registers: the accumulators of two neighbouring 16x8 tiles are, pair by pair, the A operand of the
    /// next product (FlashAttention-2, section 3).
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn round<W: Warp, const N: usize>(warp: W, probabilities: &[[W::F32; 4]; N], k: usize) -> [W::U32; 4] {
        let [left, right] = [probabilities[2 * k], probabilities[2 * k + 1]];
        [
            E::pack(warp, left[0], left[1]),
            E::pack(warp, left[2], left[3]),
            E::pack(warp, right[0], right[1]),
            E::pack(warp, right[2], right[3]),
        ]
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn add_rounded<W: Warp>(warp: W, sums: &mut [W::F32; 4], p: [W::U32; 4]) {
        let one = warp.splat_f32(1.0);
        E::mma(warp, sums, p, first_column(warp, E::pack(warp, one, one)));
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn column<W: Warp>(warp: W, n: usize, r: usize) -> W::U32 {
        m16n8k16::accumulator(warp.lane_id(), r as u32).1 + (n * m16n8k16::N) as u32
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn place<W: Warp>(warp: W, tile: SharedTile, column: u32) -> Place<W> {
        let (row, chunk) = fragment::load_matrix::b_by_rows(warp.lane_id());
        tile.place(row, chunk + column)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load<W: Warp>(warp: W, place: Place<W>, k: usize, n: usize) -> [[W::U32; 2]; 2] {
        // SAFETY: the caller's.
        let [a, b, c, d] = unsafe { warp.load_matrix_transposed_x4(place.at(16 * k, 2 * n)) };
        [[a, b], [c, d]]
    }
}

impl<E: Element> Output for E {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn pack<W: Warp>(warp: W, _params: &Params, low: W::F32, high: W::F32) -> W::U32 {
        E::pack(warp, low, high)
    }
}

/// The B operand whose first column is of these words, and whose others are zeros.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn first_column<W: Warp>(warp: W, word: W::U32) -> [W::U32; 2] {
    let first = warp.less(warp.lane_id(), warp.splat(4));
    [warp.select(first, word, warp.splat(0)); 2]
}

/// What the call asks for.
pub enum AsAsked {}

impl Output for AsAsked {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn pack<W: Warp>(warp: W, params: &Params, low: W::F32, high: W::F32) -> W::U32 {
        match params.output {
            Dtype::F16 => <F16 as Element>::pack(warp, low, high),
            Dtype::Bf16 => <Bf16 as Element>::pack(warp, low, high),
        }
    }
}
