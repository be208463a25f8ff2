//! A plan's launches, once it is known where everything lies.

use ffpa_kernels_gpu::abi::{CombineParams, Params, QuantizeParams};

use crate::plan::Plan;
use crate::quantization::ALIGNMENT;

/// Addresses of a call's tensors; 0 for no scales, no mask and no log-sum-exp.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Addresses {
    pub q: u64,
    pub k: u64,
    pub v: u64,
    /// Of Q, K and V.
    pub scales: [u64; 3],
    pub mask: u64,
    pub o: u64,
    pub lse: u64,
    pub workspace: u64,
}

/// Parameters of a plan's launches, in the order in which they start; the forward kernel's lack tensor maps.
#[cfg_attr(
    not(any(feature = "emulator", feature = "cuda")),
    allow(dead_code, reason = "the cpu backend launches nothing")
)]
pub(crate) struct Placement {
    pub quantize: Option<QuantizeParams>,
    pub forward: Params,
    pub combine: Option<CombineParams>,
}

impl Plan {
    /// The launches of its own kernels, not of the early rows', on tensors at these addresses. In the workspace, parts of results
    /// come first and then quantised tensors.
    #[cfg_attr(
        not(any(feature = "emulator", feature = "cuda")),
        allow(dead_code, reason = "the cpu backend launches nothing")
    )]
    pub(crate) fn place(&self, at: &Addresses) -> Placement {
        let mut forward = self.params;
        forward.q.base += at.q;
        forward.k.base += at.k;
        forward.v.base += at.v;
        forward.o.base += at.o;
        forward.lse = if at.lse == 0 { 0 } else { forward.lse + at.lse };
        forward.mask.base = at.mask;
        let [q, k, v] = at.scales;
        (forward.scales.q.base, forward.scales.k.base, forward.scales.v.base) = (q, k, v);
        let offset = self.quantized_offset() as u64;
        let quantize = self.quantization.as_ref().map(|q| q.place(at.workspace + offset, &mut forward));
        // After the scales, of which it takes what is to be added to all parts together.
        let combine = self.combination.as_ref().map(|c| c.place(at.workspace, &mut forward));
        Placement { quantize, forward, combine }
    }

    /// Where quantised tensors begin in the workspace.
    pub(crate) fn quantized_offset(&self) -> usize {
        self.combination.as_ref().map_or(0, |c| c.workspace_bytes().next_multiple_of(ALIGNMENT))
    }
}
