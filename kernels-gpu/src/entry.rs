//! What an entry does: from parameters and block index to one CTA's work, and on to the main loop.

use cuda_std::Warp;

use crate::abi::Params;
use crate::config::{BulkPersistD, PersistD, SplitD};
use crate::format::{Scores, Values};
use crate::mainloop;
use crate::pipeline::{BulkTiles, Panels, Tiles};
use crate::scales::BLOCK;
use crate::schedule::Work;
use crate::tile::Operands;

/// Registers of a thread that starts copies, in kernels where others compute.
const PRODUCING: u32 = 24;

/// Registers of a thread that computes, in kernels where others start copies and give theirs away: what a multiprocessor's
/// 65536 leave to `warps` warps of each of `blocks` CTAs. Threads begin with equal shares, and shares go in steps of 8 (PTX
/// ISA, "setmaxnreg").
pub const fn computing_registers(warps: usize, producer_warps: usize, blocks: usize) -> u32 {
    let all = warps + producer_warps;
    let each = 65536 / 32 / blocks / all / 8 * 8;
    ((each * all - PRODUCING as usize * producer_warps) / warps / 8 * 8) as u32
}

/// A persist-D kernel. See [`mainloop::persist_d`] for the const parameters.
///
/// # Safety
/// `params` describes live buffers, as [`Params`] documents, and the grid has one CTA per query tile.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn persist_d<W: Warp, C: PersistD, const M: usize, const N: usize, const O: usize>(
    warp: W,
    params: &Params,
) {
    // All threads copy some whole rows in a pass, and some passes are a tile.
    const {
        let tiles = [C::QUERY, C::KEY, C::VALUE];
        let mut i = 0;
        while i < tiles.len() {
            let rows = 16 * C::THREADS / tiles[i].row_bytes;
            assert!((16 * C::THREADS).is_multiple_of(tiles[i].row_bytes) && rows.is_multiple_of(4));
            assert!(tiles[i].rows.is_multiple_of(rows));
            i += 1;
        }
    }
    let work = Work::new(params, warp.block_idx_x(), C::ROWS as u32);
    let Operands { q, k, v, .. } = Operands::new::<C>(params, &work);
    // SAFETY: the caller's.
    unsafe {
        let tiles = Tiles::<W, C>::start(warp, q, k, v, work.keys);
        mainloop::persist_d::<W, C, _, M, N, O>(warp, params, work, tiles);
    }
}

/// A persist-D kernel with bulk copies: if there are warps beyond the `WARPS` that compute, one of them starts the copies.
///
/// # Safety
/// As [`persist_d`]; `address` is that of the parameters, whose tensor maps are made.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn bulk_persist_d<W, C, const M: usize, const N: usize, const O: usize, const COMPUTING: u32>(
    warp: W,
    params: &Params,
    address: u64,
) where
    W: Warp,
    C: BulkPersistD,
{
    // A box has at most 256 rows.
    const { assert!(C::QUERY.rows <= 256 && C::KEY.rows <= 256 && C::VALUE.rows <= 256) };
    let work = Work::new(params, warp.block_idx_x(), C::ROWS as u32);
    // SAFETY: the caller's.
    let tiles = unsafe { BulkTiles::<W, C>::new(warp, &work, address) };
    // Registers change hands between groups of four warps.
    let redistributes = C::PRODUCER_WARPS >= 4;
    const {
        let groups = C::WARPS.is_multiple_of(4) && C::PRODUCER_WARPS == 4 && COMPUTING <= 248;
        assert!(C::PRODUCER_WARPS <= 1 || groups);
    }
    if C::PRODUCER_WARPS > 0 && warp.warp_id() >= C::WARPS as u32 {
        if redistributes {
            warp.decrease_registers::<PRODUCING>();
        }
        if warp.warp_id() == C::WARPS as u32 {
            tiles.produce(&work);
        }
        return;
    }
    if redistributes {
        warp.increase_registers::<COMPUTING>();
    }
    let tiles = tiles.start(&work);
    // SAFETY: the caller's.
    unsafe { mainloop::persist_d::<W, C, _, M, N, O>(warp, params, work, tiles) };
}

/// A split-D kernel. See [`mainloop::split_d`] for the const parameters.
///
/// # Safety
/// As [`persist_d`]; with bulk copies, `address` is that of the parameters, whose tensor maps are made.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn split_d<W, C, P, const M: usize, const N: usize, const O: usize>(
    warp: W,
    params: &Params,
    address: u64,
) where
    W: Warp,
    C: SplitD,
    C::Values: Values<P<W> = [W::U32; 4]>,
    P: Panels<W, C>,
{
    const {
        assert!(C::Scores::RECORD.of_line() == C::Values::RECORD.of_line() && !C::Values::TRANSPOSED);
        assert!(C::D.is_multiple_of(C::PANEL_COLUMNS));
        // By `cp.async`, all threads copy four rows a warp in a pass, and some passes are a panel; the output is stored so too.
        assert!(C::ROWS.is_multiple_of(4 * C::WARPS) && (C::BULK || C::KEYS.is_multiple_of(4 * C::WARPS)));
        assert!(C::KEYS.is_multiple_of(BLOCK));
        assert!(16 * M * C::WARPS == C::ROWS * C::KEY_WARPS && 8 * N * C::KEY_WARPS == C::KEYS);
        assert!(8 * O * C::KEY_WARPS == C::D);
        // A warp's keys are whole A operands of probabilities, and lie in whole blocks or in one; its columns are whole pairs of
        // B operands.
        assert!((8 * N).is_multiple_of(C::Values::STEP));
        assert!((8 * N).is_multiple_of(BLOCK) || BLOCK.is_multiple_of(8 * N) || !C::Scores::SCALED);
        assert!((C::PANEL_COLUMNS / 8 / C::KEY_WARPS).is_multiple_of(2));
    }
    let work = Work::new(params, warp.block_idx_x(), C::ROWS as u32);
    // SAFETY: the caller's.
    unsafe { mainloop::split_d::<W, C, P, M, N, O>(warp, params, work, address) }
}
