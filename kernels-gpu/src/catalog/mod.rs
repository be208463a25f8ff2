//! The table of kernels. A kernel exists because a row says so.
//!
//! [`forward`] has the attention kernels, [`combine`] those that bring their results together. Each row expands to three
//! things from the same constants: the PTX entry (on the device target, under `--cfg NAME`, so that each module holds one
//! kernel), the host's descriptor, and the instance that the emulator runs. A row that cannot exist, because a tile does
//! not fit its target, does not compile.

pub mod combine;
pub mod forward;
pub mod quantize;

pub use combine::{COMBINES, Combine, PartElement, emulate_combine};
pub use forward::{CATALOG, Copies, DEFAULT_HEAD_DIMS, Kernel, emulate};
pub use quantize::{QUANTIZES, Quantize, Stage, emulate_quantize};

use crate::config::Arch;

/// A PTX entry, as builds and loaders see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it is compiled for.
    pub arch: Arch,
    /// Threads of a CTA.
    pub threads: usize,
    /// Dynamic shared memory of a CTA, in bytes.
    pub shared_bytes: usize,
    /// CTAs that must fit on a multiprocessor: bounds the registers of a thread.
    pub min_blocks: usize,
    /// Barriers (`bar.sync`) in the PTX. The compiler must neither copy nor drop one.
    pub barriers: usize,
    /// Bytes of register spills that ptxas may report: the measured price of the tile, see the row.
    pub spill_allowance: usize,
    /// The version of PTX that its instructions need, if its architecture's own is older (PTX ISA, "mma").
    pub ptx_version: Option<&'static str>,
}

/// Every entry there is.
pub fn entries() -> impl Iterator<Item = Entry> {
    let quantizes = QUANTIZES.iter().map(Quantize::entry);
    CATALOG.iter().map(Kernel::entry).chain(COMBINES.iter().map(Combine::entry)).chain(quantizes)
}

/// What kernels of one kind run, by name: a function that runs one warp of a named kernel for the emulator, and the PTX
/// entries. `$address` is that of the parameters, as asynchronous copies know it.
macro_rules! runs {
    (fn $emulate:ident($warp:ident, $params:ident: $Params:ty, $address:ident) { $($name:ident => $run:expr;)* }) => {
        /// Runs one warp of the kernel `name`; false if there is none of that name.
        ///
        /// # Safety
        /// As for a launch of the kernel: `params` describes live buffers, and the warp is one of the kernel's CTAs'.
        pub unsafe fn $emulate<W: cuda_std::Warp>(name: &str, $warp: W, $params: &$Params) -> bool {
            let $address = core::ptr::from_ref($params) as u64;
            match name {
                // SAFETY: the caller's.
                $(stringify!($name) => unsafe { $run },)*
                _ => return false,
            }
            true
        }

        #[cfg(target_arch = "nvptx64")]
        mod entries {
            use super::*;

            $(
                #[cfg($name)]
                #[unsafe(no_mangle)]
                pub unsafe extern "ptx-kernel" fn $name($params: $Params) {
                    let ($warp, $params) = (cuda_std::ptx::Ptx, &$params);
                    let $address = cuda_std::parameter_address!($name);
                    // SAFETY: the launch's.
                    unsafe { $run }
                }
            )*
        }
    };
}
use runs;

#[cfg(target_arch = "nvptx64")]
cuda_std::declare_shared_memory!();
