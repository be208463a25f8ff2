//! What bulk copies are told of Q, K and V (CUDA driver API, "Tensor Map Object Management").

use ffpa_kernels_gpu::abi::{Matrices, Params, TensorMap, TensorMaps};
use ffpa_kernels_gpu::catalog::{Copies, Kernel};
use ffpa_kernels_gpu::config::PANEL;

use crate::precision::Precision;
use crate::problem::Problem;
use crate::quantization::row_bytes;
use crate::refusal::Refusal;

/// The largest stride of a tensor map, in bytes: a multiple of 16 below 2^40.
const MAX_STRIDE: u64 = (1 << 40) - 16;

/// A tensor, in units of 16 bits, and the boxes that are copied of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tensor {
    /// Address of the first element.
    pub base: u64,
    /// Units of a row, rows, heads and batch entries.
    pub sizes: [u64; 4],
    /// Bytes from one row, head and batch entry to the next.
    pub byte_strides: [u64; 3],
    /// Units and rows of a box.
    pub box_sizes: [u32; 2],
}

impl Tensor {
    /// None of a tensor without rows: nothing is copied of it, and the driver would not take it.
    fn new(matrices: &Matrices, [batch, heads, columns]: [usize; 3], box_rows: usize) -> Option<Self> {
        if matrices.rows == 0 {
            return None;
        }
        let sizes = [columns, matrices.rows as usize, heads, batch].map(|size| size as u64);
        let strides = [matrices.row_stride.into(), matrices.head_stride, matrices.batch_stride];
        // The stride of a dimension of one index is never used, but must be one that the driver takes.
        let used = |i: usize| if sizes[i + 1] == 1 { 16 } else { strides[i] };
        Some(Tensor {
            base: matrices.base,
            sizes,
            byte_strides: [0, 1, 2].map(used),
            box_sizes: [PANEL as u32, box_rows as u32],
        })
    }
}

/// Refuses tensors that a kernel's bulk copies cannot bring.
pub(crate) fn check_strides(kernel: &Kernel, params: &Params) -> Result<(), Refusal> {
    if kernel.copies == Copies::Async {
        return Ok(());
    }
    let tensors = [("q", &params.q), ("k", &params.k), ("v", &params.v)];
    for (tensor, matrices) in tensors {
        let strides =
            [("the batch stride", matrices.batch_stride), ("the head stride", matrices.head_stride)];
        for (what, bytes) in strides {
            if bytes > MAX_STRIDE {
                return Err(Refusal::StrideTooLarge { tensor, what, bytes, limit: MAX_STRIDE });
            }
        }
    }
    Ok(())
}

/// The tensor maps that a kernel needs; `params` has the tensors' addresses, and `encode` makes what the hardware, or the
/// emulator, reads.
#[cfg_attr(
    not(any(feature = "emulator", feature = "cuda")),
    allow(dead_code, reason = "the cpu backend copies nothing")
)]
pub(crate) fn tensor_maps<E>(
    kernel: &Kernel,
    problem: &Problem,
    params: &Params,
    mut encode: impl FnMut(&Tensor) -> Result<TensorMap, E>,
) -> Result<TensorMaps, E> {
    if kernel.copies == Copies::Async {
        return Ok(TensorMaps::NONE);
    }
    // Copies only move elements: they may count in units of 16 bits whatever these hold.
    let columns = match problem.precision {
        Precision::Native => problem.head_dim,
        _ => row_bytes(problem.head_dim) / 2,
    };
    let mut map = |matrices: &Matrices, heads: usize, box_rows: usize| {
        let tensor = Tensor::new(matrices, [problem.batch, heads, columns], box_rows);
        tensor.map_or(Ok([0; 16]), |tensor| encode(&tensor))
    };
    Ok(TensorMaps {
        q: map(&params.q, params.q_heads as usize, kernel.rows)?,
        k: map(&params.k, problem.kv_heads, kernel.keys)?,
        v: map(&params.v, problem.kv_heads, kernel.keys)?,
    })
}
