//! Which scores count. A masked score is minus infinity, nothing else: a large finite number is a legal score.

use cuda_std::Warp;

use crate::abi::Params;
use crate::tile::{Accumulator, Rows};

/// The number of keys that each of a lane's rows sees.
pub struct Mask<W: Warp, const M: usize> {
    visible: Rows<W::U32, M>,
}

impl<W: Warp, const M: usize> Mask<W, M> {
    /// For the warp's rows, the first of which is `row`.
    ///
    /// Row `r` sees `min(kv_len, max(0, r + 1 + kv_len - q_len))` keys under a causal mask: with `hidden` rows at the
    /// top that see nothing and `shift` keys that all rows see, `(r + 1 + shift) - min(r + 1 + shift, hidden)`.
    #[inline(always)]
    pub fn new(warp: W, params: &Params, row: u32) -> Self {
        let (q_len, kv_len) = (params.q.rows, params.k.rows);
        let mut visible = [[warp.splat(kv_len); 2]; M];
        if params.causal != 0 {
            let (shift, hidden) = (kv_len.saturating_sub(q_len), q_len.saturating_sub(kv_len));
            for m in 0..M {
                for half in 0..2 {
                    let seen = Accumulator::<W, M, 1>::row(warp, m, half) + (row + 1 + shift);
                    let hidden = warp.select(warp.less(seen, warp.splat(hidden)), seen, warp.splat(hidden));
                    let seen = seen - hidden;
                    visible[m][half] =
                        warp.select(warp.less(seen, warp.splat(kv_len)), seen, warp.splat(kv_len));
                }
            }
        }
        Mask { visible }
    }

    /// Masks the scores of the keys from `key` on.
    #[inline(always)]
    pub fn apply<const N: usize>(&self, warp: W, scores: &mut Accumulator<W, M, N>, key: u32) {
        let masked = warp.splat_f32(f32::NEG_INFINITY);
        for n in 0..N {
            for r in 0..4 {
                let column = Accumulator::<W, M, N>::column(warp, n, r) + key;
                for m in 0..M {
                    let seen = warp.less(column, self.visible[m][r / 2]);
                    scores.tiles[m][n][r] = warp.select_f32(seen, scores.tiles[m][n][r], masked);
                }
            }
        }
    }
}
