//! The call.

use std::ffi::c_void;

use bytemuck::{cast_slice, cast_slice_mut};
use ffpa_kernels_gpu::config::Dtype;
use float8::F8E4M3;
use half::{bf16, f16};

use crate::backend::{DeviceTensors, HostTensors, Report, Tensors};
use crate::build_info::BuildInfo;
use crate::element::{Element, Input, InputType};
use crate::engine::Engine;
use crate::error::Error;
use crate::mask::Mask;
use crate::options::ForwardOptions;
use crate::placement::Addresses;
use crate::plan::{Plan, plan};
use crate::problem::Problem;
use crate::refusal::Refusal;
use crate::scale::Scales;
use crate::tensor::{Lse, Memory, MemoryMut, TensorMut, TensorRef};

/// Where the results of a call on `T` go: a [`TensorMut`], or a pair of one and an [`Lse`]. It is of `T` itself, or of any
/// 16-bit type if `T` has eight bits.
pub trait OutputFor<T: Input> {
    /// The output's element type.
    type Element: Element;

    /// The output tensor and, if asked for, the log-sum-exp.
    #[doc(hidden)]
    fn parts(&mut self) -> (TensorMut<'_, Self::Element>, Option<Lse<'_>>);
}

impl<T: Element> OutputFor<T> for TensorMut<'_, T> {
    type Element = T;

    fn parts(&mut self) -> (TensorMut<'_, T>, Option<Lse<'_>>) {
        (self.reborrow(), None)
    }
}

impl<T: Element> OutputFor<T> for (TensorMut<'_, T>, Lse<'_>) {
    type Element = T;

    fn parts(&mut self) -> (TensorMut<'_, T>, Option<Lse<'_>>) {
        (self.0.reborrow(), Some(self.1.reborrow()))
    }
}

impl<O: Element> OutputFor<F8E4M3> for TensorMut<'_, O> {
    type Element = O;

    fn parts(&mut self) -> (TensorMut<'_, O>, Option<Lse<'_>>) {
        (self.reborrow(), None)
    }
}

impl<O: Element> OutputFor<F8E4M3> for (TensorMut<'_, O>, Lse<'_>) {
    type Element = O;

    fn parts(&mut self) -> (TensorMut<'_, O>, Option<Lse<'_>>) {
        (self.0.reborrow(), Some(self.1.reborrow()))
    }
}

/// Computes `out = softmax(scale Q K^T) V` for every batch entry and head.
///
/// Shapes are `[batch, heads, sequence length, head dim]`: Q and `out` have `q_heads` and `q_len`, K and V `kv_heads`,
/// which divides `q_heads`, and `kv_len`. The head dim is a multiple of 8. See the crate's documentation for the exact
/// semantics, and [`OutputFor`] for how to get the log-sum-exp.
///
/// Tensors of [`F8E4M3`], for instance a cache of keys and values in eight bits, have [`Scales`]
/// ([`TensorRef::with_scales`]); their head dim is a multiple of 16, and the output is of a 16-bit type.
///
/// On tensors in host memory the call returns when the results are there. On tensors in device memory it returns when
/// the work is started, on the engine's stream.
///
/// # Errors
/// See [`Error`]. Nothing has been written to `out` unless the error is the driver's or the emulator's.
pub fn ffpa_forward<T: Input>(
    engine: &Engine,
    q: TensorRef<'_, T>,
    k: TensorRef<'_, T>,
    v: TensorRef<'_, T>,
    out: &mut impl OutputFor<T>,
    options: &ForwardOptions<'_>,
) -> Result<Report, Error> {
    let (o, lse) = out.parts();
    let problem = Problem::new(&q, &k, &v, &o, lse.as_ref(), options)?;
    let plan = plan(&problem, engine.device(), BuildInfo::here())?;
    engine.backend.run(
        &plan,
        tensors([&q, &k, &v], options.mask, o, lse, Caller::default()),
        options.progress.as_ref(),
    )
}

/// A tensor in device memory, described by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawTensor {
    /// Device address of the first element.
    pub address: u64,
    /// `[batch, heads, sequence length, head dim]`.
    pub shape: [usize; 4],
    /// Elements from one batch entry, head and row to the next.
    pub strides: [usize; 3],
}

/// The scales of a tensor in device memory, described by numbers as in [`Scales::device`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawScales {
    /// Device address of the first.
    pub address: u64,
    /// Floats from one batch entry, head and block of rows to the next.
    pub strides: [usize; 3],
    /// Rows of a block.
    pub rows: usize,
}

/// A call on tensors that another library owns.
#[derive(Clone, Copy, Debug)]
pub struct RawForward {
    /// Element type of Q, K and V.
    pub input: InputType,
    /// Element type of the output: that of the others, unless they have eight bits.
    pub output: Dtype,
    /// Queries.
    pub q: RawTensor,
    /// Keys.
    pub k: RawTensor,
    /// Values.
    pub v: RawTensor,
    /// Output.
    pub out: RawTensor,
    /// The scales of Q, K and V, if these have eight bits.
    pub scales: [Option<RawScales>; 3],
    /// Device address of the log-sum-exp, f32 `[batch, query heads, query rows]`; 0 to leave it out.
    pub lse: u64,
    /// The `CUstream` to start the work on, of the device's primary context; null is the default stream.
    pub stream: *mut c_void,
    /// Device address of [`Plan::workspace_bytes`] bytes ([`RawForward::plan`] says how many), a multiple of 256, that the call may
    /// write to until its work is done; 0 for the engine's own. The engine keeps one for each stream and grows it when it must,
    /// so only the first calls allocate. A captured graph goes on using that of the stream it was captured on.
    pub workspace: u64,
}

impl RawForward {
    /// What the call would run: how large a workspace it wants, for instance. Looks at no memory.
    ///
    /// # Errors
    /// As [`ffpa_forward_raw`].
    pub fn plan(&self, engine: &Engine, options: &ForwardOptions<'_>) -> Result<Plan, Error> {
        // SAFETY: nothing is started, so nothing of what addresses lead to is accessed.
        unsafe { prepare_raw(engine, self, options).map(|(plan, _)| plan) }
    }
}

/// [`ffpa_forward`] for engines that own their memory: device addresses and a stream in, nothing but a launch done.
///
/// After the first call with a kernel, which loads it, nothing is allocated on the device and nothing waits for it, so calls can
/// be captured in a graph. Kernels with bulk copies need descriptions of their tensors: the engine encodes one when an address,
/// shape and strides first come together, and keeps it in host memory.
///
/// # Errors
/// As [`ffpa_forward`]; [`Refusal::DeviceMemory`](crate::Refusal::DeviceMemory) on an engine that is not CUDA's.
///
/// # Safety
/// Every tensor is what its description says, live on the engine's device until the work is done, and nothing else
/// accesses the outputs meanwhile. The stream is one of the device's primary context; it is destroyed when its work is done.
/// The engine outlives the work that was started and every graph that it was captured in.
pub unsafe fn ffpa_forward_raw(
    engine: &Engine,
    call: &RawForward,
    options: &ForwardOptions<'_>,
) -> Result<Report, Error> {
    // SAFETY: the caller's.
    let (plan, tensors) = unsafe { prepare_raw(engine, call, options)? };
    engine.backend.run(&plan, tensors, None)
}

/// A raw call's plan and tensors.
///
/// # Safety
/// As [`ffpa_forward_raw`], as soon as the tensors are accessed.
unsafe fn prepare_raw<'a>(
    engine: &Engine,
    call: &RawForward,
    options: &ForwardOptions<'a>,
) -> Result<(Plan, Tensors<'a>), Error> {
    // SAFETY: the caller's.
    unsafe {
        match (call.input, call.output) {
            (InputType::Sixteen(Dtype::F16), Dtype::F16) => prepare_typed::<f16, f16>(engine, call, options),
            (InputType::Sixteen(Dtype::Bf16), Dtype::Bf16) => {
                prepare_typed::<bf16, bf16>(engine, call, options)
            }
            (InputType::F8E4M3, Dtype::F16) => prepare_typed::<F8E4M3, f16>(engine, call, options),
            (InputType::F8E4M3, Dtype::Bf16) => prepare_typed::<F8E4M3, bf16>(engine, call, options),
            (input, output) => Err(Refusal::OutputType { input: input.name(), output: output.name() }.into()),
        }
    }
}

/// # Safety
/// As [`prepare_raw`].
unsafe fn prepare_typed<'a, T: Input + 'a, O: Element + 'a>(
    engine: &Engine,
    call: &RawForward,
    options: &ForwardOptions<'a>,
) -> Result<(Plan, Tensors<'a>), Error> {
    let input = |t: &RawTensor, scales: Option<RawScales>| {
        // SAFETY: the caller's.
        let scales = scales.map(|s| unsafe { Scales::device(s.address, s.strides, s.rows) });
        // SAFETY: the caller's.
        let tensor = unsafe { TensorRef::<T>::device(t.address, t.shape, t.strides) };
        let scales = scales.map(|scales| scales.of(t.shape)).transpose()?;
        Ok::<_, Refusal>(TensorRef { scales, ..tensor })
    };
    let [q_scales, k_scales, v_scales] = call.scales;
    let (q, k, v) = (input(&call.q, q_scales)?, input(&call.k, k_scales)?, input(&call.v, v_scales)?);
    // SAFETY: the caller's.
    let o = unsafe { TensorMut::<O>::device(call.out.address, call.out.shape, call.out.strides) };
    // SAFETY: the caller's.
    let lse = (call.lse != 0).then(|| unsafe { Lse::device(call.lse) });
    let (bytes, alignment) = ((call.workspace % 256) as usize, 256);
    if bytes != 0 {
        let refusal = Refusal::Misaligned { tensor: "the workspace", what: "the address", bytes, alignment };
        return Err(refusal.into());
    }
    let problem = Problem::new(&q, &k, &v, &o, lse.as_ref(), options)?;
    let plan = plan(&problem, engine.device(), BuildInfo::here())?;
    let caller = Caller { stream: Some(call.stream as usize), workspace: call.workspace };
    Ok((plan, tensors([&q, &k, &v], options.mask, o, lse, caller)))
}

/// What a caller brings besides tensors.
#[derive(Default)]
struct Caller {
    /// None for the engine's.
    stream: Option<usize>,
    /// 0 for the engine's.
    workspace: u64,
}

/// The tensors of a validated call, which lie all in host or all in device memory.
fn tensors<'a, T: Input, O: Element>(
    [q, k, v]: [&TensorRef<'a, T>; 3],
    mask: Option<Mask<'a>>,
    o: TensorMut<'a, O>,
    lse: Option<Lse<'a>>,
    caller: Caller,
) -> Tensors<'a> {
    let scales = [q.scales, k.scales, v.scales].map(|scales| scales.map(|scales| scales.memory));
    match (q.memory, k.memory, v.memory, o.memory) {
        (Memory::Host(q), Memory::Host(k), Memory::Host(v), MemoryMut::Host(o)) => {
            Tensors::Host(HostTensors {
                q: cast_slice(q),
                k: cast_slice(k),
                v: cast_slice(v),
                scales: scales.map(|scales| scales.map_or(&[][..], |memory| memory.slice())),
                mask: mask.map(|mask| &mask.memory.slice()[..mask.bytes()]),
                o: cast_slice_mut(o),
                lse: lse.and_then(|lse| match lse.memory {
                    MemoryMut::Host(data) => Some(data),
                    MemoryMut::Device(..) => None,
                }),
            })
        }
        (Memory::Device(q), Memory::Device(k), Memory::Device(v), MemoryMut::Device(o, _)) => {
            let lse = lse.map_or(0, |lse| lse.memory.address());
            let mask = mask.map_or(0, |mask| mask.memory.address());
            let scales = scales.map(|scales| scales.map_or(0, |memory| memory.address()));
            let Caller { stream, workspace } = caller;
            let addresses = Addresses { q, k, v, scales, mask, o, lse, workspace };
            Tensors::Device(DeviceTensors { addresses, stream })
        }
        _ => unreachable!("a Problem's tensors lie in one kind of memory"),
    }
}
