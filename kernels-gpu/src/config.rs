//! What is fixed when a kernel is compiled: its format, its tile, and from them its shared-memory plan.

use core::fmt;

use cuda_std::swizzle::LINE;

use crate::format::{Output, Record, Scores, Values};

/// Target of a build: which PTX a row compiles to, and what it may assume of the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arch {
    /// Ada; also what other devices of compute capability 8.9 and up load when nothing nearer is built.
    Sm89,
    /// Hopper.
    Sm90a,
    /// Blackwell GeForce and PRO.
    Sm120f,
}

impl Arch {
    /// All targets, in the order of their compute capability.
    pub const ALL: [Arch; 3] = [Arch::Sm89, Arch::Sm90a, Arch::Sm120f];

    /// The compiler's name of the target: `sm_89`, `sm_90a` or `sm_120f`.
    pub const fn target(self) -> &'static str {
        match self {
            Arch::Sm89 => "sm_89",
            Arch::Sm90a => "sm_90a",
            Arch::Sm120f => "sm_120f",
        }
    }

    /// Shared memory that one CTA may use at most, in bytes (CUDA programming guide, "Compute capabilities").
    pub const fn shared_limit(self) -> usize {
        match self {
            Arch::Sm89 | Arch::Sm120f => 99 * 1024,
            Arch::Sm90a => 227 * 1024,
        }
    }

    /// Whether it has block-scaled matrix instructions (PTX ISA, "Block scaling for mma.sync").
    pub const fn has_block_scaling(self) -> bool {
        matches!(self, Arch::Sm120f)
    }
}

/// The element of a tensor.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl Dtype {
    /// The name users type: `f16` or `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
        }
    }

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        2
    }
}

/// A family of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// In the 16-bit type of the tensors.
    Native,
    /// In FP8 (e4m3), or partly in 8-bit integers.
    Fp8,
    /// In NVFP4 (e2m1 with a scale per 16 elements).
    NvFp4,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 3] = [Family::Native, Family::Fp8, Family::NvFp4];

    /// The name users type: `native`, `fp8` or `nvfp4`.
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Family::Native => "native",
            Family::Fp8 => "fp8",
            Family::NvFp4 => "nvfp4",
        }
    }

    /// The largest head dim of its kernels that builds have unless told otherwise, where that is not a choice of its own.
    #[inline]
    pub const fn window(self) -> usize {
        match self {
            Family::Native => usize::MAX,
            Family::Fp8 => 224,
            Family::NvFp4 => 256,
        }
    }
}

impl fmt::Display for Family {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a kernel's products are computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Q, K, V and the probabilities in IEEE half precision.
    F16,
    /// All in bfloat16.
    Bf16,
    /// All in e4m3, with scales.
    E4m3,
    /// Q and K in 8-bit integers, the others in e4m3, with scales.
    Int8,
    /// All in e2m1, with a scale in ue4m3 for each 16, and others beside those.
    NvFp4,
}

impl Arithmetic {
    /// That of tensors taken as they are.
    pub const fn native(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F16 => Arithmetic::F16,
            Dtype::Bf16 => Arithmetic::Bf16,
        }
    }

    /// Its family.
    #[inline]
    pub const fn family(self) -> Family {
        match self {
            Arithmetic::F16 | Arithmetic::Bf16 => Family::Native,
            Arithmetic::E4m3 | Arithmetic::Int8 => Family::Fp8,
            Arithmetic::NvFp4 => Family::NvFp4,
        }
    }

    /// Whether its numbers are quantised ones, which have scales.
    #[inline]
    pub const fn is_quantized(self) -> bool {
        !matches!(self.family(), Family::Native)
    }

    /// How rows of its numbers lie in memory.
    #[inline]
    pub const fn record(self) -> Record {
        match self {
            Arithmetic::F16 | Arithmetic::Bf16 => Record::Dense(2),
            Arithmetic::E4m3 | Arithmetic::Int8 => Record::Dense(1),
            Arithmetic::NvFp4 => Record::Scaled,
        }
    }

    /// The name in kernels' names: `f16`, `bf16`, `e4m3`, `int8` or `nvfp4`.
    pub const fn name(self) -> &'static str {
        match self {
            Arithmetic::F16 => "f16",
            Arithmetic::Bf16 => "bf16",
            Arithmetic::E4m3 => "e4m3",
            Arithmetic::Int8 => "int8",
            Arithmetic::NvFp4 => "nvfp4",
        }
    }
}

/// Compile-time choices that all forward kernels have.
///
/// A CTA of `WARPS` warps owns `ROWS` query rows and walks over tiles of `KEYS` keys.
pub trait Config {
    /// What Q and K hold, and how they are multiplied.
    type Scores: Scores;
    /// What the probabilities and V hold, and how they are multiplied.
    type Values: Values;
    /// What the output is rounded to.
    type Output: Output;
    /// Head dim that the tiles hold; smaller ones are zero-filled up to it.
    const D: usize;
    /// Query rows of a CTA.
    const ROWS: usize;
    /// Keys of a tile.
    const KEYS: usize;
    /// Warps of a CTA.
    const WARPS: usize;
    /// Whether it takes masks, dropout, and a causal mask over packed heads. Without them a kernel has more registers for everything else: with, the fastest
    /// tiles spill.
    const MASKED: bool;
    /// Dynamic shared memory of a CTA.
    const SHARED_BYTES: usize;

    /// Threads of a CTA.
    const THREADS: usize = Self::WARPS * 32;
    /// The query tile, whole.
    const QUERY: Shape = Shape::new(Self::ROWS, Self::D, Self::Scores::RECORD);
    /// A tile of K, whole.
    const KEY: Shape = Shape::new(Self::KEYS, Self::D, Self::Scores::RECORD);
    /// A tile of V, whole.
    const VALUE: Shape = match Self::Values::TRANSPOSED {
        false => Shape::new(Self::KEYS, Self::D, Self::Values::RECORD),
        true => Shape::new(Self::D, Self::KEYS, Self::Values::RECORD),
    };

    /// The row of V, or of its transposed tiles one below the other, at which the tile of a key begins.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn value_row(key: u32) -> u32 {
        match Self::Values::TRANSPOSED {
            false => key,
            true => key / Self::KEYS as u32 * Self::VALUE.rows as u32,
        }
    }
}

/// How a tile lies in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its rows.
    pub rows: usize,
    /// Bytes of each: what the elements take, in whole lines of the swizzle.
    pub row_bytes: usize,
}

impl Shape {
    /// Of `rows` rows of `elements` elements.
    #[inline] // so that modules of kernels do not hold it
    const fn new(rows: usize, elements: usize, record: Record) -> Self {
        Shape { rows, row_bytes: record.bytes(elements).next_multiple_of(LINE as usize) }
    }

    /// Bytes of the tile.
    pub const fn bytes(self) -> usize {
        self.rows * self.row_bytes
    }
}

/// Whole rows of Q, K and V lie in shared memory. Warps stand one below the other along the query rows.
pub trait PersistD: Config {
    /// Slots for tiles of K: see [`pipeline`](crate::pipeline).
    const K_STAGES: usize;

    /// Where K tiles begin in shared memory: behind the query tile, whose place the output takes at the end.
    const K_OFFSET: usize = Self::QUERY.bytes();
    /// Where the V tile begins.
    const V_OFFSET: usize = Self::K_OFFSET + Self::K_STAGES * Self::KEY.bytes();
    /// Where it ends.
    const END: usize = Self::V_OFFSET + Self::VALUE.bytes();
    /// Barriers in the code: two a tile, and one at the end.
    const BARRIERS: usize = 3;
}

/// As [`PersistD`], by bulk copies: a tile is panels of 128 bytes of each row, and mbarriers say when a tile has arrived and when its slot
/// is free again.
pub trait BulkPersistD: Config {
    /// Warps that only start copies: none, where the first warp that computes does it, one, or, where it gives registers away,
    /// a group of four, of which one starts copies.
    const PRODUCER_WARPS: usize;
    /// Slots for tiles of K, and for tiles of V.
    const STAGES: usize;

    /// Where K tiles begin in shared memory: behind the query tile, whose place the output takes at the end.
    const K_OFFSET: usize = Self::QUERY.bytes();
    /// Where V tiles begin.
    const V_OFFSET: usize = Self::K_OFFSET + Self::STAGES * Self::KEY.bytes();
    /// Where the mbarriers begin: for Q, then for each slot of K and of V one that says it is full and one that it is free.
    const MBARRIERS_OFFSET: usize = Self::V_OFFSET + Self::STAGES * Self::VALUE.bytes();
    /// Where they end.
    const END: usize = Self::MBARRIERS_OFFSET + 8 * (1 + 4 * Self::STAGES);
    /// Barriers in the code: one, when the mbarriers have been made.
    const BARRIERS: usize = 1;
}

/// Q lies in shared memory as panels of 128 bytes of each row; K and V stream through it panel by panel, so that shared memory
/// for them does not grow with D.
///
/// Warps stand in a grid: `WARPS / KEY_WARPS` along the query rows, `KEY_WARPS` along the keys for the scores, and along
/// each panel's columns for the output. Probabilities cross between them through shared memory.
pub trait SplitD: Config {
    /// Warps along the keys, and along a panel's columns.
    const KEY_WARPS: usize;
    /// Whether panels arrive by bulk copies.
    const BULK: bool;
    /// Panels that arrive together: each barrier pays for so many.
    const STEP_PANELS: usize;
    /// Steps in flight or in use.
    const SLOTS: usize;

    /// Columns of a panel, of Q, K and V alike.
    const PANEL_COLUMNS: usize = Self::Scores::RECORD.of_line();
    /// Panels of a row.
    const PANELS: usize = Self::D / Self::PANEL_COLUMNS;
    /// Bytes of one panel of Q.
    const Q_PANEL: usize = Self::ROWS * PANEL_ROW;
    /// Bytes of one panel of K or V.
    const KV_PANEL: usize = Self::KEYS * PANEL_ROW;
    /// Where the probabilities begin: behind Q, as panels of as many keys.
    const P_OFFSET: usize = Self::PANELS * Self::Q_PANEL;
    /// Where the slots begin.
    const SLOTS_OFFSET: usize = Self::P_OFFSET + Self::KEYS.div_ceil(Self::PANEL_COLUMNS) * Self::Q_PANEL;
    /// Bytes of a slot.
    const SLOT: usize = Self::STEP_PANELS * Self::KV_PANEL;
    /// Where the warps' row statistics begin: a float for each row, by warp along the keys.
    const STATISTICS_OFFSET: usize = Self::SLOTS_OFFSET + Self::SLOTS * Self::SLOT;
    /// Where they end, and the mbarriers of bulk copies begin: for Q, then for each slot.
    const MBARRIERS_OFFSET: usize = Self::STATISTICS_OFFSET + Self::KEY_WARPS * Self::ROWS * 4;
    /// Where everything ends.
    const END: usize = Self::MBARRIERS_OFFSET + if Self::BULK { 8 * (1 + Self::SLOTS) } else { 0 };
    /// Steps of a row of panels; the last may have fewer.
    const STEPS: usize = Self::PANELS.div_ceil(Self::STEP_PANELS);
    /// Barriers in the code: one a step, one for the probabilities and one for references that move; at the end one for the
    /// ring, one for the sums and one for the output, if it is staged; one more when mbarriers have been made.
    const BARRIERS: usize = 2 * Self::STEPS + 4 + !Self::Values::QUADS as usize + Self::BULK as usize;

    /// The `i`th panel of a step, counted along the row, if it has one. (Loops over all `i` and asks: loops whose length
    /// depends on the step would not be unrolled.)
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn panel(step: usize, i: usize) -> Option<usize> {
        let panel = step * Self::STEP_PANELS + i;
        (panel < Self::PANELS).then_some(panel)
    }
}

/// Bytes of a panel's row: one line of the swizzle.
pub const PANEL_ROW: usize = LINE as usize;
/// The same in units of 16 bits, in which tensor maps count whatever elements are.
pub const PANEL: usize = PANEL_ROW / 2;
