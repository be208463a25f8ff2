//! What the host passes to a kernel. The same `repr(C)` structs on both sides: there is no second description.

use core::mem::{offset_of, size_of};

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
    /// Address of the log-sum-exp, f32 `[batch, q_heads, q_len]` contiguous, natural log; 0 to leave it out.
    pub lse: u64,
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
    /// Address of the combined log-sum-exp, f32 `[batch, heads, rows]` contiguous; 0 to leave it out.
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
}

// What the device reads is what the host wrote, whatever the compilers.
const _: () = {
    assert!(size_of::<Matrices>() == 32);
    assert!(offset_of!(Matrices, row_stride) == 24);
    assert!(size_of::<Mask>() == 40 && size_of::<Dropout>() == 20 && size_of::<Parts>() == 40);
    assert!(offset_of!(Params, maps) == 0 && size_of::<TensorMaps>() == 384);
    assert!(offset_of!(Params, lse) == 512 && offset_of!(Params, score_factor) == 552);
    assert!(offset_of!(Params, mask) == 560 && offset_of!(Params, dropout) == 600);
    assert!(offset_of!(Params, parts) == 624 && size_of::<Params>() == 664);
    assert!(size_of::<CombineParams>() == 128);
};
