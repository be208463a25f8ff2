//! Which query tile a CTA owns, which keys it visits, and where masking begins and ends.
//!
//! Causal attention is bottom-right aligned: row `r` sees the keys `k <= r + kv_len - q_len` (FlashAttention 2.1).

use crate::abi::Params;

/// A CTA's share: one tile of query rows of one head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Batch entry.
    pub batch: u32,
    /// Query head.
    pub head: u32,
    /// Key/value head.
    pub kv_head: u32,
    /// First query row of the tile.
    pub row: u32,
    /// The part of the keys that is this CTA's.
    pub part: u32,
    /// First key to visit.
    pub first_key: u32,
    /// One past the last key to visit: the last that some row of the tile sees, or the part's last.
    pub keys: u32,
    /// Keys that all rows of the tile see: those from 0 up to this one.
    pub common_keys: u32,
}

/// `a / b` and `a % b` of uniform values.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub(crate) fn divide(a: u32, b: u32) -> (u32, u32) {
    // SAFETY: every divisor, here and in combine, is a count that the host keeps at 1 or more (abi).
    unsafe { core::hint::assert_unchecked(b != 0) };
    (a / b, a % b)
}

/// Keys that row `row` of a head sees, out of `kv_len`.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub fn visible_keys(params: &Params, row: u32) -> u32 {
    let kv_len = params.k.rows;
    if params.causal == 0 {
        return kv_len;
    }
    let limit = row as i64 + 1 + kv_len as i64 - params.q_len as i64;
    limit.clamp(0, kv_len as i64) as u32
}

impl Work {
    /// The work of CTA `block` of the grid, tiles having `rows` rows.
    ///
    /// Neighbouring CTAs have the parts of the keys of one tile. Over tiles, the grid runs over groups of `head_interleave`
    /// heads; within a group over row tiles, the last ones first, since under a causal mask these are the longest; within a
    /// row tile over the group's heads. Neighbouring tiles thus share keys in the L2 cache, and no long tile starts last.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn new(params: &Params, block: u32, rows: u32) -> Self {
        let (tile, part) = divide(block, params.parts.count);
        let (group, in_group) = divide(tile, params.row_blocks * params.head_interleave);
        let (row_block, in_row) = divide(in_group, params.head_interleave);
        let (batch, head) = divide(group * params.head_interleave + in_row, params.q_heads);
        let row = (params.row_blocks - 1 - row_block) * rows;
        // A tile of packed heads may have any of their rows.
        let packed = params.q_len < params.q.rows;
        let (first, last) = match packed {
            true => (0, params.q_len - 1),
            false => (row, (row + rows).min(params.q.rows) - 1),
        };
        let first_key = part * params.parts.keys;
        Work {
            batch,
            head,
            kv_head: divide(head, params.gqa_group).0,
            row,
            part,
            first_key,
            keys: visible_keys(params, last).min(first_key.saturating_add(params.parts.keys)),
            common_keys: visible_keys(params, first),
        }
    }
}
