//! The call.

use bytemuck::{cast_slice, cast_slice_mut};

use crate::backend::{DeviceTensors, HostTensors, Report, Tensors};
use crate::build_info::BuildInfo;
use crate::element::Element;
use crate::engine::Engine;
use crate::error::Error;
use crate::options::ForwardOptions;
use crate::plan::plan;
use crate::problem::Problem;
use crate::tensor::{Lse, Memory, MemoryMut, TensorMut, TensorRef};

/// Where the results of a call on `T` go: a [`TensorMut`], or a pair of one and an [`Lse`].
pub trait OutputFor<T: Element> {
    /// The output tensor and, if asked for, the log-sum-exp.
    #[doc(hidden)]
    fn parts(&mut self) -> (TensorMut<'_, T>, Option<Lse<'_>>);
}

impl<T: Element> OutputFor<T> for TensorMut<'_, T> {
    fn parts(&mut self) -> (TensorMut<'_, T>, Option<Lse<'_>>) {
        (self.reborrow(), None)
    }
}

impl<T: Element> OutputFor<T> for (TensorMut<'_, T>, Lse<'_>) {
    fn parts(&mut self) -> (TensorMut<'_, T>, Option<Lse<'_>>) {
        (self.0.reborrow(), Some(self.1.reborrow()))
    }
}

/// Computes `out = softmax(scale Q K^T) V` for every batch entry and head.
///
/// Shapes are `[batch, heads, sequence length, head dim]`: Q and `out` have `q_heads` and `q_len`, K and V `kv_heads`,
/// which divides `q_heads`, and `kv_len`. The head dim is a multiple of 8. See the crate's documentation for the exact
/// semantics, and [`OutputFor`] for how to get the log-sum-exp.
///
/// On tensors in host memory the call returns when the results are there. On tensors in device memory it returns when
/// the work is started, on the engine's stream.
///
/// # Errors
/// See [`Error`]. Nothing has been written to `out` unless the error is the driver's or the emulator's.
pub fn ffpa_forward<T: Element>(
    engine: &Engine,
    q: TensorRef<'_, T>,
    k: TensorRef<'_, T>,
    v: TensorRef<'_, T>,
    out: &mut impl OutputFor<T>,
    options: &ForwardOptions,
) -> Result<Report, Error> {
    let (o, lse) = out.parts();
    let problem = Problem::new(&q, &k, &v, &o, lse.as_ref(), options)?;
    let plan = plan(&problem, engine.device(), &BuildInfo::current())?;
    engine.backend.run(&plan, tensors(&q, &k, &v, o, lse), options.progress.as_ref())
}

/// The tensors of a validated call, which lie all in host or all in device memory.
fn tensors<'a, T: Element>(
    q: &TensorRef<'a, T>,
    k: &TensorRef<'a, T>,
    v: &TensorRef<'a, T>,
    o: TensorMut<'a, T>,
    lse: Option<Lse<'a>>,
) -> Tensors<'a> {
    match (q.memory, k.memory, v.memory, o.memory) {
        (Memory::Host(q), Memory::Host(k), Memory::Host(v), MemoryMut::Host(o)) => {
            Tensors::Host(HostTensors {
                q: cast_slice(q),
                k: cast_slice(k),
                v: cast_slice(v),
                o: cast_slice_mut(o),
                lse: lse.and_then(|lse| match lse.memory {
                    MemoryMut::Host(data) => Some(data),
                    MemoryMut::Device(..) => None,
                }),
            })
        }
        (Memory::Device(q), Memory::Device(k), Memory::Device(v), MemoryMut::Device(o, _)) => {
            let lse = lse.map_or(0, |lse| match lse.memory {
                MemoryMut::Device(address, _) => address,
                MemoryMut::Host(_) => 0,
            });
            Tensors::Device(DeviceTensors { q, k, v, o, lse })
        }
        _ => unreachable!("a Problem's tensors lie in one kind of memory"),
    }
}
