//! The attention kernels: each row names those that differ only in what they compute in.

use super::{Entry, runs};
use crate::abi::Params;
use crate::config::{Arch, Arithmetic, BulkPersistD, Config, PersistD, SplitD};
use crate::format::{Recipe, Values};
use crate::pipeline::{BulkPanels, StreamPanels};
use crate::{entry, format};

/// The head dims that builds have unless told otherwise: the original's six, and what makes every one up to 1024 run fast.
pub const DEFAULT_HEAD_DIMS: &[usize] = &[64, 128, 192, 256, 320, 512, 640, 768, 1024];

/// How a kernel's tiles come to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Copies {
    /// By each thread, 16 bytes at a time (`cp.async`).
    Async,
    /// By bulk copies of the boxes of tensor maps (TMA), which its parameters must hold.
    Bulk,
}

/// What the host knows of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Kernel {
    /// Name of the PTX entry: family_dtype_arch_strategy_D, and what else sets it apart: `tma` bulk copies, `mx` block-scaled
    /// instructions, `f16sums` sums in f16, `masked` all masks.
    pub name: &'static str,
    /// What it is compiled for.
    pub arch: Arch,
    /// What its products are computed in.
    pub arithmetic: Arithmetic,
    /// Whether it multiplies by block-scaled instructions: the same numbers, and on GeForce twice the rate.
    pub block_scaled: bool,
    /// Whether it sums blocks of `P V` in f16, which takes smaller numbers in V.
    pub f16_sums: bool,
    /// Whether it takes V transposed, tile by tile.
    pub transposed_values: bool,
    /// How its tiles come to shared memory.
    pub copies: Copies,
    /// Compiled head dim; smaller multiples of 8 run on it too.
    pub head_dim: usize,
    /// Query rows of a CTA.
    pub rows: usize,
    /// Keys of a tile.
    pub keys: usize,
    /// Warps of a CTA that compute.
    pub warps: usize,
    /// Warps of a CTA that only start copies.
    pub producer_warps: usize,
    /// Whether it takes masks, dropout, and a causal mask over packed heads.
    pub masked: bool,
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
        (self.warps + self.producer_warps) * 32
    }

    /// Rows of V's matrix for so many keys, and of a tile of them.
    #[inline]
    pub const fn value_rows(&self, keys: usize) -> [usize; 2] {
        match self.transposed_values {
            true => [keys.div_ceil(self.keys) * self.head_dim, self.head_dim],
            false => [keys, self.keys],
        }
    }

    /// Elements of such a row.
    #[inline]
    pub const fn value_elements(&self, head_dim: usize) -> usize {
        if self.transposed_values { self.keys } else { head_dim }
    }

    /// Whether it does what another kernel does, on the same tile, and only the instructions differ that multiply.
    #[inline] // so that modules of kernels do not hold it
    pub fn is_twin_of(&self, other: &Kernel) -> bool {
        let tile = |kernel: &Kernel| {
            let numbers = (kernel.arithmetic, kernel.f16_sums, kernel.head_dim);
            (kernel.arch, numbers, kernel.copies, kernel.rows, kernel.masked)
        };
        tile(self) == tile(other) && self.block_scaled != other.block_scaled
    }

    /// Its entry.
    pub fn entry(&self) -> Entry {
        Entry {
            name: self.name,
            arch: self.arch,
            threads: self.threads(),
            shared_bytes: self.shared_bytes,
            min_blocks: self.min_blocks,
            barriers: self.barriers,
            spill_allowance: self.spill_allowance,
            ptx_version: match self.arithmetic {
                _ if self.arch == Arch::Sm120f => None,
                Arithmetic::E4m3 | Arithmetic::Int8 if self.f16_sums => Some("8.7"),
                Arithmetic::E4m3 | Arithmetic::Int8 => Some("8.4"),
                Arithmetic::NvFp4 if self.arch == Arch::Sm89 => Some("8.1"),
                Arithmetic::NvFp4 => None,
                Arithmetic::F16 | Arithmetic::Bf16 => None,
            },
        }
    }
}

macro_rules! catalog {
    ($(
        $(#[doc = $why:literal])*
        [$($name:ident $recipe:ident),*]: $arch:ident D $d:literal rows $rows:literal keys $keys:literal warps $warps:literal $masks:ident
            $strategy:ident $choice:tt min_blocks $min_blocks:literal spills $spills:literal;
    )*) => {
        $($(
            #[allow(non_camel_case_types)]
            enum $name {}

            catalog!(@plan $strategy $choice $name);

            impl Config for $name {
                type Scores = <format::$recipe as Recipe>::Scores;
                type Values = <format::$recipe as Recipe>::Values;
                type Output = <format::$recipe as Recipe>::Output;
                const D: usize = $d;
                const ROWS: usize = $rows;
                const KEYS: usize = $keys;
                const WARPS: usize = $warps;
                const MASKED: bool = catalog!(@masked $masks);
                const SHARED_BYTES: usize = catalog!(@shared_bytes $strategy $name);
            }

            const _: () = assert!(
                <$name as Config>::SHARED_BYTES <= Arch::$arch.shared_limit(),
                concat!(stringify!($name), ": the tile does not fit the target's shared memory")
            );
            const _: () = assert!(
                !<<$name as Config>::Values as Values>::TRANSPOSED || $keys == 64 || $keys == 128,
                concat!(stringify!($name), ": values are transposed in tiles of 64 or 128 keys")
            );
            const _: () = assert!(
                Arch::$arch.has_block_scaling() || !<format::$recipe as Recipe>::BLOCK_SCALED,
                concat!(stringify!($name), ": the target has no block-scaled instructions")
            );
        )*)*

        /// Every kernel there is.
        pub const CATALOG: &[Kernel] = &[$($(Kernel {
            name: stringify!($name),
            arch: Arch::$arch,
            arithmetic: <format::$recipe as Recipe>::ARITHMETIC,
            block_scaled: <format::$recipe as Recipe>::BLOCK_SCALED,
            f16_sums: <format::$recipe as Recipe>::F16_SUMS,
            transposed_values: <<format::$recipe as Recipe>::Values as Values>::TRANSPOSED,
            copies: catalog!(@copies $strategy),
            head_dim: $d,
            rows: $rows,
            keys: $keys,
            warps: $warps,
            producer_warps: catalog!(@producer_warps $strategy $name),
            masked: catalog!(@masked $masks),
            shared_bytes: <$name as Config>::SHARED_BYTES,
            min_blocks: $min_blocks,
            barriers: catalog!(@barriers $strategy $name),
            spill_allowance: $spills,
        },)*)*];

        runs! {
            fn emulate(warp, params: Params, address) {
                $($($name => catalog!(@run $strategy $choice $name, $recipe, $d, $rows, $keys, $warps, $min_blocks, warp, params, address);)*)*
            }
        }
    };

    (@masked plain) => { false };
    (@masked masked) => { true };

    (@copies persist_d) => { Copies::Async };
    (@copies split_d) => { Copies::Async };
    (@copies bulk_persist_d) => { Copies::Bulk };
    (@copies bulk_split_d) => { Copies::Bulk };

    (@producer_warps persist_d $name:ident) => { 0 };
    (@producer_warps split_d $name:ident) => { 0 };
    (@producer_warps bulk_persist_d $name:ident) => { <$name as BulkPersistD>::PRODUCER_WARPS };
    (@producer_warps bulk_split_d $name:ident) => { 0 };

    (@plan persist_d { k_stages $k_stages:literal } $name:ident) => {
        impl PersistD for $name {
            const K_STAGES: usize = $k_stages;
        }
    };
    (@plan bulk_persist_d { stages $stages:literal producer_warps $producer_warps:literal } $name:ident) => {
        impl BulkPersistD for $name {
            const PRODUCER_WARPS: usize = $producer_warps;
            const STAGES: usize = $stages;
        }
    };
    (@plan split_d $choice:tt $name:ident) => { catalog!(@plan_split_d $choice false $name); };
    (@plan bulk_split_d $choice:tt $name:ident) => { catalog!(@plan_split_d $choice true $name); };
    (@plan_split_d { key_warps $key_warps:literal step_panels $step_panels:literal slots $slots:literal }
        $bulk:literal $name:ident) => {
        impl SplitD for $name {
            const KEY_WARPS: usize = $key_warps;
            const BULK: bool = $bulk;
            const STEP_PANELS: usize = $step_panels;
            const SLOTS: usize = $slots;
        }
    };

    (@shared_bytes persist_d $name:ident) => { <$name as PersistD>::END };
    (@shared_bytes bulk_persist_d $name:ident) => { <$name as BulkPersistD>::END };
    (@shared_bytes split_d $name:ident) => { <$name as SplitD>::END };
    (@shared_bytes bulk_split_d $name:ident) => { <$name as SplitD>::END };

    (@barriers persist_d $name:ident) => { <$name as PersistD>::BARRIERS };
    (@barriers bulk_persist_d $name:ident) => { <$name as BulkPersistD>::BARRIERS };
    (@barriers split_d $name:ident) => { <$name as SplitD>::BARRIERS };
    (@barriers bulk_split_d $name:ident) => { <$name as SplitD>::BARRIERS };

    // Lengths of register arrays are const parameters of their own: stable Rust computes none from a Config.
    (@run persist_d { $($choice:tt)* } $name:ident, $recipe:ident, $d:literal, $rows:literal, $keys:literal, $warps:literal,
        $min_blocks:literal, $warp:expr, $params:expr, $address:expr) => {{
        let _: u64 = $address;
        entry::persist_d::<_, $name, { $rows / 16 / $warps }, { $keys / 8 }, { $d / 8 }>($warp, $params)
    }};
    (@run bulk_persist_d { stages $stages:literal producer_warps $producer_warps:literal } $name:ident, $recipe:ident,
        $d:literal, $rows:literal, $keys:literal, $warps:literal, $min_blocks:literal, $warp:expr, $params:expr, $address:expr) => {
        entry::bulk_persist_d::<
            _,
            $name,
            { $rows / 16 / $warps },
            { $keys / 8 },
            { $d / 8 },
            { entry::computing_registers($warps, $producer_warps, $min_blocks) },
        >($warp, $params, $address)
    };
    (@run split_d { key_warps $key_warps:literal $($choice:tt)* } $($rest:tt)*) => {
        catalog!(@run_split_d StreamPanels $key_warps $($rest)*)
    };
    (@run bulk_split_d { key_warps $key_warps:literal $($choice:tt)* } $($rest:tt)*) => {
        catalog!(@run_split_d BulkPanels $key_warps $($rest)*)
    };
    (@run_split_d $panels:ident $key_warps:literal $name:ident, $recipe:ident, $d:literal, $rows:literal, $keys:literal,
        $warps:literal, $min_blocks:literal, $warp:expr, $params:expr, $address:expr) => {
        entry::split_d::<
            _,
            $name,
            $panels<_, $name>,
            { $rows * $key_warps / 16 / $warps },
            { $keys / 8 / $key_warps },
            { $d / 8 / $key_warps },
        >($warp, $params, $address)
    };
}

// Tiles and stages were chosen on an H200 (bf16, N = 8192, non-causal / causal TFLOPS; 32 heads, 16 above D = 256;
// rows x keys, warps). By `cp.async`:
//
// | D | taken | others tried |
// |---|---|---|
// | 64 | 128x64, 4, 2 stages: 341 / 336 | 1 stage 325 / 323; 128x128, 4 323 / 323; 64x64, 4 286 / 287; 64x128, 4 301 / 299 |
// | 128 | 128x64, 4, 1 stage: 377 / 370 | 2 stages 370 / 357; 128x32, 4 367 / 361; 64x128, 4 335 / 335; 128x128, 8 317 / 329 |
// | 192 | 64x64, 4, 3 panels a step: 330 / 321 | 128x64, 8, 3 panels 308 / 302; 64x64, 4, 1 panel 286 / 279 |
// | 256 | 64x64, 4, 1 stage: 328 / 323 | 64x32, 4, 2 stages 302 / 300; 128x32, 8 287 / 287; split-D 64x64, 4 317 / 300 |
// | 320 | 128x64, 8, 5 panels: 344 / 335 | 64x128, 8, 5 panels 309 / 300; 64x64, 4 262 / 259; 128x64, 8, 1 panel 268 / 268 |
// | 512 | 64x128, 8, 4 panels: 315 / 311 | 2 panels 300 / 288; 1 panel 280 / 284; 64x64, 8, 8 panels 272 / 271 |
// | 640 | 64x128, 8, 2 panels: 279 / 278 | 64x64, 8, 5 panels 261 / 256; 32x128, 4 263 / 260 |
// | 768 | 64x64, 8, 6 panels: 259 / 258 | 64x128, 8, 3 panels 237 / 207; 32x128, 8, 4 panels 212 / 214 |
// | 1024 | 32x128, 8, 4 panels: 220 / 219 | 2 panels 219 / 203; 32x64, 8, 8 panels 197 / 194 |
//
// By bulk copies (p: warps that only start copies; D = 128 is 409 / 410 by `cp.async` in the same run and has no such row):
//
// | D | taken | others tried |
// |---|---|---|
// | 64 | 128x64, 4 + 4p: 365 / 359 | 256x64, 8 + 4p 371 / 355; no p 324 / 321; 256x128, 8 + 4p 347 / 329; 192x128, 12 + 4p 336 / 319 |
// | 128 | none | 128x64, 4 + 4p 394 / 393; 256x64, 8 + 4p 373 / 361; 128x128, 8 + 4p 385 / 377; 128x64, 4 371 / 373 |
// | 192 | 128x64, 8 + 4p: 373 / 369 | 64x64, 4 365 / 368; split-D 64x64, 4, 3 panels 338 / 342 |
// | 256 | 64x64, 4: 388 / 368 | 128x64, 8 + 4p, 1 stage 379 / 370, 2 stages 376 / 374; split-D 64x64, 4, 4 panels 381 / 362 |
// | 320 | 64x128, 8, 5 panels: 368 / 368 | 128x64, 8, 5 panels 340 / 338; 96x128, 12, 3 panels 346 / 341 |
// | 384 | 64x128, 8, 3 panels: 365 / 353 | 96x128, 12, 3 panels 365 / 363; 128x64, 8, 2 panels 319 / 318 |
// | 448 | 64x128, 8, 4 panels: 386 / 358 | 96x128, 12, 3 panels 307 / 299 |
// | 512 | 64x128, 8, 4 panels: 406 / 398 | 3 panels 382 / 361; 2 panels 358 / 356; 64x64, 8, 8 panels 301 / 304; 96x128, 12 306 / 279 |
// | 576 | 64x128, 8, 3 panels: 383 / 370 | 64x64, 8, 9 panels 301 / 305 |
// | 640 | 64x128, 8, 4 panels: 361 / 361 | 2 panels 335 / 334; 64x64, 8, 5 panels 301 / 304; 48x128, 12, 4 panels 268 / 258 |
// | 704 | 64x128, 8, 3 panels: 340 / 321 | 64x64, 8, 6 panels 303 / 305 |
// | 768 | 64x128, 8, 3 panels: 331 / 321 | 2 panels 321 / 310; 64x64, 8, 7 panels 275 / 278; 48x128, 12, 4 panels 292 / 286 |
// | 832 | 64x128, 8, 2 panels: 288 / 259 | 64x64, 8, 5 panels 259 / 262; 32x128, 8, 5 panels 251 / 223; 48x128, 12 247 / 240 |
// | 896 | 32x128, 8, 5 panels: 271 / 210 | 3 panels 248 / 229; 48x128, 12 249 / 242; 64x64, 8, 5 panels 225 / 220 |
// | 960 | 48x128, 12, 3 panels: 276 / 268 | 32x256, 8, 2 panels 260 / 261; 32x128, 8, 4 panels 254 / 235; 64x64, 8 222 / 208 |
// | 1024 | 32x256, 8, 2 panels: 292 / 269 | 32x128, 8, 4 panels 279 / 238; 48x128, 12, 2 panels 246 / 237; 64x64, 8 216 / 190 |
//
// With whole rows, 32 rows a warp beat 16 wherever the output fits the registers: each fragment of K and V read from shared
// memory then serves two row tiles. With panels, what counts is how much work lies between two barriers; bulk copies free the
// registers of addresses and the issue slots of copies, so that larger tiles pay. The sm_90a rows above D = 256 use Hopper's
// 227 KiB; the sm_89 and sm_120f rows there are what 99 KiB hold and have not been run on such hardware. Among tiles of
// 99 KiB these were the fastest on the H200 (384 197, 448 189, 512 185, 576 155, 704 142, 832 126, 896 129, 960 126,
// 1024 109). The sm_120f rows with a warp that only starts copies have 16 rows a warp, which an equal share of the registers holds;
// with four such warps that give theirs away, as on Hopper, 32 would fit (D = 64: 128x64, 4 + 4p, no spills).
//
// In eight bits, tiles with panels are chosen by spills and by the issue slots that their main loops need (`cuda_builder::sass`);
// they have not been tuned on hardware. With 64 rows each fragment of K and V serves two row tiles, and 128 keys are what
// fragments of Q serve; fewer rows stand where the output would leave too few registers. On Hopper e4m3 is converted, which
// takes registers: 32 rows there.
//
// Decoding (16 rows of packed heads, one query row, 8 x 8 key/value heads, 32768 keys) reads at the card's copy rate with
// any tile tried; taken are those with the most bytes in flight in 99 KiB (D = 512: 2 panels a step 4575 GB/s, 1 panel
// 3988; a copy 4189).
catalog! {
    [fwd_f16_sm89_persistd_64 F16, fwd_bf16_sm89_persistd_64 Bf16]: Sm89 D 64 rows 128 keys 64 warps 4 plain
        persist_d { k_stages 2 } min_blocks 2 spills 0;
    [fwd_f16_sm89_persistd_128 F16, fwd_bf16_sm89_persistd_128 Bf16]: Sm89 D 128 rows 128 keys 64 warps 4 plain
        persist_d { k_stages 1 } min_blocks 2 spills 0;
    [fwd_f16_sm89_splitd_192 F16, fwd_bf16_sm89_splitd_192 Bf16]: Sm89 D 192 rows 64 keys 64 warps 4 plain
        split_d { key_warps 2 step_panels 3 slots 2 } min_blocks 2 spills 0;
    [fwd_f16_sm89_persistd_256 F16, fwd_bf16_sm89_persistd_256 Bf16]: Sm89 D 256 rows 64 keys 64 warps 4 plain
        persist_d { k_stages 1 } min_blocks 2 spills 0;
    [fwd_f16_sm89_splitd_320 F16, fwd_bf16_sm89_splitd_320 Bf16]: Sm89 D 320 rows 64 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 5 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_512 F16, fwd_bf16_sm89_splitd_512 Bf16]: Sm89 D 512 rows 64 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_768 F16, fwd_bf16_sm89_splitd_768 Bf16]: Sm89 D 768 rows 32 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 5 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_1024 F16, fwd_bf16_sm89_splitd_1024 Bf16]: Sm89 D 1024 rows 32 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_192 F16, fwd_bf16_sm120f_splitd_192 Bf16]: Sm120f D 192 rows 64 keys 64 warps 4 plain
        split_d { key_warps 2 step_panels 3 slots 2 } min_blocks 2 spills 0;
    [fwd_f16_sm89_persistd_64_masked F16, fwd_bf16_sm89_persistd_64_masked Bf16]: Sm89 D 64 rows 64 keys 64 warps 4 masked
        persist_d { k_stages 2 } min_blocks 2 spills 0;
    [fwd_f16_sm89_persistd_128_masked F16, fwd_bf16_sm89_persistd_128_masked Bf16]: Sm89 D 128 rows 64 keys 64 warps 4 masked
        persist_d { k_stages 1 } min_blocks 2 spills 0;
    /// Spills: words of the mask's addresses, and only where there is a mask.
    [fwd_f16_sm89_splitd_192_masked F16, fwd_bf16_sm89_splitd_192_masked Bf16]: Sm89 D 192 rows 64 keys 64 warps 4 masked
        split_d { key_warps 2 step_panels 3 slots 2 } min_blocks 2 spills 72;
    /// Spills: as above.
    [fwd_f16_sm89_persistd_256_masked F16, fwd_bf16_sm89_persistd_256_masked Bf16]: Sm89 D 256 rows 64 keys 64 warps 4 masked
        persist_d { k_stages 1 } min_blocks 2 spills 12;
    [fwd_f16_sm89_splitd_320_masked F16, fwd_bf16_sm89_splitd_320_masked Bf16]: Sm89 D 320 rows 64 keys 64 warps 8 masked
        split_d { key_warps 4 step_panels 1 slots 5 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_512_masked F16, fwd_bf16_sm89_splitd_512_masked Bf16]: Sm89 D 512 rows 64 keys 64 warps 8 masked
        split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_768_masked F16, fwd_bf16_sm89_splitd_768_masked Bf16]: Sm89 D 768 rows 32 keys 64 warps 8 masked
        split_d { key_warps 4 step_panels 1 slots 5 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_1024_masked F16, fwd_bf16_sm89_splitd_1024_masked Bf16]: Sm89 D 1024 rows 32 keys 64 warps 8 masked
        split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm89_decode_64 F16, fwd_bf16_sm89_decode_64 Bf16]: Sm89 D 64 rows 16 keys 128 warps 4 masked
        split_d { key_warps 4 step_panels 1 slots 2 } min_blocks 3 spills 0;
    [fwd_f16_sm89_decode_128 F16, fwd_bf16_sm89_decode_128 Bf16]: Sm89 D 128 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 2 spills 0;
    [fwd_f16_sm89_decode_192 F16, fwd_bf16_sm89_decode_192 Bf16]: Sm89 D 192 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 1 slots 5 } min_blocks 2 spills 0;
    [fwd_f16_sm89_decode_256 F16, fwd_bf16_sm89_decode_256 Bf16]: Sm89 D 256 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 2 spills 0;
    [fwd_f16_sm89_decode_320 F16, fwd_bf16_sm89_decode_320 Bf16]: Sm89 D 320 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 2 spills 0;
    [fwd_f16_sm89_decode_512 F16, fwd_bf16_sm89_decode_512 Bf16]: Sm89 D 512 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 2 slots 3 } min_blocks 2 spills 0;
    [fwd_f16_sm89_decode_768 F16, fwd_bf16_sm89_decode_768 Bf16]: Sm89 D 768 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 2 slots 4 } min_blocks 1 spills 0;
    [fwd_f16_sm89_decode_1024 F16, fwd_bf16_sm89_decode_1024 Bf16]: Sm89 D 1024 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 2 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_persistd_64_masked F16, fwd_bf16_sm120f_persistd_64_masked Bf16]: Sm120f D 64 rows 64 keys 64 warps 4 masked
        persist_d { k_stages 2 } min_blocks 2 spills 0;
    [fwd_f16_sm120f_persistd_128_masked F16, fwd_bf16_sm120f_persistd_128_masked Bf16]: Sm120f D 128 rows 64 keys 64 warps 4 masked
        persist_d { k_stages 1 } min_blocks 2 spills 0;
    [fwd_f16_sm120f_splitd_192_masked F16, fwd_bf16_sm120f_splitd_192_masked Bf16]: Sm120f D 192 rows 64 keys 64 warps 4 masked
        split_d { key_warps 2 step_panels 3 slots 2 } min_blocks 2 spills 0;
    [fwd_f16_sm120f_persistd_256_masked F16, fwd_bf16_sm120f_persistd_256_masked Bf16]: Sm120f D 256 rows 64 keys 64 warps 4 masked
        persist_d { k_stages 1 } min_blocks 2 spills 0;
    [fwd_f16_sm120f_splitd_320_masked F16, fwd_bf16_sm120f_splitd_320_masked Bf16]: Sm120f D 320 rows 64 keys 64 warps 8 masked
        split_d { key_warps 4 step_panels 1 slots 5 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_512_masked F16, fwd_bf16_sm120f_splitd_512_masked Bf16]: Sm120f D 512 rows 64 keys 64 warps 8 masked
        split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_768_masked F16, fwd_bf16_sm120f_splitd_768_masked Bf16]: Sm120f D 768 rows 32 keys 64 warps 8 masked
        split_d { key_warps 4 step_panels 1 slots 5 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_1024_masked F16, fwd_bf16_sm120f_splitd_1024_masked Bf16]: Sm120f D 1024 rows 32 keys 64 warps 8 masked
        split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_decode_64 F16, fwd_bf16_sm120f_decode_64 Bf16]: Sm120f D 64 rows 16 keys 128 warps 4 masked
        split_d { key_warps 4 step_panels 1 slots 2 } min_blocks 3 spills 0;
    [fwd_f16_sm120f_decode_128 F16, fwd_bf16_sm120f_decode_128 Bf16]: Sm120f D 128 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 2 spills 0;
    [fwd_f16_sm120f_decode_192 F16, fwd_bf16_sm120f_decode_192 Bf16]: Sm120f D 192 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 1 slots 5 } min_blocks 2 spills 0;
    [fwd_f16_sm120f_decode_256 F16, fwd_bf16_sm120f_decode_256 Bf16]: Sm120f D 256 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 2 spills 0;
    [fwd_f16_sm120f_decode_320 F16, fwd_bf16_sm120f_decode_320 Bf16]: Sm120f D 320 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 2 spills 0;
    [fwd_f16_sm120f_decode_512 F16, fwd_bf16_sm120f_decode_512 Bf16]: Sm120f D 512 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 2 slots 3 } min_blocks 2 spills 0;
    [fwd_f16_sm120f_decode_768 F16, fwd_bf16_sm120f_decode_768 Bf16]: Sm120f D 768 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 2 slots 4 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_decode_1024 F16, fwd_bf16_sm120f_decode_1024 Bf16]: Sm120f D 1024 rows 16 keys 64 warps 4 masked
        split_d { key_warps 4 step_panels 2 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_384 F16, fwd_bf16_sm89_splitd_384 Bf16]: Sm89 D 384 rows 64 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 2 slots 2 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_448 F16, fwd_bf16_sm89_splitd_448 Bf16]: Sm89 D 448 rows 64 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_576 F16, fwd_bf16_sm89_splitd_576 Bf16]: Sm89 D 576 rows 32 keys 128 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_640 F16, fwd_bf16_sm89_splitd_640 Bf16]: Sm89 D 640 rows 32 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 2 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_704 F16, fwd_bf16_sm89_splitd_704 Bf16]: Sm89 D 704 rows 32 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 2 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_832 F16, fwd_bf16_sm89_splitd_832 Bf16]: Sm89 D 832 rows 32 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 5 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_896 F16, fwd_bf16_sm89_splitd_896 Bf16]: Sm89 D 896 rows 32 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 0;
    [fwd_f16_sm89_splitd_960 F16, fwd_bf16_sm89_splitd_960 Bf16]: Sm89 D 960 rows 32 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_384 F16, fwd_bf16_sm120f_splitd_384 Bf16]: Sm120f D 384 rows 64 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 2 slots 2 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_448 F16, fwd_bf16_sm120f_splitd_448 Bf16]: Sm120f D 448 rows 64 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_576 F16, fwd_bf16_sm120f_splitd_576 Bf16]: Sm120f D 576 rows 32 keys 128 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_704 F16, fwd_bf16_sm120f_splitd_704 Bf16]: Sm120f D 704 rows 32 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 2 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_832 F16, fwd_bf16_sm120f_splitd_832 Bf16]: Sm120f D 832 rows 32 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 5 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_896 F16, fwd_bf16_sm120f_splitd_896 Bf16]: Sm120f D 896 rows 32 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 0;
    /// Spills: three words.
    [fwd_f16_sm120f_splitd_960 F16, fwd_bf16_sm120f_splitd_960 Bf16]: Sm120f D 960 rows 32 keys 64 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 12;
    [fwd_f16_sm90a_persistd_64_tma F16, fwd_bf16_sm90a_persistd_64_tma Bf16]: Sm90a D 64 rows 128 keys 64 warps 4 plain
        bulk_persist_d { stages 2 producer_warps 4 } min_blocks 2 spills 0;
    [fwd_f16_sm90a_persistd_192_tma F16, fwd_bf16_sm90a_persistd_192_tma Bf16]: Sm90a D 192 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 4 } min_blocks 1 spills 0;
    [fwd_f16_sm90a_persistd_256_tma F16, fwd_bf16_sm90a_persistd_256_tma Bf16]: Sm90a D 256 rows 64 keys 64 warps 4 plain
        bulk_persist_d { stages 1 producer_warps 0 } min_blocks 2 spills 0;
    [fwd_f16_sm90a_splitd_320_tma F16, fwd_bf16_sm90a_splitd_320_tma Bf16]: Sm90a D 320 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 5 slots 2 } min_blocks 1 spills 0;
    [fwd_f16_sm90a_splitd_384_tma F16, fwd_bf16_sm90a_splitd_384_tma Bf16]: Sm90a D 384 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 3 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm90a_splitd_448_tma F16, fwd_bf16_sm90a_splitd_448_tma Bf16]: Sm90a D 448 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 4 slots 2 } min_blocks 1 spills 0;
    [fwd_f16_sm90a_splitd_512_tma F16, fwd_bf16_sm90a_splitd_512_tma Bf16]: Sm90a D 512 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 4 slots 2 } min_blocks 1 spills 0;
    /// Spills: a few words a tile.
    [fwd_f16_sm90a_splitd_576_tma F16, fwd_bf16_sm90a_splitd_576_tma Bf16]: Sm90a D 576 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 3 slots 2 } min_blocks 1 spills 32;
    /// Spills: about 20 words a tile, of 3000 instructions: half the keys would hardly spill and is 17 % slower.
    [fwd_f16_sm90a_splitd_640_tma F16, fwd_bf16_sm90a_splitd_640_tma Bf16]: Sm90a D 640 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 4 slots 2 } min_blocks 1 spills 144;
    /// Spills: as at 640.
    [fwd_f16_sm90a_splitd_704_tma F16, fwd_bf16_sm90a_splitd_704_tma Bf16]: Sm90a D 704 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 3 slots 2 } min_blocks 1 spills 388;
    /// Spills: 192 of 255 registers are output; half the keys would spill a fifth of it and is 15 % slower.
    [fwd_f16_sm90a_splitd_768_tma F16, fwd_bf16_sm90a_splitd_768_tma Bf16]: Sm90a D 768 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 3 slots 2 } min_blocks 1 spills 476;
    /// Spills: 208 of 255 registers are output; half the rows would spill nothing and is 13 % slower.
    [fwd_f16_sm90a_splitd_832_tma F16, fwd_bf16_sm90a_splitd_832_tma Bf16]: Sm90a D 832 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 2 slots 2 } min_blocks 1 spills 1272;
    [fwd_f16_sm90a_splitd_896_tma F16, fwd_bf16_sm90a_splitd_896_tma Bf16]: Sm90a D 896 rows 32 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 5 slots 2 } min_blocks 1 spills 0;
    /// Spills: a few words a tile.
    [fwd_f16_sm90a_splitd_960_tma F16, fwd_bf16_sm90a_splitd_960_tma Bf16]: Sm90a D 960 rows 48 keys 128 warps 12 plain
        bulk_split_d { key_warps 4 step_panels 3 slots 2 } min_blocks 1 spills 64;
    [fwd_f16_sm90a_splitd_1024_tma F16, fwd_bf16_sm90a_splitd_1024_tma Bf16]: Sm90a D 1024 rows 32 keys 256 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 2 slots 2 } min_blocks 1 spills 0;
    [fwd_f16_sm90a_splitd_320_tma_masked F16, fwd_bf16_sm90a_splitd_320_tma_masked Bf16]: Sm90a D 320 rows 64 keys 128 warps 8 masked
        bulk_split_d { key_warps 4 step_panels 5 slots 2 } min_blocks 1 spills 0;
    /// Spills: words of the mask's addresses.
    [fwd_f16_sm90a_splitd_512_tma_masked F16, fwd_bf16_sm90a_splitd_512_tma_masked Bf16]: Sm90a D 512 rows 64 keys 128 warps 8 masked
        bulk_split_d { key_warps 4 step_panels 4 slots 2 } min_blocks 1 spills 192;
    /// Spills: words of the mask's addresses, and what the plain kernel spills.
    [fwd_f16_sm90a_splitd_640_tma_masked F16, fwd_bf16_sm90a_splitd_640_tma_masked Bf16]: Sm90a D 640 rows 64 keys 128 warps 8 masked
        bulk_split_d { key_warps 4 step_panels 4 slots 2 } min_blocks 1 spills 840;
    /// Spills: words of the mask's addresses, and what the plain kernel spills.
    [fwd_f16_sm90a_splitd_768_tma_masked F16, fwd_bf16_sm90a_splitd_768_tma_masked Bf16]: Sm90a D 768 rows 64 keys 128 warps 8 masked
        bulk_split_d { key_warps 4 step_panels 3 slots 2 } min_blocks 1 spills 1752;
    [fwd_f16_sm90a_splitd_1024_tma_masked F16, fwd_bf16_sm90a_splitd_1024_tma_masked Bf16]: Sm90a D 1024 rows 32 keys 256 warps 8 masked
        bulk_split_d { key_warps 4 step_panels 2 slots 2 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_persistd_64_tma F16, fwd_bf16_sm120f_persistd_64_tma Bf16]: Sm120f D 64 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 3 producer_warps 1 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_persistd_128_tma F16, fwd_bf16_sm120f_persistd_128_tma Bf16]: Sm120f D 128 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 1 } min_blocks 1 spills 0;
    /// Spills: two words.
    [fwd_f16_sm120f_persistd_192_tma F16, fwd_bf16_sm120f_persistd_192_tma Bf16]: Sm120f D 192 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 1 producer_warps 1 } min_blocks 1 spills 16;
    [fwd_f16_sm120f_persistd_256_tma F16, fwd_bf16_sm120f_persistd_256_tma Bf16]: Sm120f D 256 rows 64 keys 64 warps 4 plain
        bulk_persist_d { stages 1 producer_warps 0 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_320_tma F16, fwd_bf16_sm120f_splitd_320_tma Bf16]: Sm120f D 320 rows 64 keys 64 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 5 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_512_tma F16, fwd_bf16_sm120f_splitd_512_tma Bf16]: Sm120f D 512 rows 64 keys 64 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_768_tma F16, fwd_bf16_sm120f_splitd_768_tma Bf16]: Sm120f D 768 rows 32 keys 64 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 5 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_1024_tma F16, fwd_bf16_sm120f_splitd_1024_tma Bf16]: Sm120f D 1024 rows 32 keys 64 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_f16_sm120f_splitd_640_tma F16, fwd_bf16_sm120f_splitd_640_tma Bf16]: Sm120f D 640 rows 32 keys 64 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 2 slots 3 } min_blocks 1 spills 0;
    [fwd_e4m3_sm89_persistd_64 E4m3, fwd_int8_sm89_persistd_64 Int8,
        fwd_e4m3_sm89_persistd_64_f16sums E4m3F16, fwd_int8_sm89_persistd_64_f16sums Int8F16]: Sm89 D 64 rows 128 keys 128 warps 8 plain
        persist_d { k_stages 2 } min_blocks 1 spills 0;
    [fwd_e4m3_sm89_persistd_128 E4m3, fwd_int8_sm89_persistd_128 Int8,
        fwd_e4m3_sm89_persistd_128_f16sums E4m3F16, fwd_int8_sm89_persistd_128_f16sums Int8F16]: Sm89 D 128 rows 128 keys 128 warps 8 plain
        persist_d { k_stages 2 } min_blocks 1 spills 0;
    [fwd_e4m3_sm89_persistd_192 E4m3, fwd_int8_sm89_persistd_192 Int8,
        fwd_e4m3_sm89_persistd_192_f16sums E4m3F16, fwd_int8_sm89_persistd_192_f16sums Int8F16]: Sm89 D 192 rows 128 keys 64 warps 8 plain
        persist_d { k_stages 2 } min_blocks 1 spills 0;
    /// Spills: addresses, stored before the loop and loaded once a tile.
    [fwd_e4m3_sm89_persistd_224 E4m3, fwd_int8_sm89_persistd_224 Int8,
        fwd_e4m3_sm89_persistd_224_f16sums E4m3F16, fwd_int8_sm89_persistd_224_f16sums Int8F16]: Sm89 D 224 rows 128 keys 64 warps 8 plain
        persist_d { k_stages 2 } min_blocks 1 spills 56;
    [fwd_e4m3_sm120f_persistd_64_tma E4m3, fwd_int8_sm120f_persistd_64_tma Int8]: Sm120f D 64 rows 128 keys 128 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 1 } min_blocks 1 spills 0;
    [fwd_e4m3_sm120f_persistd_128_tma E4m3, fwd_int8_sm120f_persistd_128_tma Int8]: Sm120f D 128 rows 128 keys 128 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 0;
    [fwd_e4m3_sm120f_persistd_192_tma E4m3, fwd_int8_sm120f_persistd_192_tma Int8]: Sm120f D 192 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 0;
    /// Spills: as on sm_89.
    [fwd_e4m3_sm120f_persistd_224_tma E4m3, fwd_int8_sm120f_persistd_224_tma Int8]: Sm120f D 224 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 8;
    [fwd_e4m3_sm120f_persistd_64_tma_mx MxE4m3, fwd_int8_sm120f_persistd_64_tma_mx MxInt8]: Sm120f D 64 rows 128 keys 128 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 1 } min_blocks 1 spills 0;
    [fwd_e4m3_sm120f_persistd_128_tma_mx MxE4m3, fwd_int8_sm120f_persistd_128_tma_mx MxInt8]: Sm120f D 128 rows 128 keys 128 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 0;
    [fwd_e4m3_sm120f_persistd_192_tma_mx MxE4m3, fwd_int8_sm120f_persistd_192_tma_mx MxInt8]: Sm120f D 192 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 0;
    [fwd_e4m3_sm120f_persistd_224_tma_mx MxE4m3, fwd_int8_sm120f_persistd_224_tma_mx MxInt8]: Sm120f D 224 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 0;
    [fwd_e4m3_sm90a_persistd_64_tma E4m3, fwd_int8_sm90a_persistd_64_tma Int8]: Sm90a D 64 rows 128 keys 128 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 4 } min_blocks 1 spills 0;
    /// Spills: what the hardware does not multiply is converted, and that takes registers.
    [fwd_e4m3_sm90a_persistd_128_tma E4m3, fwd_int8_sm90a_persistd_128_tma Int8]: Sm90a D 128 rows 128 keys 128 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 168;
    /// Spills: as at 128.
    [fwd_e4m3_sm90a_persistd_192_tma E4m3, fwd_int8_sm90a_persistd_192_tma Int8]: Sm90a D 192 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 32;
    /// Spills: as at 128.
    [fwd_e4m3_sm90a_persistd_224_tma E4m3, fwd_int8_sm90a_persistd_224_tma Int8]: Sm90a D 224 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 100;
    [fwd_e4m3_sm89_splitd_256 E4m3, fwd_int8_sm89_splitd_256 Int8,
        fwd_e4m3_sm89_splitd_256_f16sums E4m3F16, fwd_int8_sm89_splitd_256_f16sums Int8F16]: Sm89 D 256 rows 64 keys 128 warps 8 plain
        split_d { key_warps 4 step_panels 2 slots 2 } min_blocks 1 spills 0;
    /// Spills: a few words a tile.
    [fwd_e4m3_sm89_splitd_384 E4m3, fwd_int8_sm89_splitd_384 Int8,
        fwd_e4m3_sm89_splitd_384_f16sums E4m3F16, fwd_int8_sm89_splitd_384_f16sums Int8F16]: Sm89 D 384 rows 64 keys 128 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 24;
    /// Spills: a few words a tile; half the keys spill none and need 5 % more issue slots.
    [fwd_e4m3_sm89_splitd_512 E4m3, fwd_int8_sm89_splitd_512 Int8,
        fwd_e4m3_sm89_splitd_512_f16sums E4m3F16, fwd_int8_sm89_splitd_512_f16sums Int8F16]: Sm89 D 512 rows 64 keys 128 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 64;
    /// Spills: a few words a tile; half the rows would spill none, and read all keys twice as often.
    [fwd_e4m3_sm89_splitd_640 E4m3, fwd_int8_sm89_splitd_640 Int8,
        fwd_e4m3_sm89_splitd_640_f16sums E4m3F16, fwd_int8_sm89_splitd_640_f16sums Int8F16]: Sm89 D 640 rows 64 keys 64 warps 8 plain
        split_d { key_warps 2 step_panels 2 slots 3 } min_blocks 1 spills 64;
    /// Spills: three words.
    [fwd_e4m3_sm89_splitd_768 E4m3, fwd_int8_sm89_splitd_768 Int8,
        fwd_e4m3_sm89_splitd_768_f16sums E4m3F16, fwd_int8_sm89_splitd_768_f16sums Int8F16]: Sm89 D 768 rows 32 keys 128 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 12;
    [fwd_e4m3_sm89_splitd_1024 E4m3, fwd_int8_sm89_splitd_1024 Int8,
        fwd_e4m3_sm89_splitd_1024_f16sums E4m3F16, fwd_int8_sm89_splitd_1024_f16sums Int8F16]: Sm89 D 1024 rows 32 keys 128 warps 8 plain
        split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_e4m3_sm120f_splitd_256_tma E4m3, fwd_int8_sm120f_splitd_256_tma Int8]: Sm120f D 256 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 0;
    /// Spills: a few words a tile; 48 rows spill fewer and need 14 % more issue slots.
    [fwd_e4m3_sm120f_splitd_384_tma E4m3, fwd_int8_sm120f_splitd_384_tma Int8]: Sm120f D 384 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 48;
    /// Spills: as at 384.
    [fwd_e4m3_sm120f_splitd_512_tma E4m3, fwd_int8_sm120f_splitd_512_tma Int8]: Sm120f D 512 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 96;
    /// Spills: a few words a tile.
    [fwd_e4m3_sm120f_splitd_640_tma E4m3, fwd_int8_sm120f_splitd_640_tma Int8]: Sm120f D 640 rows 48 keys 128 warps 12 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 8;
    [fwd_e4m3_sm120f_splitd_768_tma E4m3, fwd_int8_sm120f_splitd_768_tma Int8]: Sm120f D 768 rows 32 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 0;
    [fwd_e4m3_sm120f_splitd_1024_tma E4m3, fwd_int8_sm120f_splitd_1024_tma Int8]: Sm120f D 1024 rows 32 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_e4m3_sm120f_splitd_256_tma_mx MxE4m3, fwd_int8_sm120f_splitd_256_tma_mx MxInt8]: Sm120f D 256 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 0;
    /// Spills: a few words a tile; 48 rows spill fewer and need 14 % more issue slots.
    [fwd_e4m3_sm120f_splitd_384_tma_mx MxE4m3, fwd_int8_sm120f_splitd_384_tma_mx MxInt8]: Sm120f D 384 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 68;
    /// Spills: as at 384.
    [fwd_e4m3_sm120f_splitd_512_tma_mx MxE4m3, fwd_int8_sm120f_splitd_512_tma_mx MxInt8]: Sm120f D 512 rows 64 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 104;
    /// Spills: a few words a tile.
    [fwd_e4m3_sm120f_splitd_640_tma_mx MxE4m3, fwd_int8_sm120f_splitd_640_tma_mx MxInt8]: Sm120f D 640 rows 48 keys 128 warps 12 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 48;
    [fwd_e4m3_sm120f_splitd_768_tma_mx MxE4m3, fwd_int8_sm120f_splitd_768_tma_mx MxInt8]: Sm120f D 768 rows 32 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 4 } min_blocks 1 spills 0;
    [fwd_e4m3_sm120f_splitd_1024_tma_mx MxE4m3, fwd_int8_sm120f_splitd_1024_tma_mx MxInt8]: Sm120f D 1024 rows 32 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 1 slots 3 } min_blocks 1 spills 0;
    [fwd_e4m3_sm90a_splitd_256_tma E4m3, fwd_int8_sm90a_splitd_256_tma Int8]: Sm90a D 256 rows 32 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 2 slots 2 } min_blocks 1 spills 0;
    [fwd_e4m3_sm90a_splitd_384_tma E4m3, fwd_int8_sm90a_splitd_384_tma Int8]: Sm90a D 384 rows 32 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 2 slots 3 } min_blocks 1 spills 0;
    [fwd_e4m3_sm90a_splitd_512_tma E4m3, fwd_int8_sm90a_splitd_512_tma Int8]: Sm90a D 512 rows 32 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 2 slots 4 } min_blocks 1 spills 0;
    /// Spills: a few words a tile.
    [fwd_e4m3_sm90a_splitd_640_tma E4m3, fwd_int8_sm90a_splitd_640_tma Int8]: Sm90a D 640 rows 32 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 2 slots 4 } min_blocks 1 spills 16;
    /// Spills: a few words a tile.
    [fwd_e4m3_sm90a_splitd_768_tma E4m3, fwd_int8_sm90a_splitd_768_tma Int8]: Sm90a D 768 rows 32 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 2 slots 4 } min_blocks 1 spills 72;
    /// Spills: as at 768.
    [fwd_e4m3_sm90a_splitd_1024_tma E4m3, fwd_int8_sm90a_splitd_1024_tma Int8]: Sm90a D 1024 rows 32 keys 128 warps 8 plain
        bulk_split_d { key_warps 4 step_panels 2 slots 4 } min_blocks 1 spills 92;
    [fwd_nvfp4_sm89_persistd_64 DecodedNvFp4]: Sm89 D 64 rows 128 keys 128 warps 8 plain
        persist_d { k_stages 2 } min_blocks 1 spills 0;
    [fwd_nvfp4_sm89_persistd_128 DecodedNvFp4]: Sm89 D 128 rows 128 keys 64 warps 8 plain
        persist_d { k_stages 2 } min_blocks 1 spills 0;
    [fwd_nvfp4_sm89_persistd_192 DecodedNvFp4]: Sm89 D 192 rows 128 keys 64 warps 8 plain
        persist_d { k_stages 2 } min_blocks 1 spills 0;
    /// Spills: a few words.
    [fwd_nvfp4_sm89_persistd_256 DecodedNvFp4]: Sm89 D 256 rows 128 keys 64 warps 8 plain
        persist_d { k_stages 1 } min_blocks 1 spills 36;
    [fwd_nvfp4_sm90a_persistd_64_tma DecodedNvFp4]: Sm90a D 64 rows 128 keys 128 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 0;
    [fwd_nvfp4_sm90a_persistd_128_tma DecodedNvFp4]: Sm90a D 128 rows 128 keys 128 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 0;
    [fwd_nvfp4_sm90a_persistd_192_tma DecodedNvFp4]: Sm90a D 192 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 0;
    [fwd_nvfp4_sm90a_persistd_256_tma DecodedNvFp4]: Sm90a D 256 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 0;
    [fwd_nvfp4_sm120f_persistd_64_tma ScaledNvFp4]: Sm120f D 64 rows 128 keys 128 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 0;
    [fwd_nvfp4_sm120f_persistd_128_tma ScaledNvFp4]: Sm120f D 128 rows 128 keys 128 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 0;
    [fwd_nvfp4_sm120f_persistd_192_tma ScaledNvFp4By64]: Sm120f D 192 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 2 producer_warps 0 } min_blocks 1 spills 0;
    /// Spills: a few words.
    [fwd_nvfp4_sm120f_persistd_256_tma ScaledNvFp4By64]: Sm120f D 256 rows 128 keys 64 warps 8 plain
        bulk_persist_d { stages 1 producer_warps 0 } min_blocks 1 spills 36;
}
