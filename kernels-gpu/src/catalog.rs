//! The table of kernels. A kernel exists because a row says so.
//!
//! Each row expands to three things from the same constants: the PTX entry (on the device target, under
//! `--cfg NAME`, so that each module holds one kernel), the host's [`Kernel`] descriptor, and the instance
//! that [`emulate`] runs. A row that cannot exist, because a tile does not fit its target, does not compile.

use cuda_std::Warp;

use crate::abi::Params;
use crate::config::{Arch, Config, Dtype};
use crate::{entry, format};

/// How a kernel holds the head dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Whole rows of Q, K and V in shared memory.
    PersistD,
}

/// What the host knows of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Kernel {
    /// Name of the PTX entry: family_dtype_arch_strategy_D.
    pub name: &'static str,
    /// What it is compiled for.
    pub arch: Arch,
    /// Element type of inputs and output.
    pub dtype: Dtype,
    /// How it holds the head dimension.
    pub strategy: Strategy,
    /// Compiled head dim; smaller multiples of 8 run on it too.
    pub head_dim: usize,
    /// Query rows of a CTA.
    pub rows: usize,
    /// Keys of a tile.
    pub keys: usize,
    /// Warps of a CTA.
    pub warps: usize,
    /// Tiles of K in flight.
    pub k_stages: usize,
    /// Dynamic shared memory of a CTA, in bytes.
    pub shared_bytes: usize,
    /// CTAs that must fit on a multiprocessor: bounds the registers of a thread.
    pub min_blocks: usize,
    /// Barriers (`bar.sync`) in the PTX. The compiler must neither copy nor drop one.
    pub barriers: usize,
    /// Bytes of register spills that ptxas may report: the measured price of the tile, see the row.
    pub spill_allowance: usize,
}

impl Kernel {
    /// Threads of a CTA.
    pub const fn threads(&self) -> usize {
        self.warps * 32
    }
}

macro_rules! catalog {
    ($(
        $(#[doc = $why:literal])*
        $name:ident: $arch:ident $dtype:ident D $d:literal rows $rows:literal keys $keys:literal warps $warps:literal
            k_stages $k_stages:literal min_blocks $min_blocks:literal barriers $barriers:literal spills $spills:literal;
    )*) => {
        $(
            $(#[doc = $why])*
            #[allow(non_camel_case_types)]
            enum $name {}

            impl Config for $name {
                type Format = format::$dtype;
                const D: usize = $d;
                const ROWS: usize = $rows;
                const KEYS: usize = $keys;
                const WARPS: usize = $warps;
                const K_STAGES: usize = $k_stages;
            }

            const _: () = assert!(
                <$name as Config>::SHARED_BYTES <= Arch::$arch.shared_limit(),
                concat!(stringify!($name), ": the tile does not fit the target's shared memory")
            );
        )*

        /// Every kernel there is.
        pub const CATALOG: &[Kernel] = &[$(Kernel {
            name: stringify!($name),
            arch: Arch::$arch,
            dtype: Dtype::$dtype,
            strategy: Strategy::PersistD,
            head_dim: $d,
            rows: $rows,
            keys: $keys,
            warps: $warps,
            k_stages: $k_stages,
            shared_bytes: <$name as Config>::SHARED_BYTES,
            min_blocks: $min_blocks,
            barriers: $barriers,
            spill_allowance: $spills,
        }),*];

        /// Runs one warp of the kernel `name`; false if there is none of that name.
        ///
        /// # Safety
        /// As for a launch of the kernel: `params` describes live buffers, and the warp is one of the kernel's CTAs'.
        pub unsafe fn emulate<W: Warp>(name: &str, warp: W, params: &Params) -> bool {
            match name {
                $(
                    // SAFETY: the caller's.
                    stringify!($name) => unsafe { catalog!(@run $name, $d, $rows, $keys, $warps, warp, params) },
                )*
                _ => return false,
            }
            true
        }

        #[cfg(target_arch = "nvptx64")]
        mod entries {
            use super::*;

            cuda_std::declare_shared_memory!();

            $(
                #[cfg($name)]
                #[unsafe(no_mangle)]
                pub unsafe extern "ptx-kernel" fn $name(params: Params) {
                    // SAFETY: the launch's.
                    unsafe { catalog!(@run $name, $d, $rows, $keys, $warps, cuda_std::ptx::Ptx, &params) }
                }
            )*
        }
    };
    // Lengths of register arrays are const parameters of their own: stable Rust computes none from a Config.
    (@run $name:ident, $d:literal, $rows:literal, $keys:literal, $warps:literal, $warp:expr, $params:expr) => {
        entry::forward::<_, $name, { $rows / 16 / $warps }, { $keys / 8 }, { $d / 8 }>($warp, $params)
    };
}

// Tiles and stages were chosen on an H200 (bf16, N = 8192, 32 heads, non-causal / causal TFLOPS; rows x keys, warps):
//
// | D | taken | others tried |
// |---|---|---|
// | 64 | 128x64, 4, 2 stages: 341 / 336 | 1 stage 325 / 323; 128x128, 4 323 / 323; 64x64, 4 286 / 287; 64x128, 4 301 / 299 |
// | 128 | 128x64, 4, 1 stage: 377 / 370 | 2 stages 370 / 357; 128x32, 4 367 / 361; 64x128, 4 335 / 335; 128x128, 8 317 / 329 |
// | 256 | 64x64, 4, 1 stage: 328 / 323 | 64x32, 4, 2 stages 302 / 300; 128x32, 8 287 / 287 |
//
// 32 rows a warp beat 16 wherever the output fits the registers: each fragment of K and V read from shared memory then
// serves two row tiles. The sm_120f rows have the same tiles and have not been run on hardware.
catalog! {
    fwd_f16_sm89_persistd_64: Sm89 F16 D 64 rows 128 keys 64 warps 4 k_stages 2
        min_blocks 2 barriers 3 spills 0;
    fwd_f16_sm89_persistd_128: Sm89 F16 D 128 rows 128 keys 64 warps 4 k_stages 1
        min_blocks 2 barriers 3 spills 0;
    fwd_f16_sm89_persistd_256: Sm89 F16 D 256 rows 64 keys 64 warps 4 k_stages 1
        min_blocks 2 barriers 3 spills 0;
    fwd_bf16_sm89_persistd_64: Sm89 Bf16 D 64 rows 128 keys 64 warps 4 k_stages 2
        min_blocks 2 barriers 3 spills 0;
    fwd_bf16_sm89_persistd_128: Sm89 Bf16 D 128 rows 128 keys 64 warps 4 k_stages 1
        min_blocks 2 barriers 3 spills 0;
    fwd_bf16_sm89_persistd_256: Sm89 Bf16 D 256 rows 64 keys 64 warps 4 k_stages 1
        min_blocks 2 barriers 3 spills 0;
    fwd_f16_sm120f_persistd_64: Sm120f F16 D 64 rows 128 keys 64 warps 4 k_stages 2
        min_blocks 2 barriers 3 spills 0;
    /// Spills: one pair of words per step, stored once and loaded twice in 1450 instructions.
    fwd_f16_sm120f_persistd_128: Sm120f F16 D 128 rows 128 keys 64 warps 4 k_stages 1
        min_blocks 2 barriers 3 spills 32;
    fwd_f16_sm120f_persistd_256: Sm120f F16 D 256 rows 64 keys 64 warps 4 k_stages 1
        min_blocks 2 barriers 3 spills 0;
    fwd_bf16_sm120f_persistd_64: Sm120f Bf16 D 64 rows 128 keys 64 warps 4 k_stages 2
        min_blocks 2 barriers 3 spills 0;
    /// Spills: one pair of words per step, stored once and loaded twice in 1450 instructions.
    fwd_bf16_sm120f_persistd_128: Sm120f Bf16 D 128 rows 128 keys 64 warps 4 k_stages 1
        min_blocks 2 barriers 3 spills 32;
    fwd_bf16_sm120f_persistd_256: Sm120f Bf16 D 256 rows 64 keys 64 warps 4 k_stages 1
        min_blocks 2 barriers 3 spills 0;
}
