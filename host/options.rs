//! What a caller may choose.

use std::fmt;
use std::sync::Arc;

use crate::mask::{Dropout, Mask};
use crate::precision::Precision;

/// Reports progress: called with the number of finished pieces and of all pieces, from any thread.
pub type Progress = Arc<dyn Fn(usize, usize) + Send + Sync>;

/// Options of a forward call. The default: no mask, scale `1 / sqrt(head_dim)`, products in the tensors' own type.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ForwardOptions<'a> {
    /// Whether row `r` sees only the keys `k <= r + kv_len - q_len`.
    pub causal: bool,
    /// What scores are multiplied with; `1 / sqrt(head_dim)` if not given.
    pub scale: Option<f32>,
    /// What the products are computed in.
    pub precision: Precision,
    /// What hides keys or shifts scores.
    pub mask: Option<Mask<'a>>,
    /// What drops probabilities.
    pub dropout: Option<Dropout>,
    /// Called as work on the host proceeds (cpu and emulator backends).
    pub progress: Option<Progress>,
}

impl<'a> ForwardOptions<'a> {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The defaults with a causal mask.
    pub fn causal() -> Self {
        Self::new().with_causal(true)
    }

    /// With or without a causal mask.
    pub fn with_causal(self, causal: bool) -> Self {
        ForwardOptions { causal, ..self }
    }

    /// With this scale.
    pub fn with_scale(self, scale: f32) -> Self {
        ForwardOptions { scale: Some(scale), ..self }
    }

    /// With products computed in these numbers.
    pub fn with_precision(self, precision: Precision) -> Self {
        ForwardOptions { precision, ..self }
    }

    /// With this mask.
    pub fn with_mask(self, mask: Mask<'a>) -> Self {
        ForwardOptions { mask: Some(mask), ..self }
    }

    /// With this dropout.
    pub fn with_dropout(self, dropout: Dropout) -> Self {
        ForwardOptions { dropout: Some(dropout), ..self }
    }

    /// With progress reports.
    pub fn with_progress(self, progress: Progress) -> Self {
        ForwardOptions { progress: Some(progress), ..self }
    }
}

impl fmt::Debug for ForwardOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardOptions")
            .field("causal", &self.causal)
            .field("scale", &self.scale)
            .field("precision", &self.precision)
            .field("mask", &self.mask)
            .field("dropout", &self.dropout)
            .finish_non_exhaustive()
    }
}
