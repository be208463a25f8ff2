//! Bringing Q, K and V to eight bits before a kernel that multiplies those: launches, and where results lie.

use ffpa_kernels_gpu::abi::{Columns, Matrices, Params, QuantizeParams, Scale, Scales};
use ffpa_kernels_gpu::catalog::{Quantize, Stage};
use ffpa_kernels_gpu::config::Arithmetic;
use ffpa_kernels_gpu::format::{F16_SUMS_LARGEST, nvfp4};
use ffpa_kernels_gpu::quantize::{CHUNKS, QUERIES, rows, terms};
use ffpa_kernels_gpu::scales::BLOCK;

use crate::build_info::BuildInfo;
use crate::device::DeviceInfo;
use crate::error::Error;
use crate::packing::FEW_ROWS;
use crate::plan::{MAX_GRID, from_row, matrices};
use crate::precision::{Fp8, NvFp4, Precision, ValueScales};
use crate::problem::Problem;
use crate::refusal::Refusal;

/// Rows of a chunk of statistics, at least.
const LEAST_CHUNK: usize = 512;

/// Blocks of rows of one CTA: each reads the statistics of its head anew, so many are good as long as there are CTAs enough.
/// Measured on an H200 (bf16, 32 heads of 8192 rows; 4 and 8 blocks, as a part of the bandwidth of a copy): D = 128 0.86, 0.87;
/// D = 512 0.75, 0.84; D = 1024 0.70, 0.76.
const GROUP_BLOCKS: [usize; 4] = [8, 4, 2, 1];

/// CTAs of a multiprocessor that are enough.
const ENOUGH_CTAS: usize = 4;

/// Parts of a workspace begin at multiples of so many bytes.
pub(crate) const ALIGNMENT: usize = 256;

/// Launches of the quantising kernels.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Quantization {
    /// Its kernels and their CTAs, in the order in which they start.
    pub launches: Vec<(&'static Quantize, u32)>,
    /// Parameters of all, with addresses of tensors as in [`Plan::params`](crate::Plan::params) and all others 0.
    pub params: QuantizeParams,
    /// What all results take, in bytes.
    pub bytes: usize,
    layout: Layout,
}

/// Offsets of the results, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Layout {
    q: u64,
    k: u64,
    v: u64,
    q_scale: u64,
    k_scale: u64,
    v_scale: u64,
    v_columns: u64,
    v_mean: u64,
    q_shift: u64,
    q_means: u64,
    terms: u64,
    columns: u64,
}

/// What a precision asks of quantising kernels.
#[derive(Clone, Copy)]
struct Recipe {
    stage: Stage,
    smooth_k: bool,
    smooth_q: bool,
    rotation: bool,
    v_by_columns: bool,
    smooth_v: bool,
    v_largest: f32,
    /// Rows of Q and K end with a multiple of so many columns.
    columns_multiple: usize,
}

impl Recipe {
    fn of(precision: Precision) -> Option<Self> {
        match precision {
            Precision::Native => None,
            Precision::Fp8(Fp8 { smooth_k, rotation, value_scales, f16_sums, .. }) => Some(Recipe {
                stage: Stage::Rows,
                smooth_k,
                smooth_q: false,
                rotation,
                v_by_columns: matches!(value_scales, ValueScales::Channel { .. }),
                smooth_v: value_scales == ValueScales::Channel { smooth: true },
                v_largest: if f16_sums { F16_SUMS_LARGEST } else { rows::LARGEST_E4M3 },
                columns_multiple: 16,
            }),
            Precision::NvFp4(NvFp4 { smooth_k, smooth_q, smooth_v, .. }) => Some(Recipe {
                stage: Stage::NvFp4,
                smooth_k,
                smooth_q,
                rotation: false,
                v_by_columns: true,
                smooth_v,
                v_largest: nvfp4::LARGEST,
                columns_multiple: 64,
            }),
        }
    }
}

impl Quantization {
    /// That of a problem, if its precision is not the tensors' own and it has anything to compute, for a kernel whose tiles of V,
    /// if transposed, have so many rows and keys.
    pub(crate) fn of(
        problem: &Problem,
        [value_rows, value_keys]: [usize; 2],
        device: &DeviceInfo,
        build: &BuildInfo,
    ) -> Result<Option<Self>, Error> {
        let Some(recipe) = Recipe::of(problem.precision) else { return Ok(None) };
        if [problem.batch, problem.q_heads, problem.q_len].contains(&0) {
            return Ok(None);
        }
        let kernel = |stage: Stage| {
            let nearness = |quantize: &Quantize| device.nearness(quantize.arch);
            let fits = |quantize: &&'static Quantize| {
                quantize.stage == stage
                    && quantize.rotated == (stage != Stage::Statistics && recipe.rotation)
                    && quantize.head_dim >= problem.head_dim
                    && nearness(quantize).is_some()
            };
            let kernels = build.quantizes.iter().copied().filter(fits);
            let missing = || Error::FamilyUnavailable {
                family: problem.family(),
                reason: format!("this build has no quantising kernel for {}", device.name),
            };
            kernels.min_by_key(|quantize| (quantize.head_dim, nearness(quantize))).ok_or_else(missing)
        };
        let chunks = problem.kv_len.div_ceil(LEAST_CHUNK).clamp(1, CHUNKS as usize);
        let enough = ENOUGH_CTAS * device.multiprocessors as usize;
        // Whole tiles of transposed values.
        let whole =
            |&blocks: &usize| recipe.stage != Stage::NvFp4 || (BLOCK * blocks).is_multiple_of(value_keys);
        let mut several = GROUP_BLOCKS.into_iter().filter(whole);
        let least = several.clone().last().unwrap_or(1);
        let group_blocks = several.find(|&blocks| row_ctas(problem, blocks) >= enough).unwrap_or(least);
        let mut params = params(problem, recipe, chunks, group_blocks);
        let rows = kernel(recipe.stage)?;
        params.steps = rows.steps() as u32;
        (params.value_rows, params.value_keys) = (value_rows as u32, value_keys as u32);
        let mut launches = Vec::new();
        let (q_heads, blocks) = (problem.batch.saturating_mul(problem.q_heads), query_blocks(problem));
        let blocks = if params.smooth_q != 0 { q_heads.saturating_mul(blocks) } else { 0 };
        if params.smooth_k != 0 || params.v_by_columns != 0 || blocks > 0 {
            let heads = problem.batch.saturating_mul(2 * problem.kv_heads);
            let ctas = heads.saturating_mul(chunks).saturating_add(blocks);
            launches.push((kernel(Stage::Statistics)?, grid(ctas)?));
        }
        launches.push((rows, grid(row_ctas(problem, group_blocks))?));
        if blocks > 0 {
            let groups = q_heads.saturating_mul(query_blocks(problem).div_ceil(terms::BLOCKS));
            let tiles = params.term_stride as usize / terms::KEYS;
            launches.push((kernel(Stage::Terms)?, grid(groups.saturating_mul(tiles))?));
        }
        let (layout, bytes) = layout(problem, &params);
        Ok(Some(Quantization { launches, params, bytes, layout }))
    }

    /// Writes the addresses of a workspace into the parameters of both: `forward` has those of the tensors, and is left with
    /// those of the quantised ones.
    pub(crate) fn place(&self, workspace: u64, forward: &mut Params) -> QuantizeParams {
        let (mut params, at) = (self.params, &self.layout);
        params.q.base += forward.q.base;
        params.k.base += forward.k.base;
        params.v.base += forward.v.base;
        params.q8 = workspace + at.q;
        params.k8 = workspace + at.k;
        params.v8 = workspace + at.v;
        params.q_scale = workspace + at.q_scale;
        params.k_scale = workspace + at.k_scale;
        params.v_scale = workspace + at.v_scale;
        params.v_columns = workspace + at.v_columns;
        params.v_mean = workspace + at.v_mean;
        params.q_means = workspace + at.q_means;
        params.terms = workspace + at.terms;
        params.columns = workspace + at.columns;
        let shifts = params.smooth_k != 0 && forward.lse != 0;
        params.q_shift = if shifts { workspace + at.q_shift } else { 0 };
        (forward.q.base, forward.k.base, forward.v.base) = (params.q8, params.k8, params.v8);
        forward.scales = self.scales(&params, forward);
        params
    }

    /// What the forward kernel, whose query heads may be packed, is told of the scales.
    fn scales(&self, params: &QuantizeParams, forward: &Params) -> Scales {
        let blocks = u64::from(params.k.rows.div_ceil(BLOCK as u32));
        let by_heads = |base, heads: u32, head_stride: u64, block_stride, rows| Scale {
            base,
            batch_stride: u64::from(heads) * head_stride,
            head_stride,
            block_stride,
            rows,
        };
        let block = BLOCK as u32;
        let by_columns = params.v_by_columns != 0;
        Scales {
            q: by_heads(params.q_scale, forward.q_heads, 4 * u64::from(forward.q.rows), 4, 1),
            k: by_heads(params.k_scale, params.kv_heads, 16 * blocks, 16, block),
            k_group_stride: 4,
            v: match by_columns {
                true => Scale::NONE,
                false => by_heads(params.v_scale, params.kv_heads, 4 * blocks, 4, block),
            },
            v_columns: if by_columns { params.v_columns } else { 0 },
            v_mean: if params.smooth_v != 0 { params.v_mean } else { 0 },
            q_shift: params.q_shift,
            terms: if params.smooth_q != 0 { params.terms } else { 0 },
            term_stride: params.term_stride,
        }
    }
}

/// Blocks of rows of a head whose mean query is subtracted together.
fn query_blocks(problem: &Problem) -> usize {
    problem.q_len.div_ceil(QUERIES)
}

/// Groups of so many blocks that a head's rows are.
fn groups(rows: usize, blocks: usize) -> usize {
    rows.div_ceil(BLOCK * blocks)
}

/// CTAs for all groups of so many blocks.
fn row_ctas(problem: &Problem, blocks: usize) -> usize {
    let of_heads = |heads: usize, rows: usize| heads.saturating_mul(groups(rows, blocks));
    let of_batch = of_heads(problem.q_heads, problem.q_len)
        .saturating_add(of_heads(2 * problem.kv_heads, problem.kv_len));
    problem.batch.saturating_mul(of_batch)
}

/// A grid of so many CTAs, if there can be one.
fn grid(ctas: usize) -> Result<u32, Refusal> {
    match ctas <= MAX_GRID {
        true => Ok(ctas as u32),
        false => Err(Refusal::GridTooLarge { tiles: ctas, rows: BLOCK * GROUP_BLOCKS[0], limit: MAX_GRID }),
    }
}

/// Contiguous matrices of `heads` heads of `rows` rows; address 0.
pub(crate) fn contiguous(row_bytes: usize, heads: usize, rows: usize) -> Matrices {
    // What does not fit belongs to calls without work, whose tensors repeat in memory: others would not fit in a workspace.
    let head = rows.saturating_mul(row_bytes);
    matrices([heads.saturating_mul(head), head, row_bytes], rows)
}

/// Columns of such rows that are rotated together: the largest power of two that divides their number.
fn rotated_columns(head_dim: usize) -> u32 {
    1 << head_dim.trailing_zeros()
}

fn params(problem: &Problem, recipe: Recipe, chunks: usize, group_blocks: usize) -> QuantizeParams {
    let [q, k, v, _] = problem.operands.map(|operand| operand.byte_strides);
    // Without keys nothing has statistics.
    let keys = problem.kv_len > 0;
    let rotated_columns = if recipe.rotation { rotated_columns(problem.head_dim) } else { 0 };
    let v_by_columns = keys && recipe.v_by_columns;
    let d = problem.head_dim;
    QuantizeParams {
        q: from_row(problem.first_row, matrices(q, problem.q_len)),
        k: matrices(k, problem.kv_len),
        v: matrices(v, problem.kv_len),
        q8: 0,
        k8: 0,
        v8: 0,
        q_scale: 0,
        k_scale: 0,
        v_scale: 0,
        v_columns: 0,
        v_mean: 0,
        q_shift: 0,
        q_means: 0,
        terms: 0,
        columns: 0,
        source: problem.dtype,
        int8: (problem.arithmetic() == Arithmetic::Int8).into(),
        smooth_k: (keys && recipe.smooth_k).into(),
        smooth_q: (keys && recipe.smooth_q && problem.q_len >= FEW_ROWS).into(),
        smooth_v: (v_by_columns && recipe.smooth_v).into(),
        v_by_columns: v_by_columns.into(),
        v_largest: recipe.v_largest,
        batch: problem.batch as u32,
        q_heads: problem.q_heads as u32,
        kv_heads: problem.kv_heads as u32,
        head_dim: problem.head_dim as u32,
        row_bytes: problem.arithmetic().record().bytes(d) as u32,
        row_columns: d.next_multiple_of(recipe.columns_multiple) as u32,
        term_stride: problem.kv_len.next_multiple_of(terms::KEYS) as u32,
        value_rows: 0,
        value_keys: 0,
        chunks: chunks as u32,
        // Whole passes of all threads.
        chunk_rows: problem.kv_len.div_ceil(chunks).next_multiple_of(BLOCK) as u32,
        lanes_log2: (problem.head_dim / 8).next_power_of_two().trailing_zeros(),
        group_blocks: group_blocks as u32,
        steps: 0,
        q_blocks: groups(problem.q_len, group_blocks) as u32,
        kv_blocks: groups(problem.kv_len, group_blocks) as u32,
        rotated_columns,
        rotation_factor: if recipe.rotation { 1.0 / (rotated_columns as f32).sqrt() } else { 1.0 },
    }
}

/// Where results lie, one behind the other, and what they take.
fn layout(problem: &Problem, params: &QuantizeParams) -> (Layout, usize) {
    let (q_heads, kv_heads) = (problem.batch * problem.q_heads, problem.batch * problem.kv_heads);
    let (q_rows, kv_rows) = (q_heads * problem.q_len, kv_heads * problem.kv_len);
    let blocks = kv_heads * problem.kv_len.div_ceil(BLOCK);
    let row_bytes = params.row_bytes as usize;
    let value_bytes = match problem.arithmetic() {
        Arithmetic::NvFp4 => {
            let [rows, keys] = [params.value_rows, params.value_keys].map(|count| count as usize);
            kv_heads * problem.kv_len.div_ceil(keys) * rows * nvfp4::row_bytes(keys)
        }
        _ => kv_rows * row_bytes,
    };
    let columns = kv_heads * problem.head_dim;
    let query_means = if params.smooth_q != 0 { q_heads * query_blocks(problem) } else { 0 };
    let mut end = 0_usize;
    let mut take = |bytes: usize| {
        let begin = end;
        end = (end + bytes).next_multiple_of(ALIGNMENT);
        begin as u64
    };
    let layout = Layout {
        q: take(q_rows * row_bytes),
        k: take(kv_rows * row_bytes),
        v: take(value_bytes),
        q_scale: take(4 * q_rows),
        k_scale: take(4 * rows::WARPS * blocks),
        v_scale: take(4 * blocks),
        v_columns: take(4 * columns),
        v_mean: take(4 * columns),
        q_shift: take(4 * q_rows),
        q_means: take(4 * query_means * problem.head_dim),
        terms: take(4 * query_means * params.term_stride as usize),
        columns: take(4 * columns * Columns::COUNT as usize * params.chunks as usize),
    };
    (layout, end)
}
