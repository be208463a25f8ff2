//! Attention as the definition has it: one query row at a time, all scores at hand. Shares no code with the library.
//!
//! Two of them: in f64, the truth; and in the arithmetic that a 16-bit implementation without tiling would use, which
//! sets the error that is fair ("same precision": scores, probabilities and output rounded to the input type, sums in
//! f32).

use std::ops::Range;

use rayon::prelude::*;

/// A call, with all inputs widened to f64 and laid out `[batch, heads, length, head dim]`.
#[derive(Clone)]
pub struct Call {
    pub batch: usize,
    pub q_heads: usize,
    pub kv_heads: usize,
    pub q_len: usize,
    pub kv_len: usize,
    pub head_dim: usize,
    pub causal: bool,
    pub scale: f32,
    pub q: Vec<f64>,
    pub k: Vec<f64>,
    pub v: Vec<f64>,
    /// What is added to each scaled score, `[batch, q_heads, q_len, kv_len]`; empty for nothing.
    pub terms: Vec<f64>,
    /// Which probabilities dropout keeps, in the same order, and the share that is kept; empty for all.
    pub kept: Vec<bool>,
    pub kept_share: f64,
}

/// What one query row needs: itself, and of the keys that it may see keys, values, terms and whether dropout keeps them.
struct Row<'a> {
    q: &'a [f64],
    k: &'a [f64],
    v: &'a [f64],
    terms: &'a [f64],
    kept: &'a [bool],
}

impl Row<'_> {
    fn term(&self, key: usize) -> f64 {
        self.terms.get(key).copied().unwrap_or(0.0)
    }

    fn is_kept(&self, key: usize) -> bool {
        self.kept.get(key).copied().unwrap_or(true)
    }
}

/// `o` as `[batch, q_heads, q_len, head_dim]` and `lse` as `[batch, q_heads, q_len]`.
#[derive(Clone, Debug)]
pub struct Answer {
    pub o: Vec<f64>,
    pub lse: Vec<f64>,
}

impl Answer {
    /// Of a call's answer, some rows of every head.
    pub fn rows(&self, call: &Call, rows: Range<usize>) -> Answer {
        let heads = (0..call.batch * call.q_heads).map(|head| head * call.q_len);
        let seen = heads.flat_map(|first| first + rows.start..first + rows.end);
        let d = call.head_dim;
        Answer {
            o: seen.clone().flat_map(|row| &self.o[row * d..][..d]).copied().collect(),
            lse: seen.map(|row| self.lse[row]).collect(),
        }
    }
}

impl Call {
    /// How many keys a query row sees.
    pub fn visible(&self, row: usize) -> usize {
        if !self.causal {
            return self.kv_len;
        }
        (row + 1 + self.kv_len).saturating_sub(self.q_len).min(self.kv_len)
    }

    /// A bound on the scaled scores: the longest query times the longest key.
    pub fn largest_score(&self) -> f64 {
        let longest = |rows: &[f64]| {
            let squares = rows.chunks(self.head_dim).map(|row| row.iter().map(|x| x * x).sum::<f64>());
            squares.fold(0.0, f64::max).sqrt()
        };
        let terms = self.terms.iter().filter(|x| x.is_finite()).fold(0.0_f64, |max, x| max.max(x.abs()));
        f64::from(self.scale.abs()) * longest(&self.q) * longest(&self.k) + terms
    }

    fn per_row(&self, row_of: impl Fn(Row<'_>) -> (Vec<f64>, f64) + Sync) -> Answer {
        let rows = self.batch * self.q_heads * self.q_len;
        let group = self.q_heads.checked_div(self.kv_heads).unwrap_or(1);
        let d = self.head_dim;
        let answers: Vec<_> = (0..rows)
            .into_par_iter()
            .map(|index| {
                let (head, row) = (index / self.q_len, index % self.q_len);
                let (batch, head) = (head / self.q_heads, head % self.q_heads);
                let first = (batch * self.kv_heads + head / group) * self.kv_len * d;
                let visible = self.visible(row);
                let seen = first..first + visible * d;
                let scores = index * self.kv_len..index * self.kv_len + visible;
                row_of(Row {
                    q: &self.q[index * d..(index + 1) * d],
                    k: &self.k[seen.clone()],
                    v: &self.v[seen],
                    terms: self.terms.get(scores.clone()).unwrap_or(&[]),
                    kept: self.kept.get(scores).unwrap_or(&[]),
                })
            })
            .collect();
        let (mut o, mut lse) = (Vec::with_capacity(rows * d), Vec::with_capacity(rows));
        for (row, log_sum) in answers {
            o.extend(row);
            lse.push(log_sum);
        }
        Answer { o, lse }
    }

    /// The truth.
    pub fn exact(&self) -> Answer {
        let (d, scale) = (self.head_dim, f64::from(self.scale));
        self.per_row(|row| {
            let dot = |k: &[f64]| row.q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>() * scale;
            let scores: Vec<f64> =
                row.k.chunks(d).enumerate().map(|(key, k)| dot(k) + row.term(key)).collect();
            let mut o = vec![0.0; d];
            // A maximum ignores NaN; a row of them is not one without keys.
            if scores.iter().all(|&score| score == f64::NEG_INFINITY) {
                return (o, f64::NEG_INFINITY);
            }
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for (key, (p, v)) in weights.iter().zip(row.v.chunks(d)).enumerate() {
                if row.is_kept(key) {
                    o.iter_mut().zip(v).for_each(|(o, v)| *o += p / sum / self.kept_share * v);
                }
            }
            (o, max + sum.ln())
        })
    }

    /// What a straightforward implementation in the input type gives; `round` rounds to that type. Scores beyond the
    /// type's range, which such an implementation cannot hold, keep their rounding and lose only their limit.
    pub fn same_precision(&self, round: impl Fn(f32) -> f32 + Sync) -> Answer {
        let round_score = |s: f32| match round(s) {
            rounded if rounded.is_finite() || !s.is_finite() => rounded,
            _ => Some(round(s / 1024.0) * 1024.0).filter(|rounded| rounded.is_finite()).unwrap_or(s),
        };
        let d = self.head_dim;
        self.per_row(|row| {
            let dot = |k: &[f64]| {
                let sum = row.q.iter().zip(k).fold(0.0_f32, |sum, (a, b)| sum + *a as f32 * *b as f32);
                round_score(sum * self.scale)
            };
            let with_term = |key, score: f32| match row.term(key) {
                0.0 => score,
                term => round_score(score + term as f32),
            };
            let scores: Vec<f32> =
                row.k.chunks(d).enumerate().map(|(key, k)| with_term(key, dot(k))).collect();
            let mut o = vec![0.0_f32; d];
            if scores.iter().all(|&score| score == f32::NEG_INFINITY) {
                return (vec![0.0; d], f64::NEG_INFINITY);
            }
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let weights: Vec<f32> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f32 = weights.iter().sum();
            for (key, (p, v)) in weights.iter().zip(row.v.chunks(d)).enumerate() {
                let p = if row.is_kept(key) { round(p / sum / self.kept_share as f32) } else { 0.0 };
                o.iter_mut().zip(v).for_each(|(o, v)| *o += p * *v as f32);
            }
            (o.into_iter().map(|o| f64::from(round(o))).collect(), f64::from(max + sum.ln()))
        })
    }
}

#[test]
fn two_keys_by_hand() {
    // Scores ln 3 and 0: weights 3/4 and 1/4.
    let q = [3.0_f64.ln(), 0.0];
    let call = Call {
        batch: 1,
        q_heads: 1,
        kv_heads: 1,
        q_len: 1,
        kv_len: 2,
        head_dim: 2,
        causal: false,
        scale: 1.0,
        q: q.to_vec(),
        k: vec![1.0, 0.0, 0.0, 1.0],
        v: vec![4.0, 8.0, 0.0, 16.0],
        terms: vec![],
        kept: vec![],
        kept_share: 1.0,
    };
    let Answer { o, lse } = call.exact();
    assert!((o[0] - 3.0).abs() < 1e-12 && (o[1] - 10.0).abs() < 1e-12, "{o:?}");
    assert!((lse[0] - 4.0_f64.ln()).abs() < 1e-12);
}

#[test]
fn causal_is_aligned_to_the_bottom_right() {
    let call = |q_len, kv_len| Call {
        batch: 1,
        q_heads: 1,
        kv_heads: 1,
        q_len,
        kv_len,
        head_dim: 1,
        causal: true,
        scale: 0.0,
        q: vec![0.0; q_len],
        k: vec![0.0; kv_len],
        v: (0..kv_len).map(|v| v as f64).collect(),
        terms: vec![],
        kept: vec![],
        kept_share: 1.0,
    };
    // 2 rows over 5 keys see 4 and 5 of them; 5 rows over 2 keys see 0, 0, 0, 1 and 2.
    assert_eq!(call(2, 5).exact().o, [1.5, 2.0]);
    assert_eq!(call(5, 2).exact().o, [0.0, 0.0, 0.0, 0.0, 0.5]);
    assert_eq!(call(5, 2).exact().lse[..3], [f64::NEG_INFINITY; 3]);
}
