//! Query heads that share keys, as rows of one matrix.
//!
//! With few query rows, as in decoding, a tile of one head's rows is nearly empty, and each head of a group reads the same keys
//! and values again. Where memory allows it, the group's rows are one matrix of `group * q_len` rows on the key/value
//! head: then they fill a tile together, and keys and values are read once.

use ffpa_kernels_gpu::abi::Scale;

use crate::problem::{MAX_ROWS, Problem, ScaleOperand};

/// Below so many query rows, heads are packed.
pub(crate) const FEW_ROWS: usize = 64;

/// What a kernel sees of the query side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QuerySide {
    /// Heads.
    pub heads: usize,
    /// Query heads per key/value head.
    pub group: usize,
    /// Rows of each.
    pub rows: usize,
    /// Whether a causal mask applies.
    pub causal: bool,
    /// Rows from one head's log-sum-exps to the next.
    pub lse_rows: usize,
    /// Whether heads are packed, so that a row's place in its head is not its place in the matrix.
    pub packed: bool,
    /// Bytes from one batch entry, head and row of Q to the next.
    pub q: [usize; 3],
    /// The same of O.
    pub o: [usize; 3],
    /// The scales of Q, address 0.
    pub q_scale: Scale,
}

/// What a kernel is told of scales; address 0.
pub(crate) fn scale(operand: Option<ScaleOperand>) -> Scale {
    operand.map_or(Scale::NONE, |ScaleOperand { byte_strides: [batch, head, block], rows }| Scale {
        base: 0,
        batch_stride: batch as u64,
        head_stride: head as u64,
        block_stride: block as u32,
        rows: rows as u32,
    })
}

/// The scales of `group` heads of `rows` rows as those of one head of `group * rows` rows, if each has one.
fn fold_scale(operand: Option<ScaleOperand>, rows: usize, group: usize) -> Option<Scale> {
    let Some(ScaleOperand { byte_strides: [batch, head, _], rows: shared }) = operand else {
        return Some(Scale::NONE);
    };
    let folded = ScaleOperand { byte_strides: [batch, group * head, head], rows };
    (shared >= rows && head <= u32::MAX as usize).then(|| scale(Some(folded)))
}

impl QuerySide {
    /// Heads left as they are.
    pub fn plain(problem: &Problem) -> Self {
        let [q, _, _, o] = problem.operands.map(|operand| operand.byte_strides);
        // A single row sees all keys.
        let (heads, rows, causal) = (problem.q_heads, problem.q_len, problem.causal && problem.q_len > 1);
        let group = problem.q_heads / problem.kv_heads.max(1);
        let (lse_rows, q_scale) = (problem.head_rows, scale(problem.scales[0]));
        QuerySide { heads, group, rows, causal, lse_rows, packed: false, q, o, q_scale }
    }

    /// Heads packed into rows if these are few, are all there are, and lie at equal distances. Dropout counts rows by heads.
    pub fn of(problem: &Problem) -> Self {
        let plain = Self::plain(problem);
        let QuerySide { group, rows, causal, q, o, .. } = plain;
        let fits = group.checked_mul(rows).is_some_and(|rows| rows <= MAX_ROWS);
        let all = rows == problem.head_rows;
        if group <= 1 || rows == 0 || rows >= FEW_ROWS || !all || !fits || problem.dropout.is_some() {
            return plain;
        }
        let q_scale = fold_scale(problem.scales[0], problem.q_len, group);
        match (fold(q, problem.q_len, group), fold(o, problem.q_len, group), q_scale) {
            (Some(q), Some(o), Some(q_scale)) => {
                let (heads, rows) = (problem.kv_heads, group * problem.q_len);
                QuerySide { heads, group: 1, rows, causal, lse_rows: rows, packed: true, q, o, q_scale }
            }
            _ => plain,
        }
    }
}

/// The strides of `group` heads of `rows` rows as one head of `group * rows` rows, if these lie at equal distances.
fn fold([batch, head, row]: [usize; 3], rows: usize, group: usize) -> Option<[usize; 3]> {
    let row = match rows {
        1 => head,
        _ if head == rows * row => row,
        _ => return None,
    };
    (row <= u32::MAX as usize).then_some([batch, group * head, row])
}

#[cfg(test)]
mod tests {
    use super::*;
    use ffpa_kernels_gpu::config::Dtype;

    fn problem(q_heads: usize, kv_heads: usize, q_len: usize) -> Problem {
        Problem::contiguous(Dtype::F16, [3, q_heads, kv_heads, q_len, 1000, 64])
    }

    #[test]
    fn single_rows_are_packed_in_any_layout() {
        let mut problem = problem(8, 2, 1);
        problem.causal = true;
        problem.operands[0].byte_strides = [9000, 256, 0];
        let side = QuerySide::of(&problem);
        assert_eq!((side.heads, side.group, side.rows, side.causal), (2, 1, 4, false));
        assert_eq!((side.q, side.o), ([9000, 1024, 256], [8 * 128, 4 * 128, 128]));
    }

    #[test]
    fn several_rows_are_packed_if_heads_follow_each_other() {
        let side = QuerySide::of(&problem(6, 2, 5));
        assert_eq!((side.heads, side.rows, side.q), (2, 15, [6 * 5 * 128, 3 * 5 * 128, 128]));
        assert!(side.packed && !side.causal);
        let mut apart = problem(6, 2, 5);
        apart.operands[0].byte_strides[1] += 16;
        assert_eq!(QuerySide::of(&apart).heads, 6);
        let mut causal = problem(6, 2, 5);
        causal.causal = true;
        let side = QuerySide::of(&causal);
        assert_eq!((side.heads, side.rows, side.causal), (2, 15, true));
    }

    #[test]
    fn many_rows_and_single_heads_stay_as_they_are() {
        assert_eq!(QuerySide::of(&problem(6, 2, 64)).heads, 6);
        assert_eq!(QuerySide::of(&problem(2, 2, 1)).rows, 1);
        assert_eq!(QuerySide::of(&problem(2, 2, 0)).rows, 0);
        let mut dropped = problem(6, 2, 5);
        dropped.dropout = Some(ffpa_kernels_gpu::abi::Dropout::NONE);
        assert_eq!(QuerySide::of(&dropped).heads, 6);
    }
}
