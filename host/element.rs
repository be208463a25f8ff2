//! Element types of the tensors.

use ffpa_kernels_gpu::config::Dtype;
use float8::F8E4M3;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// What Q, K and V hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InputType {
    /// A 16-bit type.
    Sixteen(Dtype),
    /// e4m3 with scales.
    F8E4M3,
}

impl InputType {
    /// The name users type: `f16`, `bf16` or `f8e4m3`.
    pub const fn name(self) -> &'static str {
        match self {
            InputType::Sixteen(dtype) => dtype.name(),
            InputType::F8E4M3 => "f8e4m3",
        }
    }

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            InputType::Sixteen(dtype) => dtype.bytes(),
            InputType::F8E4M3 => 1,
        }
    }
}

/// An element type of Q, K and V: [`f16`](struct@f16), [`bf16`](struct@bf16) or [`F8E4M3`].
pub trait Input: sealed::Sealed + bytemuck::Pod + Send + Sync {
    /// Its tag.
    const TYPE: InputType;
}

impl sealed::Sealed for F8E4M3 {}
impl Input for F8E4M3 {
    const TYPE: InputType = InputType::F8E4M3;
}

/// An element type of outputs: [`f16`](struct@f16) or [`bf16`](struct@bf16).
pub trait Element: Input {
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
impl Input for f16 {
    const TYPE: InputType = InputType::Sixteen(Dtype::F16);
}

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
impl Input for bf16 {
    const TYPE: InputType = InputType::Sixteen(Dtype::Bf16);
}

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
