//! What is fixed when a kernel is compiled: its format, its tile, and from them its shared-memory plan.

use crate::format::Format;

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
}

/// The element of a 16-bit kernel's inputs and outputs.
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

/// Compile-time choices of a persist-D forward kernel: whole rows of Q, K and V lie in shared memory.
///
/// A CTA of `WARPS` warps owns `ROWS` query rows, `ROWS / WARPS` each, and walks over tiles of `KEYS` keys.
pub trait Config {
    /// Element format and its matrix instructions.
    type Format: Format;
    /// Head dim that the tiles hold; smaller ones are zero-filled up to it.
    const D: usize;
    /// Query rows of a CTA.
    const ROWS: usize;
    /// Keys of a tile.
    const KEYS: usize;
    /// Warps of a CTA, one below the other along the rows.
    const WARPS: usize;
    /// Slots for tiles of K: see [`pipeline`](crate::pipeline).
    const K_STAGES: usize;

    /// Threads of a CTA.
    const THREADS: usize = Self::WARPS * 32;
    /// Bytes of one row of a tile.
    const ROW_BYTES: usize = Self::D * 2;
    /// Bytes of the Q tile, which the output tile takes over.
    const Q_BYTES: usize = Self::ROWS * Self::ROW_BYTES;
    /// Bytes of one K or V tile.
    const KV_BYTES: usize = Self::KEYS * Self::ROW_BYTES;
    /// Where K tiles begin in shared memory.
    const K_OFFSET: usize = Self::Q_BYTES;
    /// Where the V tile begins in shared memory.
    const V_OFFSET: usize = Self::K_OFFSET + Self::K_STAGES * Self::KV_BYTES;
    /// Dynamic shared memory of a CTA.
    const SHARED_BYTES: usize = Self::V_OFFSET + Self::KV_BYTES;
}
