//! What the host passes to a kernel. The same `repr(C)` structs on both sides: there is no second description.

use core::mem::{offset_of, size_of};

use crate::config::Dtype;

/// A matrix per (batch, head): `rows x head_dim` elements of 16 bits or fewer, the last dimension contiguous.
///
/// Strides are in bytes. A stride of 0 broadcasts.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matrices {
    /// Address of the first element.
    pub base: u64,
    /// Bytes from one batch entry to the next.
    pub batch_stride: u64,
    /// Bytes from one head to the next.
    pub head_stride: u64,
    /// Bytes from one row to the next: below 2^32, so that a lane's offset is one 32 x 32 bit product.
    pub row_stride: u32,
    /// Rows of each matrix: the sequence length.
    pub rows: u32,
}

impl Matrices {
    /// Bytes from the first element to one past the last, of `batch` times `heads` matrices of `row_bytes` valid bytes a
    /// row.
    pub fn span(&self, batch: usize, heads: usize, row_bytes: usize) -> usize {
        if batch == 0 || heads == 0 || self.rows == 0 {
            return 0;
        }
        let last = |count: usize, stride: u64| (count - 1) * stride as usize;
        let rows = last(self.rows as usize, self.row_stride.into());
        last(batch, self.batch_stride) + last(heads, self.head_stride) + rows + row_bytes
    }
}

/// What a mask's elements are.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaskKind {
    /// There is no mask.
    None,
    /// A byte: 0 hides the key.
    Bool,
    /// Added to the scaled score, f16.
    F16,
    /// Added to the scaled score, bf16.
    Bf16,
    /// Added to the scaled score, f32.
    F32,
}

impl MaskKind {
    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            MaskKind::None => 0,
            MaskKind::Bool => 1,
            MaskKind::F16 | MaskKind::Bf16 => 2,
            MaskKind::F32 => 4,
        }
    }

    /// Whether it is added to scores.
    pub const fn is_additive(self) -> bool {
        matches!(self, MaskKind::F16 | MaskKind::Bf16 | MaskKind::F32)
    }
}

/// A mask: an element per (batch, query head, query row, key). Strides are in bytes; a stride of 0 broadcasts.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mask {
    /// Address of the first element.
    pub base: u64,
    /// Bytes from one batch entry to the next.
    pub batch_stride: u64,
    /// Bytes from one query head to the next.
    pub head_stride: u64,
    /// Bytes from one query row to the next.
    pub row_stride: u32,
    /// Bytes from one key to the next.
    pub key_stride: u32,
    /// What its elements are.
    pub kind: MaskKind,
}

impl Mask {
    /// No mask.
    pub const NONE: Mask =
        Mask { base: 0, batch_stride: 0, head_stride: 0, row_stride: 0, key_stride: 0, kind: MaskKind::None };
}

/// Dropout of probabilities: see [`dropout`](crate::dropout).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The generator's key.
    pub seed: [u32; 2],
    /// Last word of the generator's counter.
    pub offset: u32,
    /// Random words below this drop their probability; 0 for no dropout.
    pub threshold: u32,
    /// What kept probabilities are multiplied with: 1 over the share that is kept.
    pub scale: f32,
}

impl Dropout {
    /// No dropout.
    pub const NONE: Dropout = Dropout { seed: [0; 2], offset: 0, threshold: 0, scale: 1.0 };
}

/// Where results over a part of the keys go, for [`combine`](crate::combine) to bring together.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    /// Address of the normalised outputs, f32 `[parts, batch, q_heads, q_len, head_dim]` contiguous; 0 if there are no parts
    /// and results go to the output.
    pub o: u64,
    /// Addresses of each row's reference score, in the units of `scale_log2`, and of its sum relative to that: f32
    /// `[parts, batch, q_heads, q_len]` contiguous. Their logarithm together would lose what tells parts apart where scores are
    /// large.
    pub reference: u64,
    /// See `reference`.
    pub sum: u64,
    /// Rows of one part: `batch * q_heads * q_len`.
    pub rows: u64,
    /// Parts, at least 1.
    pub count: u32,
    /// Keys of each part but the last, a multiple of the kernel's tile.
    pub keys: u32,
}

impl Parts {
    /// All keys in one.
    pub const NONE: Parts = Parts { o: 0, reference: 0, sum: 0, rows: 0, count: 1, keys: u32::MAX };
}

/// The scales of one quantised tensor: f32, one for each block of rows. Strides are in bytes; a stride of 0 broadcasts.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Address of the first.
    pub base: u64,
    /// Bytes from one batch entry to the next.
    pub batch_stride: u64,
    /// Bytes from one head to the next.
    pub head_stride: u64,
    /// Bytes from one block to the next.
    pub block_stride: u32,
    /// Rows of a block.
    pub rows: u32,
}

impl Scale {
    /// None.
    pub const NONE: Scale = Scale { base: 0, batch_stride: 0, head_stride: 0, block_stride: 0, rows: 1 };
}

/// What quantised numbers stand for: see [`scales`](crate::scales).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    /// Of Q.
    pub q: Scale,
    /// Of K: of each block four, or one for all four, `k_group_stride` bytes apart.
    pub k: Scale,
    /// Of V's blocks; base 0 if they are all 1.
    pub v: Scale,
    /// Of V's columns, f32 `[batch, kv_heads, head_dim]`; base 0 if they are all 1.
    pub v_columns: u64,
    /// What was subtracted from V's columns, likewise; 0 if nothing was.
    pub v_mean: u64,
    /// Each query row's product with what was subtracted from all keys, f32 `[batch, q_heads, q_len]`; 0 if nothing was, or
    /// nobody asks for the log-sum-exp.
    pub q_shift: u64,
    /// What is added to scores, of each [`QUERIES`](crate::quantize::QUERIES) rows and key: f32
    /// `[batch, q_heads, row blocks, term_stride]`; 0 if nothing is.
    pub terms: u64,
    /// Floats from one row block's terms to the next: keys rounded up to a multiple of 128.
    pub term_stride: u32,
    /// Bytes from one group of a block's keys to the next.
    pub k_group_stride: u32,
}

impl Scales {
    /// None, for tensors that are taken as they are.
    pub const NONE: Scales = Scales {
        q: Scale::NONE,
        k: Scale::NONE,
        v: Scale::NONE,
        v_columns: 0,
        v_mean: 0,
        q_shift: 0,
        terms: 0,
        term_stride: 0,
        k_group_stride: 0,
    };
}

/// A tensor map (`CUtensorMap`): what bulk copies know of a tensor, in the form that the driver encodes for the hardware.
pub type TensorMap = [u64; 16];

/// Tensor maps for kernels with bulk copies: boxes of 64 columns and of the kernel's rows, or keys; dimensions
/// `[head_dim, rows, heads, batch]`, 128-byte swizzle.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorMaps {
    /// Of queries.
    pub q: TensorMap,
    /// Of keys.
    pub k: TensorMap,
    /// Of values.
    pub v: TensorMap,
}

impl TensorMaps {
    /// No maps, for kernels without bulk copies.
    pub const NONE: TensorMaps = TensorMaps { q: [0; 16], k: [0; 16], v: [0; 16] };
}

/// Parameters of a forward kernel, by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Tensor maps of `q`, `k` and `v`. First, so that they are as aligned as the parameter itself: 64 bytes, where bulk copies
    /// read them.
    pub maps: TensorMaps,
    /// Queries, `[batch, q_heads, q_len, head_dim]`.
    pub q: Matrices,
    /// Keys, `[batch, kv_heads, kv_len, head_dim]`.
    pub k: Matrices,
    /// Values, `[batch, kv_heads, kv_len, head_dim]`. Has as many rows as `k`.
    pub v: Matrices,
    /// Output, `[batch, q_heads, q_len, head_dim]`. Has as many rows as `q`.
    pub o: Matrices,
    /// Address of the log-sum-exp, f32 `[batch, q_heads, q_len]`, natural log; 0 to leave it out.
    pub lse: u64,
    /// Floats from one head's log-sum-exps to the next, and `q_heads` times as many to the next batch entry's: `q.rows`, or more
    /// if these are only some of the heads' rows.
    pub lse_head_stride: u32,
    /// Valid columns of every matrix, a multiple of 8, at most the kernel's compiled head dim.
    pub head_dim: u32,
    /// Query heads.
    pub q_heads: u32,
    /// Query heads per key/value head.
    pub gqa_group: u32,
    /// Query tiles per (batch, head): `q_len / rows of a tile`, rounded up.
    pub row_blocks: u32,
    /// Consecutive (batch, head) pairs whose tiles are interleaved in the grid; divides `batch * q_heads`.
    pub head_interleave: u32,
    /// 1 if row `r` sees only keys `k <= r + kv_len - q_len` (bottom-right causal), else 0.
    pub causal: u32,
    /// Query rows of a head. Fewer than `q.rows` if the rows of several heads are packed into one matrix, head by head: then
    /// `q_heads` counts the packed ones.
    pub q_len: u32,
    /// Softmax scale times log2(e), positive: probabilities are `2^(scale_log2 * score - max)`.
    pub scale_log2: f32,
    /// What raw scores are multiplied with before everything else: 1, or -1 for a negative scale, or 0 for scale 0.
    ///
    /// This keeps `scale_log2` positive, so that the largest raw score is the largest scaled one, and masked scores
    /// (-inf) never meet a zero factor. With an additive mask it is the whole scale, so that the mask's terms are added as they
    /// are and none overflows, and `scale_log2` is log2(e).
    pub score_factor: f32,
    /// What hides keys or shifts scores.
    pub mask: Mask,
    /// What drops probabilities.
    pub dropout: Dropout,
    /// How keys are divided among CTAs.
    pub parts: Parts,
    /// What quantised tensors stand for.
    pub scales: Scales,
    /// Element type of the output, for kernels that are not made for one.
    pub output: Dtype,
}

impl Params {
    /// Where the tensor map of Q begins, in bytes.
    pub const Q_MAP: u64 = offset_of!(Params, maps.q) as u64;
    /// Where that of K begins.
    pub const K_MAP: u64 = offset_of!(Params, maps.k) as u64;
    /// Where that of V begins.
    pub const V_MAP: u64 = offset_of!(Params, maps.v) as u64;
}

/// Parameters of a combining kernel, by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CombineParams {
    /// Outputs of the first part, each normalised over its own keys.
    pub first: Matrices,
    /// Bytes from one part to the next, modulo 2^64.
    pub part_stride: u64,
    /// Address of the first part's reference scores, f32 `[batch, heads, rows]` contiguous. Log-sum-exps are such, with sums of 1.
    pub first_reference: u64,
    /// Address of the first part's sums relative to the references, likewise; 0 if all are 1.
    pub first_sum: u64,
    /// Bytes from one part's references, and sums, to the next, modulo 2^64.
    pub row_part_stride: u64,
    /// The combined output.
    pub o: Matrices,
    /// Address of the combined log-sum-exp, f32 `[batch, heads, rows]`; 0 to leave it out.
    pub lse: u64,
    /// Parts.
    pub parts: u32,
    /// Heads.
    pub heads: u32,
    /// Rows of all batch entries and heads.
    pub rows: u32,
    /// Valid columns, a multiple of 8.
    pub head_dim: u32,
    /// A reference score times this is the base-2 logarithm of what its row's sum is multiplied with.
    pub scale_log2: f32,
    /// Floats from one head's combined log-sum-exps to the next, as in [`Params`].
    pub lse_head_stride: u32,
    /// What all parts' references of a row lack, before `score_factor`, f32 `[batch, heads, rows]`, as [`Scales::q_shift`]; 0 if
    /// nothing. It is added when differences have been taken, from which it would take bits.
    pub shift: u64,
    /// As in [`Params`].
    pub score_factor: f32,
}

/// What is left of a tensor's columns.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// The sums of K's.
    KeySum,
    /// The sums of V's.
    ValueSum,
    /// V's largest.
    ValueHighest,
    /// The negatives of V's smallest.
    ValueLowest,
}

impl Columns {
    /// How many kinds there are.
    pub const COUNT: u64 = 4;
}

/// Parameters of the quantising kernels, by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantizeParams {
    /// Queries, `[batch, q_heads, q_len, head_dim]`, of 16-bit elements.
    pub q: Matrices,
    /// Keys, `[batch, kv_heads, kv_len, head_dim]`.
    pub k: Matrices,
    /// Values, likewise.
    pub v: Matrices,
    /// Address of the quantised queries, `[batch, q_heads, q_len]` rows of `row_bytes`.
    pub q8: u64,
    /// Of the keys, `[batch, kv_heads, kv_len]` rows.
    pub k8: u64,
    /// Of the values, likewise.
    pub v8: u64,
    /// Of Q's scales, f32 `[batch, q_heads, q_len]`.
    pub q_scale: u64,
    /// Of K's, f32 `[batch, kv_heads, blocks, 4]`.
    pub k_scale: u64,
    /// Of V's by blocks, f32 `[batch, kv_heads, blocks]`.
    pub v_scale: u64,
    /// Of V's by columns, f32 `[batch, kv_heads, head_dim]`.
    pub v_columns: u64,
    /// Of the means of V's columns, likewise.
    pub v_mean: u64,
    /// Of each query row's product with the mean key, f32 `[batch, q_heads, q_len]`; 0 to leave it out.
    pub q_shift: u64,
    /// Of the means of Q's columns over each [`QUERIES`](crate::quantize::QUERIES) rows, f32
    /// `[batch, q_heads, row blocks, head_dim]`.
    pub q_means: u64,
    /// Of what scores lack for it, as [`Scales::terms`].
    pub terms: u64,
    /// Of the statistics of columns, f32 `[batch, kv_heads, Columns::COUNT, chunks, head_dim]`.
    pub columns: u64,
    /// Element type of the sources.
    pub source: Dtype,
    /// 1 if Q and K become integers, 0 for e4m3.
    pub int8: u32,
    /// 1 if K's mean is subtracted.
    pub smooth_k: u32,
    /// 1 if the means of Q are.
    pub smooth_q: u32,
    /// 1 if V's mean is; then its scales are by columns.
    pub smooth_v: u32,
    /// 1 if V's scales are by columns, 0 if by blocks.
    pub v_by_columns: u32,
    /// The largest number that V becomes.
    pub v_largest: f32,
    /// Batch entries.
    pub batch: u32,
    /// Heads of Q.
    pub q_heads: u32,
    /// Heads of K and V.
    pub kv_heads: u32,
    /// Columns, a multiple of 8.
    pub head_dim: u32,
    /// Bytes of a quantised row of Q or K, and of V where it is not transposed.
    pub row_bytes: u32,
    /// Columns of it: `head_dim` rounded up to 16, or 64 of NVFP4.
    pub row_columns: u32,
    /// As in [`Scales`].
    pub term_stride: u32,
    /// Rows of a tile of transposed values, a multiple of 64.
    pub value_rows: u32,
    /// Its keys, 64 or 128.
    pub value_keys: u32,
    /// Chunks of rows that statistics are of, at least 1.
    pub chunks: u32,
    /// Rows of each but the last.
    pub chunk_rows: u32,
    /// Logarithm of the number of threads for a row: a power of two, at least `head_dim / 8`.
    pub lanes_log2: u32,
    /// Blocks of rows of a CTA.
    pub group_blocks: u32,
    /// Steps in which a warp goes over its rows of a block.
    pub steps: u32,
    /// CTAs for a head of Q.
    pub q_blocks: u32,
    /// CTAs for a head of K, and of V.
    pub kv_blocks: u32,
    /// Columns of Q and K that are rotated together, the largest power of two that divides `head_dim`; 0 if none are.
    pub rotated_columns: u32,
    /// What rotated numbers are multiplied with, for rows to keep their lengths: 1 over the square root of `rotated_columns`.
    pub rotation_factor: f32,
}

// What the device reads is what the host wrote, whatever the compilers.
const _: () = {
    assert!(size_of::<Matrices>() == 32);
    assert!(offset_of!(Matrices, row_stride) == 24);
    assert!(size_of::<Mask>() == 40 && size_of::<Dropout>() == 20 && size_of::<Parts>() == 40);
    assert!(offset_of!(Params, maps) == 0 && size_of::<TensorMaps>() == 384);
    assert!(offset_of!(Params, lse) == 512 && offset_of!(Params, score_factor) == 556);
    assert!(offset_of!(Params, mask) == 560 && offset_of!(Params, dropout) == 600);
    assert!(size_of::<Scale>() == 32 && size_of::<Scales>() == 136);
    assert!(offset_of!(Params, parts) == 624 && offset_of!(Params, scales) == 664);
    assert!(offset_of!(Params, output) == 800 && size_of::<Params>() == 808);
    assert!(offset_of!(CombineParams, shift) == 128 && size_of::<CombineParams>() == 144);
    assert!(offset_of!(QuantizeParams, source) == 192 && size_of::<QuantizeParams>() == 296);
};
