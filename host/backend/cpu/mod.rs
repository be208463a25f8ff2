//! Attention on the host's cores: FlashAttention's tiling with f32 arithmetic.
//!
//! Work is spread over (batch, head) pairs and blocks of query rows. Each block widens its rows of Q once, walks over
//! tiles of keys, and keeps scores, probabilities and output in f32 until the end. [`gemm`] is where the time goes.

mod combine;
mod decode;
mod exp2;
mod gemm;
mod modify;
mod online;
pub(super) mod quantize;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytemuck::{cast_slice, cast_slice_mut};
use ffpa_kernels_gpu::abi::{Matrices, Params};
use ffpa_kernels_gpu::config::Dtype;
use ffpa_kernels_gpu::quantize::QUERIES;
use float8::F8E4M3;
use half::{bf16, f16};
use rayon::prelude::*;

use self::modify::Modifier;
use self::online::Rounding;
use self::quantize::Quantized;
use super::{Backend, BackendKind, HostTensors, PartTensors, Report, Tensors};
use crate::combination::Combination;
use crate::device::DeviceInfo;
use crate::element::{Element, InputType};
use crate::error::Error;
use crate::options::Progress;
use crate::plan::Plan;
use crate::quantization;

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
        let mut tensors = tensors.host(BackendKind::Cpu)?;
        let start = Instant::now();
        let steps = Steps { progress, done: AtomicUsize::new(0), all: plan.passes().map(tasks).sum() };
        for pass in plan.passes() {
            match plan.problem.dtype {
                Dtype::F16 => forward::<f16>(pass, &mut tensors, &steps),
                Dtype::Bf16 => forward::<bf16>(pass, &mut tensors, &steps),
            }
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

/// An input's element.
trait Source: Copy + Send + Sync {
    /// Widens elements to f32.
    fn widen(from: &[Self], to: &mut [f32]);
}

impl<T: Element> Source for T {
    fn widen(from: &[Self], to: &mut [f32]) {
        T::widen(from, to);
    }
}

impl Source for F8E4M3 {
    fn widen(from: &[Self], to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(to, x)| *to = x.to_f32());
    }
}

/// What quantised numbers stand for.
impl Source for f32 {
    fn widen(from: &[Self], to: &mut [f32]) {
        to.copy_from_slice(from);
    }
}

/// The rows of one (batch, head) of an input.
struct Rows<'a, T> {
    data: &'a [T],
    row_stride: usize,
    columns: usize,
}

impl<'a, T: Source> Rows<'a, T> {
    fn new(data: &'a [T], matrices: &Matrices, batch: usize, head: usize, columns: usize) -> Self {
        let offset = matrices.base as usize
            + batch * matrices.batch_stride as usize
            + head * matrices.head_stride as usize;
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

/// What is reported of a call's progress.
struct Steps<'a> {
    progress: Option<&'a Progress>,
    done: AtomicUsize,
    all: usize,
}

impl Steps<'_> {
    fn step(&self) {
        if let Some(progress) = self.progress {
            progress(self.done.fetch_add(1, Ordering::Relaxed) + 1, self.all);
        }
    }
}

/// Blocks of query rows of all batch entries and heads.
fn tasks(plan: &Plan) -> usize {
    let blocks = (plan.params.q.rows as usize).div_ceil(online::ROWS);
    // Without rows, more heads than can be counted are still no work.
    plan.problem.batch.saturating_mul(plan.params.q_heads as usize).saturating_mul(blocks)
}

/// The rows of a plan, with an output of `T`: on tensors of the same type, as they are or quantised first, or on tensors in
/// eight bits.
fn forward<T: Element>(plan: &Plan, tensors: &mut HostTensors<'_>, steps: &Steps<'_>) {
    let HostTensors { q, k, v, scales, mask, .. } = *tensors;
    let inputs = [q, k, v];
    let results = Results { o: cast_slice_mut(tensors.o), lse: tensors.lse.as_deref_mut() };
    let quantized = match (plan.problem.input, &plan.quantization) {
        (InputType::F8E4M3, _) => Quantized::decoded(plan, inputs.map(cast_slice), scales),
        (InputType::Sixteen(_), Some(quantization)) => {
            Quantized::new::<T>(plan.kernel.arithmetic, &quantization.params, inputs.map(cast_slice))
        }
        (InputType::Sixteen(_), None) => {
            let inputs = inputs.map(cast_slice::<u8, T>);
            return attend(plan, &plan.params, inputs, mask, results, steps, None);
        }
    };
    let problem = &plan.problem;
    let row = problem.head_dim * size_of::<f32>();
    let kv = quantization::contiguous(row, problem.kv_heads, problem.kv_len);
    let q = quantization::contiguous(row, plan.params.q_heads as usize, plan.params.q.rows as usize);
    let params = Params { q, k: kv, v: kv, ..plan.params };
    let inputs = [&quantized.q, &quantized.k, &quantized.v].map(Vec::as_slice);
    let rounding = Rounding::of(plan.kernel.arithmetic);
    let (shift, terms) = (&quantized.shift, &quantized.terms);
    let few = FewBits { shift, terms, tile: plan.kernel.keys, rounding };
    attend::<f32, T>(plan, &params, inputs, mask, results, steps, Some(few));
}

/// Where results go.
struct Results<'a, T> {
    o: &'a mut [T],
    lse: Option<&'a mut [f32]>,
}

/// What is different in eight bits, or four.
#[derive(Clone, Copy)]
struct FewBits<'a> {
    /// What all scores of each query row lack.
    shift: &'a [f32],
    /// What is added to the scores of some rows and each key; empty if nothing is.
    terms: &'a [f32],
    /// Keys of a tile: probabilities are rounded relative to the largest score so far.
    tile: usize,
    /// To what.
    rounding: Rounding,
}

fn attend<S: Source, T: Element>(
    plan: &Plan,
    params: &Params,
    [q, k, v]: [&[S]; 3],
    mask: Option<&[u8]>,
    results: Results<'_, T>,
    steps: &Steps<'_>,
    few: Option<FewBits<'_>>,
) {
    let problem = &plan.problem;
    let output = Shared(results.o.as_mut_ptr());
    let lse = results.lse.map(|lse| Shared(lse.as_mut_ptr()));
    let q_heads = params.q_heads as usize;
    let blocks = (params.q.rows as usize).div_ceil(online::ROWS);
    (0..tasks(plan)).into_par_iter().for_each_init(
        || online::Block::new(problem.head_dim, few.map(|few| (few.tile, few.rounding))),
        |block, task| {
            let (head, row) = (task / blocks, task % blocks * online::ROWS);
            let (batch, head) = (head / q_heads, head % q_heads);
            let kv_head = head / params.gqa_group as usize;
            let rows = |data, matrices, head| Rows::new(data, matrices, batch, head, problem.head_dim);
            let (q, k, v) =
                (rows(q, &params.q, head), rows(k, &params.k, kv_head), rows(v, &params.v, kv_head));
            // Blocks of rows are parts of those that share terms.
            let place = (batch * q_heads + head) * (params.q.rows as usize).div_ceil(QUERIES) + row / QUERIES;
            let kv_len = params.k.rows as usize;
            let terms = few.filter(|few| !few.terms.is_empty());
            let terms = terms.map_or(&[][..], |few| &few.terms[place * kv_len..][..kv_len]);
            block.run(&Modifier { params, mask, batch, head }, [&q, &k, &v], terms, row);
            let shift = few.map(|few| few.shift);
            store(block, params, [batch, head, row], shift, &output, lse.as_ref());
            steps.step();
        },
    );
}

/// Rounds and stores a finished block.
fn store<T: Element>(
    block: &mut online::Block,
    params: &Params,
    [batch, head, first_row]: [usize; 3],
    shift: Option<&[f32]>,
    output: &Shared<T>,
    lse: Option<&Shared<f32>>,
) {
    let (q_len, columns) = (params.q.rows as usize, params.head_dim as usize);
    let o = &params.o;
    let base = o.base as usize + batch * o.batch_stride as usize + head * o.head_stride as usize;
    let head = batch * params.q_heads as usize + head;
    let mut rounded = vec![T::zeroed(); columns];
    for row in 0..online::ROWS.min(q_len - first_row) {
        let (values, log_sum) = block.finish(row, params);
        T::round(&values[..columns], &mut rounded);
        let offset = (base + (first_row + row) * o.row_stride as usize) / size_of::<T>();
        // SAFETY: the tensor was checked to hold its layout and not to overlap; each row is one task's.
        unsafe { output.write(offset, &rounded) };
        if let Some(lse) = lse {
            let natural = params.scale_log2 * params.score_factor * std::f32::consts::LN_2;
            let shift = shift.map_or(0.0, |shift| shift[head * q_len + first_row + row] * natural);
            let first = params.lse as usize / size_of::<f32>() + head * params.lse_head_stride as usize;
            // SAFETY: the slice was checked to hold every row; each is one task's.
            unsafe { lse.write(first + first_row + row, &[log_sum + shift]) };
        }
    }
}
