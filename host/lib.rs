//! Fused attention forward for Rust inference engines: `O = softmax(scale Q K^T) V` and its log-sum-exp, without ever
//! holding the scores, with the GPU code itself written in Rust.
//!
//! ```
//! use ffpa::{Engine, ForwardOptions, TensorMut, TensorRef, f16, ffpa_forward};
//!
//! # fn main() -> Result<(), ffpa::Error> {
//! let shape = [1, 8, 128, 64]; // batch, heads, sequence length, head dim
//! let x = vec![f16::from_f32(0.5); shape.iter().product()];
//! let mut o = vec![f16::ZERO; x.len()];
//!
//! let engine = Engine::auto();
//! let [q, k, v] = [TensorRef::bhnd(&x, shape)?; 3];
//! let report = ffpa_forward::<f16>(&engine, q, k, v, &mut TensorMut::bhnd(&mut o, shape)?, &ForwardOptions::causal())?;
//! println!("{} on {}", report.kernel, report.backend);
//! # Ok(())
//! # }
//! ```
//!
//! A call travels one way: [`ffpa_forward`] makes a [`Problem`] of it, [`plan`](plan()) chooses a kernel for the problem
//! on a device, and the [`Engine`]'s backend runs the [`Plan`]. Nothing falls back in silence: what was asked for runs,
//! or an [`Error`] says why not and what would help.
//!
//! # Semantics, the same on every backend
//!
//! * Causal masks are aligned to the bottom right: row `r` sees the keys `k <= r + kv_len - q_len` (as FlashAttention
//!   since 2.1; PyTorch's `is_causal` is aligned to the top left). Rows that see no key give 0 and a log-sum-exp of
//!   minus infinity.
//! * Query heads are a multiple of key/value heads; head `h` uses key/value head `h / (q_heads / kv_heads)`.
//! * The log-sum-exp is natural, of the scaled scores, f32.
//! * Scale 0 and negative scales mean what they say.
//! * Results are bit-equal from run to run.
//! * Memory beyond a tensor's rows and columns is never read, so what it holds does not matter.
//!   A NaN or infinity in a visible or causally hidden row of V may spoil the rows of its tile (0 times NaN is NaN); in eight bits
//!   see [`Fp8`].

mod backend;
mod build_info;
mod combination;
mod device;
mod element;
mod engine;
mod error;
mod forward;
mod hybrid;
#[cfg(feature = "ptx")]
mod images;
mod mask;
mod merge;
pub mod nvfp4;
mod options;
mod packing;
mod placement;
mod plan;
mod precision;
mod problem;
mod quantization;
mod refusal;
mod scale;
mod select;
mod tensor;
mod tensor_map;

pub use backend::{BackendKind, Report};
pub use build_info::BuildInfo;
pub use combination::Combination;
pub use device::DeviceInfo;
pub use element::{Element, Input, InputType};
pub use engine::Engine;
pub use error::Error;
pub use float8::F8E4M3;
pub use forward::{OutputFor, RawForward, RawScales, RawTensor, ffpa_forward, ffpa_forward_raw};
pub use half::{bf16, f16};
pub use mask::{Dropout, Mask, MaskElement};
pub use merge::{Partial, merge_lse};
pub use nvfp4::{E2m1x2, Ue4m3};
pub use options::ForwardOptions;
pub use plan::{Plan, plan};
pub use precision::{Family, Fp8, NvFp4, Precision, ScoreNumbers, ValueScales};
pub use problem::{MaskOperand, Operand, Problem, ScaleOperand};
pub use quantization::Quantization;
pub use refusal::Refusal;
pub use scale::Scales;
pub use tensor::{Lse, LseRef, TensorMut, TensorRef};

#[cfg(feature = "emulator")]
pub use ffpa_emulator as emulator;
pub use ffpa_kernels_gpu::abi::{self, CombineParams, MaskKind, Params, QuantizeParams};
pub use ffpa_kernels_gpu::catalog::{
    Combine, Copies, DEFAULT_HEAD_DIMS, Kernel, PartElement, Quantize, Stage,
};
pub use ffpa_kernels_gpu::config::{Arch, Arithmetic, Dtype};
