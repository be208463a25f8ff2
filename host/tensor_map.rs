//! What bulk copies are told of Q, K and V (CUDA driver API, "Tensor Map Object Management").

use ffpa_kernels_gpu::abi::{Matrices, Params, TensorMap, TensorMaps};
use ffpa_kernels_gpu::catalog::{Copies, Kernel};
use ffpa_kernels_gpu::config::PANEL;

use crate::packing::QuerySide;
use crate::problem::Problem;

/// Strides of a tensor map are below this, in bytes.
const MAX_STRIDE: usize = 1 << 40;

/// A tensor of 16-bit elements, and the boxes that are copied of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tensor {
    /// Address of the first element.
    pub base: u64,
    /// Head dim, rows, heads and batch entries.
    pub sizes: [u64; 4],
    /// Bytes from one row, head and batch entry to the next.
    pub byte_strides: [u64; 3],
    /// Columns and rows of a box.
    pub box_sizes: [u32; 2],
}

impl Tensor {
    fn new(matrices: &Matrices, [batch, heads, head_dim]: [usize; 3], box_rows: usize) -> Self {
        let sizes = [head_dim, matrices.rows as usize, heads, batch].map(|size| size as u64);
        let strides = [matrices.row_stride.into(), matrices.head_stride, matrices.batch_stride];
        // The stride of a dimension of one index is never used, but must be one that the driver takes.
        let used = |i: usize| if sizes[i + 1] == 1 { 16 } else { strides[i] };
        Tensor {
            base: matrices.base,
            sizes,
            byte_strides: [0, 1, 2].map(used),
            box_sizes: [PANEL as u32, box_rows as u32],
        }
    }
}

/// Whether bulk copies can bring the problem's tensors. They cannot broadcast: a stride of 0 is none that the driver takes.
pub(crate) fn can_describe(problem: &Problem, side: &QuerySide) -> bool {
    let [_, k, v, _] = problem.operands.map(|operand| operand.byte_strides);
    let fits = |strides: [usize; 3], sizes: [usize; 3]| {
        let mut used = strides.into_iter().zip(sizes).filter(|&(_, size)| size > 1);
        used.all(|(stride, _)| stride > 0 && stride < MAX_STRIDE)
    };
    problem.kv_len > 0
        && fits(side.q, [problem.batch, side.heads, side.rows])
        && [k, v].into_iter().all(|strides| fits(strides, [problem.batch, problem.kv_heads, problem.kv_len]))
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
    let mut map = |matrices: &Matrices, heads: usize, box_rows: usize| {
        encode(&Tensor::new(matrices, [problem.batch, heads, problem.head_dim], box_rows))
    };
    Ok(TensorMaps {
        q: map(&params.q, params.q_heads as usize, kernel.rows)?,
        k: map(&params.k, problem.kv_heads, kernel.keys)?,
        v: map(&params.v, problem.kv_heads, kernel.keys)?,
    })
}
