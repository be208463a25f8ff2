//! The kernels that bring 16-bit tensors to eight bits.

use super::{Entry, runs};
use crate::abi::QuantizeParams;
use crate::config::{Arch, Family};
use crate::format::nvfp4;
use crate::quantize::{rows, statistics, terms};

/// What a quantising kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Statistics of the columns of K and V.
    Statistics,
    /// Rows to bytes.
    Rows,
    /// Rows to NVFP4.
    NvFp4,
    /// What scores lack when the means of queries are subtracted from them.
    Terms,
}

/// What the host knows of a quantising kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Quantize {
    /// Name of the PTX entry.
    pub name: &'static str,
    /// What it is compiled for.
    pub arch: Arch,
    /// What it does.
    pub stage: Stage,
    /// Whether it rotates Q and K.
    pub rotated: bool,
    /// The largest head dim that it takes.
    pub head_dim: usize,
    /// CTAs that must fit on a multiprocessor: bounds the registers of a thread.
    pub min_blocks: usize,
}

impl Quantize {
    /// Threads of a CTA.
    pub const fn threads(&self) -> usize {
        32 * match self.stage {
            Stage::Statistics => statistics::WARPS,
            Stage::Rows | Stage::NvFp4 => rows::WARPS,
            Stage::Terms => terms::WARPS,
        }
    }

    /// Steps in which a warp goes over its rows of a block.
    // Only the host asks: without the attribute, devices would have it as a function.
    #[inline]
    pub const fn steps(&self) -> usize {
        rows::steps(self.head_dim)
    }

    /// Whether it quantises for a family.
    #[inline]
    pub const fn serves(&self, family: Family) -> bool {
        match self.stage {
            Stage::Statistics => !matches!(family, Family::Native),
            Stage::Rows => matches!(family, Family::Fp8),
            Stage::NvFp4 | Stage::Terms => matches!(family, Family::NvFp4),
        }
    }

    /// Its entry.
    pub fn entry(&self) -> Entry {
        let (shared_bytes, barriers) = match self.stage {
            Stage::Statistics => (statistics::SHARED_BYTES, statistics::BARRIERS),
            Stage::Rows => (rows::shared_bytes(self.head_dim), rows::BARRIERS),
            Stage::NvFp4 => (rows::shared_bytes(self.head_dim), rows::NVFP4_BARRIERS),
            Stage::Terms => (terms::shared_bytes(self.head_dim), terms::BARRIERS),
        };
        Entry {
            name: self.name,
            arch: self.arch,
            threads: self.threads(),
            shared_bytes,
            min_blocks: self.min_blocks,
            barriers,
            spill_allowance: 0,
            ptx_version: match self.stage {
                Stage::Rows | Stage::NvFp4 if self.arch == Arch::Sm89 => Some("8.1"),
                Stage::Rows | Stage::NvFp4 | Stage::Statistics | Stage::Terms => None,
            },
        }
    }
}

macro_rules! quantizes {
    ($($name:ident: $arch:ident $kind:ident D $d:literal min_blocks $min_blocks:literal;)*) => {
        /// Every quantising kernel there is.
        pub const QUANTIZES: &[Quantize] = &[$(Quantize {
            name: stringify!($name),
            arch: Arch::$arch,
            stage: quantizes!(@stage $kind),
            rotated: quantizes!(@rotated $kind),
            head_dim: $d,
            min_blocks: $min_blocks,
        }),*];

        runs! {
            fn emulate_quantize(warp, params: QuantizeParams, _address) {
                $($name => quantizes!(@run $kind $d)(warp, params);)*
            }
        }
    };

    (@run Statistics $d:literal) => { statistics::statistics };
    (@run Terms $d:literal) => { terms::terms };
    (@run NvFp4 $d:literal) => { quantizes!(@nvfp4 Additions $d) };
    (@run NvFp4Instruction $d:literal) => { quantizes!(@nvfp4 Instruction $d) };
    (@nvfp4 $rounding:ident $d:literal) => {
        rows::quantize_nvfp4::<
            _,
            nvfp4::$rounding,
            { rows::lanes($d) },
            { rows::pieces($d) },
            { rows::passes($d) },
        >
    };
    (@run $kind:ident $d:literal) => {
        rows::quantize::<
            _,
            { rows::lanes($d) },
            { rows::pieces($d) },
            { rows::passes($d) },
            { quantizes!(@rotated $kind) },
        >
    };

    (@stage Statistics) => { Stage::Statistics };
    (@stage Terms) => { Stage::Terms };
    (@stage NvFp4) => { Stage::NvFp4 };
    (@stage NvFp4Instruction) => { Stage::NvFp4 };
    (@stage $kind:ident) => { Stage::Rows };

    (@rotated RotatedRows) => { true };
    (@rotated $kind:ident) => { false };
}

quantizes! {
    statistics_sm89: Sm89 Statistics D 1024 min_blocks 4;
    quantize_64_sm89: Sm89 Rows D 64 min_blocks 6;
    quantize_128_sm89: Sm89 Rows D 128 min_blocks 4;
    quantize_256_sm89: Sm89 Rows D 256 min_blocks 5;
    quantize_512_sm89: Sm89 Rows D 512 min_blocks 3;
    quantize_1024_sm89: Sm89 Rows D 1024 min_blocks 3;
    quantize_rotated_64_sm89: Sm89 RotatedRows D 64 min_blocks 5;
    quantize_rotated_128_sm89: Sm89 RotatedRows D 128 min_blocks 3;
    quantize_rotated_256_sm89: Sm89 RotatedRows D 256 min_blocks 4;
    quantize_rotated_512_sm89: Sm89 RotatedRows D 512 min_blocks 2;
    quantize_rotated_1024_sm89: Sm89 RotatedRows D 1024 min_blocks 2;
    statistics_sm90a: Sm90a Statistics D 1024 min_blocks 4;
    quantize_64_sm90a: Sm90a Rows D 64 min_blocks 6;
    quantize_128_sm90a: Sm90a Rows D 128 min_blocks 4;
    quantize_256_sm90a: Sm90a Rows D 256 min_blocks 5;
    quantize_512_sm90a: Sm90a Rows D 512 min_blocks 3;
    quantize_1024_sm90a: Sm90a Rows D 1024 min_blocks 3;
    quantize_rotated_64_sm90a: Sm90a RotatedRows D 64 min_blocks 5;
    quantize_rotated_128_sm90a: Sm90a RotatedRows D 128 min_blocks 3;
    quantize_rotated_256_sm90a: Sm90a RotatedRows D 256 min_blocks 4;
    quantize_rotated_512_sm90a: Sm90a RotatedRows D 512 min_blocks 2;
    quantize_rotated_1024_sm90a: Sm90a RotatedRows D 1024 min_blocks 2;
    statistics_sm120f: Sm120f Statistics D 1024 min_blocks 4;
    quantize_64_sm120f: Sm120f Rows D 64 min_blocks 6;
    quantize_128_sm120f: Sm120f Rows D 128 min_blocks 4;
    quantize_256_sm120f: Sm120f Rows D 256 min_blocks 5;
    quantize_512_sm120f: Sm120f Rows D 512 min_blocks 3;
    quantize_1024_sm120f: Sm120f Rows D 1024 min_blocks 3;
    quantize_rotated_64_sm120f: Sm120f RotatedRows D 64 min_blocks 5;
    quantize_rotated_128_sm120f: Sm120f RotatedRows D 128 min_blocks 3;
    quantize_rotated_256_sm120f: Sm120f RotatedRows D 256 min_blocks 4;
    quantize_rotated_512_sm120f: Sm120f RotatedRows D 512 min_blocks 2;
    quantize_rotated_1024_sm120f: Sm120f RotatedRows D 1024 min_blocks 2;
    quantize_nvfp4_64_sm89: Sm89 NvFp4 D 64 min_blocks 2;
    quantize_nvfp4_128_sm89: Sm89 NvFp4 D 128 min_blocks 2;
    quantize_nvfp4_256_sm89: Sm89 NvFp4 D 256 min_blocks 2;
    terms_sm89: Sm89 Terms D 256 min_blocks 4;
    terms_sm90a: Sm90a Terms D 256 min_blocks 4;
    terms_sm120f: Sm120f Terms D 256 min_blocks 4;
    quantize_nvfp4_64_sm90a: Sm90a NvFp4 D 64 min_blocks 2;
    quantize_nvfp4_128_sm90a: Sm90a NvFp4 D 128 min_blocks 2;
    quantize_nvfp4_256_sm90a: Sm90a NvFp4 D 256 min_blocks 2;
    quantize_nvfp4_64_sm120f: Sm120f NvFp4Instruction D 64 min_blocks 2;
    quantize_nvfp4_128_sm120f: Sm120f NvFp4Instruction D 128 min_blocks 2;
    quantize_nvfp4_256_sm120f: Sm120f NvFp4Instruction D 256 min_blocks 2;
}
