//! What an entry does: from parameters and block index to one CTA's work, and on to the main loop.

use cuda_std::Warp;

use crate::abi::Params;
use crate::config::{PANEL, PersistD, SplitD};
use crate::mainloop;
use crate::schedule::Work;

/// A persist-D kernel. See [`mainloop::persist_d`] for the const parameters.
///
/// # Safety
/// `params` describes live buffers, as [`Params`] documents, and the grid has one CTA per query tile.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn persist_d<W: Warp, C: PersistD, const M: usize, const N: usize, const O: usize>(
    warp: W,
    params: &Params,
) {
    const { assert!(16 * M * C::WARPS == C::ROWS && 8 * N == C::KEYS && 8 * O == C::D) };
    let work = Work::new(params, warp.block_idx_x(), C::ROWS as u32);
    // SAFETY: the caller's.
    unsafe { mainloop::persist_d::<W, C, M, N, O>(warp, params, work) }
}

/// A split-D kernel. See [`mainloop::split_d`] for the const parameters.
///
/// # Safety
/// As [`persist_d`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn split_d<W: Warp, C: SplitD, const M: usize, const N: usize, const O: usize, const K: usize>(
    warp: W,
    params: &Params,
) {
    const {
        assert!(
            C::D.is_multiple_of(PANEL)
                && C::KEYS.is_multiple_of(PANEL)
                && C::ROWS.is_multiple_of(4 * C::WARPS)
        );
        assert!(16 * M * C::WARPS == C::ROWS * C::KEY_WARPS && 8 * N * C::KEY_WARPS == C::KEYS);
        assert!(8 * O * C::KEY_WARPS == C::D && 16 * K == C::KEYS);
        assert!(N.is_multiple_of(2) && (PANEL / 8 / C::KEY_WARPS).is_multiple_of(2));
    }
    let work = Work::new(params, warp.block_idx_x(), C::ROWS as u32);
    // SAFETY: the caller's.
    unsafe { mainloop::split_d::<W, C, M, N, O, K>(warp, params, work) }
}
