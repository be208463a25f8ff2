//! Tensors that come in eight bits: what their numbers stand for.

use ffpa_kernels_gpu::abi::{Matrices, Scale};
use float8::F8E4M3;
use rayon::prelude::*;

use super::quantize::Quantized;
use super::{Rows, Source};
use crate::plan::Plan;

impl Quantized {
    /// Of a call's tensors and their scales, contiguous, as `plan`'s kernel sees them.
    pub fn decoded(plan: &Plan, [q, k, v]: [&[F8E4M3]; 3], scales: [&[f32]; 3]) -> Self {
        let (params, problem) = (&plan.params, &plan.problem);
        let matrices = |data, matrices, heads, scale, scales| {
            decode(data, matrices, [problem.batch, heads, problem.head_dim], scale, scales)
        };
        let of = &params.scales;
        let q_heads = params.q_heads as usize;
        Quantized {
            q: matrices(q, &params.q, q_heads, &of.q, scales[0]),
            k: matrices(k, &params.k, problem.kv_heads, &of.k, scales[1]),
            v: matrices(v, &params.v, problem.kv_heads, &of.v, scales[2]),
            shift: vec![0.0; problem.batch * q_heads * params.q.rows as usize],
            terms: vec![],
        }
    }
}

fn decode(
    data: &[F8E4M3],
    matrices: &Matrices,
    [batch, heads, columns]: [usize; 3],
    scale: &Scale,
    scales: &[f32],
) -> Vec<f32> {
    let rows = matrices.rows as usize;
    let mut decoded = vec![0.0; batch * heads * rows * columns];
    decoded.par_chunks_mut((rows * columns).max(1)).enumerate().for_each(|(index, to)| {
        let (batch, head) = (index / heads, index % heads);
        let from = Rows::new(data, matrices, batch, head, columns);
        let first = batch * scale.batch_stride as usize + head * scale.head_stride as usize;
        for (row, to) in to.chunks_mut(columns).enumerate() {
            let place = first + row / scale.rows as usize * scale.block_stride as usize;
            let factor = scales[place / size_of::<f32>()];
            F8E4M3::widen(from.row(row), to);
            to.iter_mut().for_each(|x| *x *= factor);
        }
    });
    decoded
}
