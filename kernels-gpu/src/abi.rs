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

/// Parameters of a forward kernel, by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
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
    /// Softmax scale times log2(e), positive: probabilities are `2^(scale_log2 * score - max)`.
    pub scale_log2: f32,
    /// What raw scores are multiplied with before everything else: 1, or -1 for a negative scale, or 0 for scale 0.
    ///
    /// This keeps `scale_log2` positive, so that the largest raw score is the largest scaled one, and masked scores
    /// (-inf) never meet a zero factor.
    pub score_sign: f32,
}

// What the device reads is what the host wrote, whatever the compilers.
const _: () = {
    assert!(size_of::<Matrices>() == 32);
    assert!(offset_of!(Matrices, row_stride) == 24);
    assert!(size_of::<Params>() == 4 * 32 + 8 + 8 * 4);
    assert!(offset_of!(Params, lse) == 128);
    assert!(offset_of!(Params, score_sign) == 164);
};
