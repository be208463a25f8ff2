//! How a problem will run: which kernel, on what grid, with which parameters. Pure: no driver, no pointers.

use std::fmt;

use ffpa_kernels_gpu::abi::{Dropout, Mask, Matrices, Params, Scales, TensorMaps};
use ffpa_kernels_gpu::catalog::{Copies, Kernel, Stage};

use crate::build_info::BuildInfo;
use crate::combination::{Combination, Division};
use crate::device::DeviceInfo;
use crate::error::Error;
use crate::packing::{QuerySide, scale};
use crate::precision::Precision;
use crate::problem::{MaskOperand, Operand, Problem};
use crate::quantization::{self, Quantization};
use crate::refusal::Refusal;
use crate::select::select;
use crate::tensor_map::check_strides;

/// CTAs along a grid's first dimension (CUDA programming guide, "Compute capabilities").
pub(crate) const MAX_GRID: usize = (1 << 31) - 1;

/// Heads whose query tiles are interleaved under a causal mask, at most.
const CAUSAL_INTERLEAVE: usize = 32;

/// Heads whose query tiles are interleaved, of `heads`.
///
/// Under a causal mask tiles then shrink together towards the end of the grid, and no long one starts last; but all these
/// heads' keys and values are read at a time, and the fewer rows a tile has, the more often. So they should fit the L2 cache,
/// or twice that with 128 rows. Measured on an H200 (bf16, N = 8192, TFLOPS with 1, 2, 4, 8, 16, 32 heads): D = 128, 128 rows:
/// 347, 352, 376, 375, 389, 392; D = 640, 64 rows: 328, 343, 351, 349, 326; D = 768, 64 rows: 314, 321, 318, 308, 300;
/// D = 1024, 32 rows: 269, 268, 245, 227, 229. Without a mask it makes no difference.
fn interleave(
    problem: &Problem,
    side: &QuerySide,
    heads: usize,
    kernel: &Kernel,
    device: &DeviceInfo,
) -> usize {
    if !side.causal {
        return 1;
    }
    let bytes = (4 * problem.head_dim).saturating_mul(problem.kv_len).max(1);
    let cached = device.l2_bytes.saturating_mul(kernel.rows) / 64 / bytes;
    let most = cached.saturating_mul(side.group).clamp(1, CAUSAL_INTERLEAVE);
    (1..=most).rev().find(|&n| heads.is_multiple_of(n)).unwrap_or(1)
}

/// A chosen kernel and its launch, and what computes the first rows if that is another.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// What was asked; if that means all rows in the tensors' own type, the problem that asks for this.
    pub problem: Problem,
    /// The kernel.
    pub kernel: &'static Kernel,
    /// CTAs; 0 if there is nothing to compute.
    pub grid: u32,
    /// Bytes of device memory that the kernels need beside the tensors.
    pub workspace_bytes: usize,
    /// The kernel's parameters. Addresses are counted from those of the tensors, so that they are 0, but in a plan for rows
    /// that are not a tensor's first; and there are no tensor maps, which hold addresses too.
    pub params: Params,
    /// What brings Q, K and V to what the kernel multiplies, if that is not what they are.
    pub quantization: Option<Quantization>,
    /// What brings the results together if the keys are divided among CTAs.
    pub combination: Option<Combination>,
    /// What computes the first rows of every head in the tensors' own type before the others are computed in eight bits (see
    /// [`Fp8::native_rows`](crate::Fp8::native_rows)). All of the above but `problem` and `workspace_bytes` is of the others.
    pub early: Option<Box<Plan>>,
    /// Name of the device it was planned for.
    pub device: String,
}

/// Plans a problem on a device with the kernels of a build.
///
/// # Errors
/// A [`Refusal`] if no kernel can take the problem's layout or size; [`Error::HeadDimNotCompiled`],
/// [`Error::FamilyUnavailable`] or [`Error::DeviceUnsupported`] if this build has none that fits.
pub fn plan(problem: &Problem, device: &DeviceInfo, build: &BuildInfo) -> Result<Plan, Error> {
    let rows = problem.native_rows();
    if rows == 0 {
        return plan_alike(problem, device, build);
    }
    // First, so that what is refused does not depend on the number of rows.
    let late = plan_alike(&problem.late(rows), device, build)?;
    let early = plan_alike(&problem.early(rows), device, build).map_err(|error| match error {
        Error::FamilyUnavailable { family, reason } => {
            let reason =
                format!("{reason}; the first {rows} rows need it, but for a recipe with native_rows 0");
            Error::FamilyUnavailable { family, reason }
        }
        error => error,
    })?;
    if rows == problem.q_len {
        return Ok(early);
    }
    // One after the other, they share a workspace.
    let workspace_bytes = late.workspace_bytes.max(early.workspace_bytes);
    Ok(Plan { problem: *problem, workspace_bytes, early: Some(Box::new(early)), ..late })
}

/// Plans a problem whose rows are all computed alike.
fn plan_alike(problem: &Problem, device: &DeviceInfo, build: &BuildInfo) -> Result<Plan, Error> {
    let mut side = QuerySide::of(problem);
    let kernel = match select(problem, &side, device, build) {
        // Only kernels with masks know which rows are whose; without one, heads stay apart.
        Err(Error::MasksNotCompiled { .. }) if problem.mask.is_none() && side.packed => {
            side = QuerySide::plain(problem);
            select(problem, &side, device, build)?
        }
        selected => selected?,
    };
    check_alignment(&problem.operands, problem.on_device, device)?;
    let heads = problem.batch.saturating_mul(side.heads);
    let row_blocks = side.rows.div_ceil(kernel.rows);
    let tiles = row_blocks.checked_mul(heads).filter(|&tiles| tiles <= MAX_GRID);
    let grid = tiles.ok_or(Refusal::GridTooLarge {
        tiles: row_blocks.saturating_mul(heads),
        rows: kernel.rows,
        limit: MAX_GRID,
    })?;
    let division = Division::of(grid, problem.kv_len, kernel, device);
    let head_interleave = interleave(problem, &side, heads, kernel, device);
    let additive = problem.mask.is_some_and(|mask| mask.kind.is_additive());
    let (score_factor, scale_log2) = match problem.scale {
        scale if additive => (scale, std::f32::consts::LOG2_E),
        0.0 => (0.0, 1.0),
        // Beyond what an f32 holds in base 2.
        scale if !(scale * std::f32::consts::LOG2_E).is_finite() => (scale, std::f32::consts::LOG2_E),
        scale => (1.0_f32.copysign(scale), scale.abs() * std::f32::consts::LOG2_E),
    };
    let quantization = Quantization::of(problem, [kernel.head_dim, kernel.keys], device, build)?;
    let (q, k, v) = match problem.precision {
        Precision::Native => {
            let [_, k, v, _] = problem.operands.map(|operand| operand.byte_strides);
            let q = from_row(problem.first_row, matrices(side.q, side.rows));
            (q, matrices(k, problem.kv_len), matrices(v, problem.kv_len))
        }
        // What quantising leaves.
        _ => {
            let matrices = |elements, heads, rows| {
                quantization::contiguous(kernel.arithmetic.record().bytes(elements), heads, rows)
            };
            let (d, [value_rows, _]) = (problem.head_dim, kernel.value_rows(problem.kv_len));
            (
                matrices(d, side.heads, side.rows),
                matrices(d, problem.kv_heads, problem.kv_len),
                matrices(kernel.value_elements(d), problem.kv_heads, value_rows),
            )
        }
    };
    let params = Params {
        maps: TensorMaps::NONE,
        q,
        k,
        v,
        o: from_row(problem.first_row, matrices(side.o, side.rows)),
        lse: (size_of::<f32>() * problem.first_row) as u64,
        lse_head_stride: side.lse_rows as u32,
        head_dim: problem.head_dim as u32,
        q_heads: side.heads as u32,
        gqa_group: side.group as u32,
        row_blocks: row_blocks as u32,
        head_interleave: head_interleave as u32,
        causal: side.causal.into(),
        q_len: problem.q_len as u32,
        scale_log2,
        score_factor,
        mask: problem.mask.map_or(Mask::NONE, mask),
        dropout: problem.dropout.unwrap_or(Dropout::NONE),
        parts: division.parts(heads * side.rows),
        scales: Scales {
            q: side.q_scale,
            k: scale(problem.scales[1]),
            v: scale(problem.scales[2]),
            ..Scales::NONE
        },
        output: problem.dtype,
    };
    check_strides(kernel, problem, &params)?;
    let combination = match division.count {
        1 => None,
        _ => Some(Combination::of_parts(&params, problem.dtype, device, build)?),
    };
    let mut plan = Plan {
        problem: *problem,
        kernel,
        grid: (grid * division.count) as u32,
        workspace_bytes: combination.as_ref().map_or(0, Combination::workspace_bytes),
        params,
        quantization,
        combination,
        early: None,
        device: device.name.clone(),
    };
    if let Some(quantization) = &plan.quantization {
        plan.workspace_bytes = plan.quantized_offset() + quantization.bytes;
    }
    tracing::debug!(kernel = kernel.name, plan.grid, head_interleave, "planned");
    Ok(plan)
}

/// Matrices of so many rows, from the bytes from one batch entry, head and row to the next; address 0.
pub(crate) fn matrices([batch, head, row]: [usize; 3], rows: usize) -> Matrices {
    Matrices {
        base: 0,
        batch_stride: batch as u64,
        head_stride: head as u64,
        row_stride: row as u32,
        rows: rows as u32,
    }
}

/// Matrices that begin with the `first`th row in memory.
pub(crate) fn from_row(first: usize, matrices: Matrices) -> Matrices {
    Matrices { base: first as u64 * u64::from(matrices.row_stride), ..matrices }
}

fn mask(operand: MaskOperand) -> Mask {
    let [batch_stride, head_stride] = [0, 1].map(|i: usize| operand.byte_strides[i] as u64);
    let [row_stride, key_stride] = [2, 3].map(|i: usize| operand.byte_strides[i] as u32);
    Mask { base: 0, batch_stride, head_stride, row_stride, key_stride, kind: operand.kind }
}

/// Refuses operands that the device's kernels cannot access.
pub(crate) fn check_alignment(
    operands: &[Operand],
    on_device: bool,
    device: &DeviceInfo,
) -> Result<(), Refusal> {
    let alignment = device.alignment;
    for operand in operands {
        let refuse = |what, bytes| Refusal::Misaligned { tensor: operand.name, what, bytes, alignment };
        if (on_device || device.host_addresses) && operand.alignment < alignment {
            return Err(refuse("the address", operand.alignment));
        }
        let names = ["the batch stride", "the head stride", "the row stride"];
        for (what, bytes) in names.into_iter().zip(operand.byte_strides) {
            if !bytes.is_multiple_of(alignment) {
                return Err(refuse(what, bytes));
            }
        }
    }
    Ok(())
}

impl Plan {
    /// The plans of the problem's rows, in the order in which they run; each uses all of the workspace.
    pub(crate) fn passes(&self) -> impl Iterator<Item = &Plan> {
        self.early.as_deref().into_iter().chain([self])
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p, k) = (&self.problem, self.kernel);
        writeln!(
            f,
            "{} for {} [B {}, Hq {}, Hkv {}, Nq {}, Nkv {}, D {}]{} on {}",
            k.name,
            p.input.name(),
            p.batch,
            p.q_heads,
            p.kv_heads,
            p.q_len,
            p.kv_len,
            p.head_dim,
            if p.causal { " causal" } else { "" },
            self.device
        )?;
        if let Some(early) = &self.early {
            let rows = early.problem.q_len;
            writeln!(
                f,
                "  of every head the rows from {rows} on, after the first {rows} in {}",
                p.input.name()
            )?;
        }
        if p.head_dim == k.head_dim {
            writeln!(f, "  head dim {} is compiled", p.head_dim)?;
        } else {
            writeln!(f, "  head dim {} runs zero-filled on {}, the next compiled", p.head_dim, k.head_dim)?;
        }
        if self.params.q_heads as usize != p.q_heads {
            writeln!(
                f,
                "  the heads of a group are packed: {} rows on {} heads",
                self.params.q.rows, self.params.q_heads
            )?;
        }
        if let Some(combination) = &self.combination {
            writeln!(
                f,
                "  the keys are divided into {} parts of {} that {} combines",
                self.params.parts.count, self.params.parts.keys, combination.kernel.name
            )?;
        }
        if let Some(quantization) = &self.quantization {
            let numbers = k.arithmetic.family().name().to_uppercase();
            for (kernel, grid) in &quantization.launches {
                let does = match kernel.stage {
                    Stage::Statistics => "walks over the columns".to_string(),
                    Stage::Rows | Stage::NvFp4 => format!("brings Q, K and V to {numbers}"),
                    Stage::Terms => "multiplies the means of queries with the keys".to_string(),
                };
                writeln!(f, "  {} {does}: {grid} CTAs", kernel.name)?;
            }
        }
        let copies = match k.copies {
            Copies::Async => "",
            Copies::Bulk => ", bulk copies",
        };
        let products = if k.block_scaled { ", block-scaled products" } else { "" };
        write!(
            f,
            "  {} CTAs of {} warps, {} query rows x {} keys, {} bytes of shared memory{copies}{products}",
            self.grid,
            k.threads() / 32,
            k.rows,
            k.keys,
            k.shared_bytes
        )?;
        match &self.early {
            Some(early) => write!(f, "\n  first rows: {}", early.to_string().replace('\n', "\n  ")),
            None => Ok(()),
        }
    }
}
