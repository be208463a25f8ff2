//! What this build contains.

use std::sync::LazyLock;

use ffpa_kernels_gpu::catalog::{CATALOG, COMBINES, Combine, Kernel, QUANTIZES, Quantize};

// The names of the kernels that the build's variables chose, and whether bulk copies are among them, in native and in
// quantised ones: see build.rs.
include!(concat!(env!("OUT_DIR"), "/chosen.rs"));

/// The kernels of a build, and what of them is there as code for a GPU.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BuildInfo {
    /// The catalog's rows that the build's variables chose. They are the same with and without GPU code, so that every backend plans and refuses alike.
    pub kernels: Vec<&'static Kernel>,
    /// The combining kernels that go with them.
    pub combines: Vec<&'static Combine>,
    /// The quantising kernels that go with them.
    pub quantizes: Vec<&'static Quantize>,
    /// Whether forward kernels for CUDA devices are embedded.
    pub cuda_fwd_available: bool,
    /// Whether native kernels that use the tensor memory accelerator are embedded.
    pub cuda_tma_available: bool,
    /// Whether quantised kernels that use the tensor memory accelerator are embedded.
    pub cuda_quant_tma_available: bool,
}

impl BuildInfo {
    /// Whether this build embeds forward kernels for CUDA devices.
    pub const CUDA_FWD_AVAILABLE: bool = cfg!(feature = "ptx") && !CHOSEN.is_empty();
    /// Whether this build embeds native kernels that use the tensor memory accelerator.
    pub const CUDA_TMA_AVAILABLE: bool = cfg!(feature = "ptx") && BULK_CHOSEN;
    /// Whether this build embeds quantised kernels that use the tensor memory accelerator.
    pub const CUDA_QUANT_TMA_AVAILABLE: bool = cfg!(feature = "ptx") && QUANTIZED_BULK_CHOSEN;

    /// This build.
    pub fn current() -> Self {
        Self::here().clone()
    }

    /// This build, put together once: calls are planned with it.
    pub(crate) fn here() -> &'static Self {
        static HERE: LazyLock<BuildInfo> = LazyLock::new(BuildInfo::chosen);
        &HERE
    }

    /// The catalogs' rows that were chosen.
    fn chosen() -> Self {
        BuildInfo {
            kernels: CATALOG.iter().filter(|kernel| CHOSEN.contains(&kernel.name)).collect(),
            combines: COMBINES.iter().filter(|combine| CHOSEN.contains(&combine.name)).collect(),
            quantizes: QUANTIZES.iter().filter(|quantize| CHOSEN.contains(&quantize.name)).collect(),
            cuda_fwd_available: Self::CUDA_FWD_AVAILABLE,
            cuda_tma_available: Self::CUDA_TMA_AVAILABLE,
            cuda_quant_tma_available: Self::CUDA_QUANT_TMA_AVAILABLE,
        }
    }

    /// The PTX of one of this build's kernels, by name, for engines that load modules themselves. Its one parameter is
    /// [`Params`](crate::Params), [`QuantizeParams`](crate::QuantizeParams) or [`CombineParams`](crate::CombineParams), by value; grid, CTA and shared memory are the
    /// [`Plan`](crate::Plan)'s.
    ///
    /// # Errors
    /// [`Error::DamagedImage`](crate::Error::DamagedImage) if the kernel is not in this build.
    #[cfg(feature = "ptx")]
    pub fn ptx(&self, kernel: &'static str) -> Result<String, crate::Error> {
        crate::images::ptx(kernel)
    }
}
