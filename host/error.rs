//! What can go wrong with a call.

use ffpa_kernels_gpu::catalog::{CATALOG, Kernel};
use ffpa_kernels_gpu::config::Dtype;

use crate::backend::BackendKind;
use crate::precision::Family;
use crate::refusal::Refusal;

/// Why a call did not run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request cannot be served as it stands.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No kernel of any build takes this head dim.
    #[error("head dim {head_dim} is beyond {limit}, the largest that any build supports")]
    HeadDimUnsupported {
        /// The head dim.
        head_dim: usize,
        /// The largest supported.
        limit: usize,
    },
    /// This build has no kernel for this head dim.
    #[error(
        "head dim {head_dim} is above the compiled {compiled:?} for {dtype} on {device}; rebuild with \
         FFPA_BUILD_HEADDIM including a larger one (`default` has every head dim up to 1024)",
        dtype = dtype.name()
    )]
    HeadDimNotCompiled {
        /// The head dim.
        head_dim: usize,
        /// What is compiled.
        compiled: Vec<usize>,
        /// Element type.
        dtype: Dtype,
        /// The device's name.
        device: String,
    },
    /// This build has kernels for this head dim, but none that takes masks or dropout.
    #[error(
        "masks and dropout run at the compiled head dims {compiled:?} for {dtype} on {device}, not at {head_dim}; rebuild \
         with FFPA_BUILD_HEADDIM=default, which has them for every head dim",
        dtype = dtype.name()
    )]
    MasksNotCompiled {
        /// The head dim.
        head_dim: usize,
        /// Head dims at which masks run.
        compiled: Vec<usize>,
        /// Element type.
        dtype: Dtype,
        /// The device's name.
        device: String,
    },
    /// The quantised families are compiled for small head dims only, unless a build asks for more.
    #[error(
        "head dim {head_dim} is outside the {family} window: this build has kernels for head dims up to {window}; {mend}",
        mend = beyond_window(*family, *head_dim)
    )]
    QuantSplitD {
        /// The family.
        family: Family,
        /// The head dim.
        head_dim: usize,
        /// The largest head dim of the compiled window.
        window: usize,
    },
    /// This build or this device has no kernels of the family.
    #[error("the {family} family is not available: {reason}")]
    FamilyUnavailable {
        /// The family.
        family: Family,
        /// Why, and what is there.
        reason: String,
    },
    /// The device is older than every compiled kernel.
    #[error(
        "{device} has compute capability {major}.{minor}; the kernels need {needed} or newer (compiled: {compiled})"
    )]
    DeviceUnsupported {
        /// The device's name.
        device: String,
        /// Its compute capability.
        major: u32,
        /// Its compute capability.
        minor: u32,
        /// What is needed.
        needed: &'static str,
        /// What was compiled.
        compiled: String,
    },
    /// The backend cannot be had here.
    #[error("the {backend} backend is not available: {reason}")]
    BackendUnavailable {
        /// The backend.
        backend: BackendKind,
        /// Why, and what would help.
        reason: String,
    },
    /// The driver refused a call.
    #[error("{call} failed with code {code} ({name})")]
    Driver {
        /// The driver function.
        call: &'static str,
        /// Its result.
        code: i32,
        /// The result's name.
        name: String,
    },
    /// An embedded kernel cannot be read.
    #[error("the embedded code of {kernel} is damaged; rebuild the crate")]
    DamagedImage {
        /// The kernel.
        kernel: &'static str,
    },
    /// The emulated kernel did something that a correct one never does.
    #[cfg(feature = "emulator")]
    #[error("kernel {kernel}, emulated: {fault}")]
    Emulator {
        /// The kernel.
        kernel: &'static str,
        /// What it did.
        fault: Box<ffpa_emulator::Fault>,
    },
}

/// What helps where a family's kernels of a build end below a head dim.
fn beyond_window(family: Family, head_dim: usize) -> &'static str {
    let takes = |kernel: &Kernel| kernel.arithmetic.family() == family && kernel.head_dim >= head_dim;
    match CATALOG.iter().any(takes) {
        true => "rebuild with ENABLE_FFPA_QUANT_SPLIT_D=1, or compute in 16 bits",
        false => "compute in 16 bits",
    }
}
