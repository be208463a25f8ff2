//! Attention on the host's cores: FlashAttention's tiling with f32 arithmetic.
//!
//! Work is spread over (batch, head) pairs and blocks of query rows. Each block widens its rows of Q once, walks over
//! tiles of keys, and keeps scores, probabilities and output in f32 until the end. [`gemm`] is where the time goes.

mod combine;
mod exp2;
mod gemm;
mod modify;
mod online;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytemuck::{cast_slice, cast_slice_mut};
use ffpa_kernels_gpu::abi::{Matrices, Params};
use ffpa_kernels_gpu::config::Dtype;
use half::{bf16, f16};
use rayon::prelude::*;

use self::modify::Modifier;
use super::{Backend, BackendKind, HostTensors, PartTensors, Report, Tensors};
use crate::combination::Combination;
use crate::device::DeviceInfo;
use crate::element::Element;
use crate::error::Error;
use crate::options::Progress;
use crate::plan::Plan;

/// The host's cores.
pub(crate) struct Cpu {
    device: DeviceInfo,
}

impl Cpu {
    pub(crate) fn new() -> Self {
        Cpu { device: DeviceInfo::cpu() }
    }
}

impl Backend for Cpu {
    fn kind(&self) -> BackendKind {
        BackendKind::Cpu
    }

    fn device(&self) -> &DeviceInfo {
        &self.device
    }

    fn run(&self, plan: &Plan, tensors: Tensors<'_>, progress: Option<&Progress>) -> Result<Report, Error> {
        let tensors = tensors.host(BackendKind::Cpu)?;
        let start = Instant::now();
        match plan.problem.dtype {
            Dtype::F16 => attend::<f16>(plan, tensors, progress),
            Dtype::Bf16 => attend::<bf16>(plan, tensors, progress),
        }
        Ok(Report::new(plan, BackendKind::Cpu, Some(start.elapsed())))
    }

    fn combine(&self, combination: &Combination, parts: PartTensors<'_>) -> Result<Report, Error> {
        let parts = parts.host(BackendKind::Cpu)?;
        let start = Instant::now();
        match combination.kernel.dtype {
            Dtype::F16 => combine::combine::<f16>(&combination.params, parts),
            Dtype::Bf16 => combine::combine::<bf16>(&combination.params, parts),
        }
        let elapsed = Some(start.elapsed());
        Ok(Report::of_combination(combination, BackendKind::Cpu, &self.device, elapsed))
    }
}

/// The rows of one (batch, head) of an input.
struct Rows<'a, T> {
    data: &'a [T],
    row_stride: usize,
    columns: usize,
}

impl<'a, T: Element> Rows<'a, T> {
    fn new(data: &'a [T], matrices: &Matrices, batch: usize, head: usize, columns: usize) -> Self {
        let offset = batch * matrices.batch_stride as usize + head * matrices.head_stride as usize;
        let elements = |bytes: usize| bytes / size_of::<T>();
        Rows { data: &data[elements(offset)..], row_stride: elements(matrices.row_stride as usize), columns }
    }

    fn row(&self, row: usize) -> &'a [T] {
        &self.data[row * self.row_stride..][..self.columns]
    }
}

/// An output that tasks write disjoint parts of.
struct Shared<T>(*mut T);

// SAFETY: tasks write disjoint elements, see `write`.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// # Safety
    /// The elements lie in the output, and no other task accesses them.
    unsafe fn write(&self, offset: usize, values: &[T]) {
        // SAFETY: the caller's.
        unsafe { self.0.add(offset).copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }
}

fn attend<T: Element>(plan: &Plan, tensors: HostTensors<'_>, progress: Option<&Progress>) {
    let (params, problem) = (&plan.params, &plan.problem);
    let [q, k, v] = [tensors.q, tensors.k, tensors.v].map(cast_slice::<u8, T>);
    let output = Shared(cast_slice_mut::<u8, T>(tensors.o).as_mut_ptr());
    let (mask, lse) = (tensors.mask, tensors.lse.map(|lse| Shared(lse.as_mut_ptr())));
    let (q_len, q_heads) = (params.q.rows as usize, params.q_heads as usize);
    let blocks = q_len.div_ceil(online::ROWS);
    let tasks = problem.batch * q_heads * blocks;
    let done = AtomicUsize::new(0);
    (0..tasks).into_par_iter().for_each_init(
        || online::Block::new(problem.head_dim),
        |block, task| {
            let (head, row) = (task / blocks, task % blocks * online::ROWS);
            let (batch, head) = (head / q_heads, head % q_heads);
            let kv_head = head / params.gqa_group as usize;
            let rows = |data, matrices, head| Rows::new(data, matrices, batch, head, problem.head_dim);
            let (q, k, v) =
                (rows(q, &params.q, head), rows(k, &params.k, kv_head), rows(v, &params.v, kv_head));
            block.run(&Modifier { params, mask, batch, head }, &q, &k, &v, row);
            store(block, params, batch, head, row, &output, lse.as_ref());
            if let Some(progress) = progress {
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, tasks);
            }
        },
    );
}

/// Rounds and stores a finished block.
fn store<T: Element>(
    block: &mut online::Block,
    params: &Params,
    batch: usize,
    head: usize,
    first_row: usize,
    output: &Shared<T>,
    lse: Option<&Shared<f32>>,
) {
    let (q_len, columns) = (params.q.rows as usize, params.head_dim as usize);
    let o = &params.o;
    let base = batch * o.batch_stride as usize + head * o.head_stride as usize;
    let mut rounded = vec![T::zeroed(); columns];
    for row in 0..online::ROWS.min(q_len - first_row) {
        let (values, log_sum) = block.finish(row, params);
        T::round(&values[..columns], &mut rounded);
        let offset = (base + (first_row + row) * o.row_stride as usize) / size_of::<T>();
        // SAFETY: the tensor was checked to hold its layout and not to overlap; each row is one task's.
        unsafe { output.write(offset, &rounded) };
        if let Some(lse) = lse {
            let offset = (batch * params.q_heads as usize + head) * q_len + first_row + row;
            // SAFETY: the slice was checked to hold every row; each is one task's.
            unsafe { lse.write(offset, &[log_sum]) };
        }
    }
}
