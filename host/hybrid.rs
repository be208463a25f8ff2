//! The first query rows in 16 bits and the others in eight: two problems of one, on the same keys.
//!
//! Both stay aligned to the bottom right: the early rows on the keys that the last of them sees, the late ones on all keys.

use crate::precision::{Fp8, Precision};
use crate::problem::Problem;

impl Problem {
    /// How many of each head's rows, from the first on, are computed in the tensors' own type although others are not.
    pub(crate) fn native_rows(&self) -> usize {
        let rows = match self.precision.native_rows() {
            Some(rows) => rows,
            // Row r sees r + 1 + kv_len - q_len keys.
            None if self.causal => (Fp8::FEW_KEYS + self.q_len).saturating_sub(self.kv_len),
            None => 0,
        };
        rows.min(self.q_len)
    }

    /// Its first `rows` rows, in the tensors' own type.
    pub(crate) fn early(&self, rows: usize) -> Problem {
        let kv_len = match self.causal {
            // What row `rows - 1` sees; 0 if that is none.
            true => (rows + self.kv_len).saturating_sub(self.q_len),
            false => self.kv_len,
        };
        Problem { precision: Precision::Native, q_len: rows, kv_len, ..*self }
    }

    /// Its rows without the first `rows`.
    pub(crate) fn late(&self, rows: usize) -> Problem {
        Problem { q_len: self.q_len - rows, first_row: self.first_row + rows, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ffpa_kernels_gpu::config::Dtype;

    /// Rows, keys: of a causal problem in eight bits and of its two parts, border after `rows`.
    fn parts(q_len: usize, kv_len: usize, rows: usize) -> [(usize, usize, usize); 2] {
        let mut problem = Problem::contiguous(Dtype::Bf16, [1, 1, 1, q_len, kv_len, 64]);
        problem.causal = true;
        problem.precision = Precision::Fp8(Fp8::default());
        let (early, late) = (problem.early(rows), problem.late(rows));
        assert_eq!((early.precision, late.precision), (Precision::Native, problem.precision));
        assert_eq!([early.head_rows, late.head_rows], [q_len; 2]);
        [early, late].map(|part| (part.first_row, part.q_len, part.kv_len))
    }

    #[test]
    fn parts_are_aligned_as_the_whole() {
        assert_eq!(parts(100, 100, 40), [(0, 40, 40), (40, 60, 100)]);
        assert_eq!(parts(100, 130, 40), [(0, 40, 70), (40, 60, 130)]);
        assert_eq!(parts(100, 70, 40), [(0, 40, 10), (40, 60, 70)]);
        // None of the early rows sees a key.
        assert_eq!(parts(100, 50, 40), [(0, 40, 0), (40, 60, 50)]);
    }

    #[test]
    fn rows_are_the_recipe_s_or_few_under_a_causal_mask() {
        let mut problem = Problem::contiguous(Dtype::F16, [1, 1, 1, 1000, 1000, 64]);
        let mut rows = |precision, causal, q_len| {
            (problem.precision, problem.causal, problem.q_len) = (precision, causal, q_len);
            problem.native_rows()
        };
        let fp8 = Precision::Fp8(Fp8::default());
        assert_eq!([rows(fp8, true, 1000), rows(fp8, false, 1000)], [256, 0]);
        // Others than those of a square see more keys, or fewer.
        assert_eq!([rows(fp8, true, 100), rows(fp8, true, 900), rows(fp8, true, 1100)], [0, 156, 356]);
        let some = Precision::Fp8(Fp8::default().with_native_rows(70));
        assert_eq!([rows(some, true, 1000), rows(some, false, 1000), rows(some, false, 50)], [70, 70, 50]);
        assert_eq!(rows(Precision::Native, true, 1000), 0);
    }
}
