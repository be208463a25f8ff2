//! What is done to rows before they are rounded: a mean is taken from them, and those of Q and K may be rotated.
//!
//! The rotation is a Walsh-Hadamard transform (incoherent processing; QuaRot, Ashkboos et al. 2024; FlashAttention-3, Shah et
//! al. 2024, section 3.3). It is orthogonal and the same for Q and K, so that their products stay what they are; but what was
//! large in one column is spread over all that are rotated together, and a row's scale is no longer that of an outlier.
//!
//! As many columns are rotated together as the largest power of two that divides the head dim. The transform is a step for each
//! bit of a column's number: numbers whose columns differ in that bit become their sum and their difference. The lowest three
//! bits are places in a chunk, those above them lanes, and the highest pieces.

use cuda_std::Warp;

use super::block::Rows;
use super::rows::Cta;
use super::{ByColumn, COLUMNS, unpack};
use crate::format::Element;

/// What is done to rows.
pub(super) struct Change<W: Warp, const PIECES: usize> {
    /// What is taken from them first.
    pub(super) mean: ByColumn<W, PIECES>,
    /// Whether they are rotated then: a constant, to be folded.
    pub(super) rotated: bool,
}

/// The rows of a step, widened and changed: of those that do not exist, something.
pub(super) struct Prepared<W: Warp, const PIECES: usize, const PASSES: usize> {
    pub(super) step: u32,
    pub(super) values: [ByColumn<W, PIECES>; PASSES],
    pub(super) exist: [W::Bool; PASSES],
}

impl<W: Warp, E: Element, const LANES: usize, const PIECES: usize, const PASSES: usize, const ROTATED: bool>
    Cta<'_, W, E, LANES, PIECES, PASSES, ROTATED>
{
    /// A step's rows, ready to be rounded.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn prepared(
        &self,
        rows: &Rows<W, PIECES, PASSES>,
        change: &Change<W, PIECES>,
    ) -> Prepared<W, PIECES, PASSES> {
        let mut values = [[[self.warp.splat_f32(0.0); COLUMNS]; PIECES]; PASSES];
        for pass in 0..PASSES {
            for piece in 0..PIECES {
                let wide = unpack::<W, E>(self.warp, rows.words[pass][piece]);
                for c in 0..COLUMNS {
                    values[pass][piece][c] = wide[c] - change.mean[piece][c];
                }
            }
        }
        if change.rotated {
            self.rotate(&mut values);
        }
        Prepared { step: rows.step, values, exist: rows.exist }
    }

    /// Rotates rows. Those of all passes go through a step together, for their shuffles to overlap; a row that does not exist
    /// takes part, since its lanes do.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn rotate(&self, rows: &mut [ByColumn<W, PIECES>; PASSES]) {
        let (warp, together) = (self.warp, self.params.rotated_columns);
        for row in rows.iter_mut() {
            for piece in 0..PIECES {
                for log2 in 0..3 {
                    for c in 0..COLUMNS {
                        if c & (1 << log2) == 0 {
                            let (a, b) = (row[piece][c], row[piece][c + (1 << log2)]);
                            (row[piece][c], row[piece][c + (1 << log2)]) = (a + b, a - b);
                        }
                    }
                }
            }
        }
        for log2 in 0..5 {
            if 1 << log2 < LANES && (COLUMNS as u32) << log2 < together {
                let first = warp.less(warp.lane_id() & (1 << log2), warp.splat(1));
                // Products with these are exact: a sum in the first of two lanes, and the difference from it in the second.
                let sign = warp.select_f32(first, warp.splat_f32(1.0), warp.splat_f32(-1.0));
                for row in rows.iter_mut() {
                    for piece in 0..PIECES {
                        for c in 0..COLUMNS {
                            let own = row[piece][c];
                            row[piece][c] = warp.fma(own, sign, warp.shuffle_xor(own, 1 << log2));
                        }
                    }
                }
            }
        }
        for log2 in 0..5 {
            if 1 << log2 < PIECES && ((COLUMNS * LANES) as u32) << log2 < together {
                for row in rows.iter_mut() {
                    for piece in 0..PIECES {
                        if piece & (1 << log2) == 0 {
                            for c in 0..COLUMNS {
                                let (a, b) = (row[piece][c], row[piece + (1 << log2)][c]);
                                (row[piece][c], row[piece + (1 << log2)][c]) = (a + b, a - b);
                            }
                        }
                    }
                }
            }
        }
        for row in rows {
            for piece in 0..PIECES {
                for c in 0..COLUMNS {
                    row[piece][c] = row[piece][c] * self.params.rotation_factor;
                }
            }
        }
    }
}
