//! The kernels that bring results over parts of the keys together.

use cuda_std::Warp;

use super::{Entry, runs};
use crate::abi::CombineParams;
use crate::config::{Arch, Dtype};
use crate::{combine, format};

/// Warps of a CTA; each has a row.
const WARPS: usize = 4;

/// Elements of the parts' outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartElement {
    /// f32, as the forward kernels leave them.
    Single,
    /// The output's.
    Output,
}

/// What the host knows of a combining kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Combine {
    /// Name of the PTX entry.
    pub name: &'static str,
    /// What it is compiled for.
    pub arch: Arch,
    /// Element type of the output.
    pub dtype: Dtype,
    /// Element type of the parts.
    pub parts: PartElement,
}

impl Combine {
    /// Rows of a CTA.
    pub const ROWS: usize = WARPS;

    /// Threads of a CTA.
    pub const THREADS: usize = 32 * WARPS;

    /// Its entry.
    pub fn entry(&self) -> Entry {
        Entry {
            name: self.name,
            arch: self.arch,
            threads: Self::THREADS,
            shared_bytes: 0,
            min_blocks: 1,
            barriers: 0,
            spill_allowance: 0,
            ptx_version: None,
        }
    }
}

macro_rules! combines {
    ($($name:ident: $arch:ident $dtype:ident from $parts:ident;)*) => {
        /// Every combining kernel there is.
        pub const COMBINES: &[Combine] = &[$(Combine {
            name: stringify!($name),
            arch: Arch::$arch,
            dtype: Dtype::$dtype,
            parts: PartElement::$parts,
        }),*];

        runs! {
            fn emulate_combine(warp, params: CombineParams, _address) {
                $($name => run::<_, combines!(@element $parts $dtype), format::$dtype>(warp, params);)*
            }
        }
    };

    (@element Single $dtype:ident) => { combine::Single };
    (@element Output $dtype:ident) => { format::$dtype };
}

/// # Safety
/// As [`combine::combine`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
unsafe fn run<W: Warp, P: combine::Part, F: format::Element>(warp: W, params: &CombineParams) {
    let row = warp.block_idx_x() * WARPS as u32 + warp.warp_id();
    // SAFETY: the caller's.
    unsafe { combine::combine::<W, P, F>(warp, params, row) }
}

combines! {
    combine_f32_f16_sm89: Sm89 F16 from Single;
    combine_f32_bf16_sm89: Sm89 Bf16 from Single;
    combine_f16_sm89: Sm89 F16 from Output;
    combine_bf16_sm89: Sm89 Bf16 from Output;
    combine_f32_f16_sm90a: Sm90a F16 from Single;
    combine_f32_bf16_sm90a: Sm90a Bf16 from Single;
    combine_f16_sm90a: Sm90a F16 from Output;
    combine_bf16_sm90a: Sm90a Bf16 from Output;
    combine_f32_f16_sm120f: Sm120f F16 from Single;
    combine_f32_bf16_sm120f: Sm120f Bf16 from Single;
    combine_f16_sm120f: Sm120f F16 from Output;
    combine_bf16_sm120f: Sm120f Bf16 from Output;
}
