//! What bulk copies are told of Q, K and V (CUDA driver API, "Tensor Map Object Management").

use ffpa_kernels_gpu::abi::{Matrices, Params, TensorMap, TensorMaps};
use ffpa_kernels_gpu::catalog::{Copies, Kernel};
use ffpa_kernels_gpu::config::PANEL;

use crate::problem::Problem;
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

/// Q, K and V as a kernel copies them, each if boxes are copied of it; `params` has the tensors' addresses.
fn tensors(kernel: &Kernel, problem: &Problem, params: &Params) -> [Option<Tensor>; 3] {
    if kernel.copies == Copies::Async {
        return [None; 3];
    }
    // Copies only move elements: they may count in units of 16 bits whatever these hold.
    let tensor = |matrices: &Matrices, heads: usize, elements: usize, box_rows: usize| {
        let columns = kernel.arithmetic.record().bytes(elements) / 2;
        Tensor::new(matrices, [problem.batch, heads, columns], box_rows)
    };
    let (d, [_, value_rows]) = (problem.head_dim, kernel.value_rows(problem.kv_len));
    [
        tensor(&params.q, params.q_heads as usize, d, kernel.rows),
        tensor(&params.k, problem.kv_heads, d, kernel.keys),
        tensor(&params.v, problem.kv_heads, kernel.value_elements(d), value_rows),
    ]
}

/// Refuses tensors that a kernel's bulk copies cannot bring.
pub(crate) fn check_strides(kernel: &Kernel, problem: &Problem, params: &Params) -> Result<(), Refusal> {
    for (tensor, name) in tensors(kernel, problem, params).iter().zip(["q", "k", "v"]) {
        let Some(Tensor { byte_strides: [_, head, batch], .. }) = *tensor else { continue };
        for (what, bytes) in [("the batch stride", batch), ("the head stride", head)] {
            if bytes > MAX_STRIDE {
                return Err(Refusal::StrideTooLarge { tensor: name, what, bytes, limit: MAX_STRIDE });
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
    let mut map = |tensor: Option<Tensor>| tensor.map_or(Ok([0; 16]), |tensor| encode(&tensor));
    let [q, k, v] = tensors(kernel, problem, params);
    Ok(TensorMaps { q: map(q)?, k: map(k)?, v: map(v)? })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::build_info::BuildInfo;
    use crate::device::DeviceInfo;
    use crate::error::Error;
    use crate::plan::{Plan, plan};
    use ffpa_kernels_gpu::config::{Arch, Dtype};

    /// Batch, query heads, key/value heads, query rows, keys and head dim, of a call that bulk copies serve on `sm_90a`.
    const SIZES: [usize; 6] = [2, 4, 2, 200, 300, 64];

    fn problem(sizes: [usize; 6]) -> Problem {
        Problem::contiguous(Dtype::F16, sizes)
    }

    fn planned(problem: &Problem) -> Result<Plan, Error> {
        let plan = plan(problem, &DeviceInfo::of_arch(Arch::Sm90a), BuildInfo::here())?;
        assert_eq!(plan.kernel.copies, Copies::Bulk, "{}", plan.kernel.name);
        Ok(plan)
    }

    /// The tensors that a problem's kernel copies boxes of.
    fn copied(problem: &Problem) -> [Option<Tensor>; 3] {
        let Plan { kernel, params, .. } = planned(problem).unwrap_or_else(|error| panic!("{error}"));
        tensors(kernel, problem, &params)
    }

    fn copied_all(problem: &Problem) -> [Tensor; 3] {
        copied(problem).map(|tensor| tensor.expect("it has rows"))
    }

    #[test]
    fn tensors_are_what_the_problem_says() {
        let problem = problem(SIZES);
        let [q, k, v] = copied_all(&problem);
        let kernel = planned(&problem).expect("there is a kernel").kernel;
        assert_eq!(q.sizes, [64, 200, 4, 2]);
        assert_eq!(q.byte_strides, [128, 200 * 128, 4 * 200 * 128]);
        assert_eq!(q.box_sizes, [64, kernel.rows as u32]);
        assert_eq!(k.sizes, [64, 300, 2, 2]);
        assert_eq!(k.byte_strides, [128, 300 * 128, 2 * 300 * 128]);
        assert_eq!(k.box_sizes, [64, kernel.keys as u32]);
        assert_eq!(v, k);
    }

    #[test]
    fn dimensions_of_one_index_have_any_stride() {
        let mut one = problem([1, 1, 1, 200, 300, 64]);
        for operand in &mut one.operands {
            // No driver takes either.
            operand.byte_strides[..2].copy_from_slice(&[1 << 50, 1 << 45]);
        }
        for tensor in copied_all(&one) {
            assert_eq!(tensor.byte_strides, [128, 16, 16]);
        }
        let mut key = problem([2, 2, 2, 200, 1, 64]);
        key.operands[1].byte_strides[2] = 0;
        assert_eq!(copied_all(&key)[1].byte_strides[0], 16);
    }

    #[test]
    fn strides_end_below_2_to_the_40() {
        const LIMIT: usize = (1 << 40) - 16;
        let names = [(0, "q"), (1, "k"), (2, "v")];
        let dimensions = [(0, "the batch stride"), (1, "the head stride")];
        for (operand, tensor) in names {
            for (dimension, what) in dimensions {
                let mut problem = problem(SIZES);
                problem.operands[operand].byte_strides[dimension] = LIMIT;
                assert_eq!(copied_all(&problem)[operand].byte_strides[2 - dimension], LIMIT as u64);
                problem.operands[operand].byte_strides[dimension] = LIMIT + 16;
                let (bytes, limit) = (1 << 40, LIMIT as u64);
                let refusal = Refusal::StrideTooLarge { tensor, what, bytes, limit };
                assert_eq!(planned(&problem).expect_err("it is too large"), refusal.into());
            }
        }
    }

    #[test]
    fn repeated_heads_and_batch_entries_keep_their_stride_of_0() {
        let mut problem = problem(SIZES);
        problem.operands[1].byte_strides[1] = 0;
        problem.operands[2].byte_strides[0] = 0;
        let [_, k, v] = copied_all(&problem);
        assert_eq!((k.sizes, k.byte_strides), ([64, 300, 2, 2], [128, 0, 2 * 300 * 128]));
        assert_eq!((v.sizes, v.byte_strides), ([64, 300, 2, 2], [128, 300 * 128, 0]));
    }

    #[test]
    fn packed_queries_are_heads_of_more_rows() {
        // 64 query heads share a key/value head, with 2 rows each, one behind the other.
        let [q, k, _] = copied_all(&problem([3, 128, 2, 2, 300, 64]));
        assert_eq!((q.sizes, q.byte_strides), ([64, 128, 2, 3], [128, 128 * 128, 2 * 128 * 128]));
        assert_eq!(k.sizes, [64, 300, 2, 3]);
        // Single rows may lie anywhere at equal distances.
        let mut single = problem([3, 256, 2, 1, 300, 64]);
        single.operands[0].byte_strides = [1 << 30, 512, 0];
        let [q, ..] = copied_all(&single);
        assert_eq!((q.sizes, q.byte_strides), ([64, 128, 2, 3], [512, 128 * 512, 1 << 30]));
    }

    #[test]
    fn tensors_without_rows_have_no_map() {
        let problem = problem([2, 4, 2, 200, 0, 64]);
        let Plan { kernel, params, .. } = planned(&problem).unwrap_or_else(|error| panic!("{error}"));
        let mut encoded = 0;
        let maps = tensor_maps(kernel, &problem, &params, |tensor| {
            encoded += 1;
            assert_eq!(tensor.sizes[1], 200);
            Ok::<_, Infallible>([7; 16])
        });
        let Ok(maps) = maps;
        assert_eq!(encoded, 1);
        assert_eq!(maps, TensorMaps { q: [7; 16], ..TensorMaps::NONE });
    }

    #[test]
    fn kernels_that_copy_otherwise_need_no_maps_and_take_any_stride() {
        let mut problem = problem(SIZES);
        problem.operands[1].byte_strides[0] = 1 << 45;
        let plan =
            plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), BuildInfo::here()).expect("it takes that");
        assert_eq!(tensors(plan.kernel, &problem, &plan.params), [None; 3]);
    }
}
