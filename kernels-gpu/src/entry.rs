//! What an entry does: from parameters and block index to one CTA's work, and on to the main loop.

use cuda_std::Warp;

use crate::abi::Params;
use crate::config::Config;
use crate::mainloop;
use crate::schedule::Work;

/// A forward kernel. See [`mainloop::persist_d`] for the const parameters.
///
/// # Safety
/// `params` describes live buffers, as [`Params`] documents, and the grid has one CTA per query tile.
#[inline(always)]
pub unsafe fn forward<W: Warp, C: Config, const M: usize, const N: usize, const O: usize>(
    warp: W,
    params: &Params,
) {
    const {
        assert!(16 * M * C::WARPS == C::ROWS && 8 * N == C::KEYS && 8 * O == C::D);
    }
    let work = Work::new(params, warp.block_idx_x(), C::ROWS as u32);
    // SAFETY: the caller's.
    unsafe { mainloop::persist_d::<W, C, M, N, O>(warp, params, work) }
}
