//! Element types of the tensors.

use ffpa_kernels_gpu::config::Dtype;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

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
