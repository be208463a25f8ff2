//! Element types of the tensors, and the families of kernels that work on them.

use std::fmt;

use ffpa_kernels_gpu::config::Dtype;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A family of kernels: how the matrix products are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// In the 16-bit type of the tensors.
    #[default]
    Native,
    /// In FP8 (e4m3).
    Fp8,
    /// In NVFP4 (e2m1 with a scale per 16 elements).
    NvFp4,
}

impl Family {
    /// The name users type: `native`, `fp8` or `nvfp4`.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Native => "native",
            Family::Fp8 => "fp8",
            Family::NvFp4 => "nvfp4",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// An element type of Q, K and V: [`f16`](struct@f16) or [`bf16`](struct@bf16).
pub trait Element: sealed::Sealed + bytemuck::Pod + Send + Sync {
    /// Its tag.
    const DTYPE: Dtype;

    /// Widens `from` to f32, exactly. Both have the same length.
    #[doc(hidden)]
    fn widen(from: &[Self], to: &mut [f32]);

    /// Rounds `from` to nearest even. Both have the same length.
    #[doc(hidden)]
    fn round(from: &[f32], to: &mut [Self]);
}

impl sealed::Sealed for f16 {}
impl Element for f16 {
    const DTYPE: Dtype = Dtype::F16;

    #[inline]
    fn widen(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    #[inline]
    fn round(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }
}

impl sealed::Sealed for bf16 {}
impl Element for bf16 {
    const DTYPE: Dtype = Dtype::Bf16;

    #[inline]
    fn widen(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    #[inline]
    fn round(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }
}
