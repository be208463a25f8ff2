//! A launch: all CTAs of a grid, spread over the machine's cores.

use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;

use crate::counters::Counters;
use crate::cta::Cta;
use crate::fault::Fault;
use crate::global::Buffers;
use crate::matrix::Accumulators;
use crate::warp::Emu;

/// The shape of a launch, and what it runs on.
#[derive(Clone, Copy, Default)]
pub struct Launch<'a> {
    /// CTAs of the one-dimensional grid.
    pub grid: u32,
    /// Warps of a CTA.
    pub warps: usize,
    /// Dynamic shared memory of a CTA, in bytes.
    pub shared_bytes: usize,
    /// Decides the order in which warps run and the moments at which copies land.
    pub seed: u64,
    /// What the machine keeps of sums of 8-bit floats.
    pub accumulators: Accumulators,
    /// Called after each CTA with the number of those done.
    pub progress: Option<&'a (dyn Fn(u32) + Sync)>,
}

/// Runs `kernel` once for every warp of the grid.
///
/// # Errors
/// The fault of the lowest-numbered CTA that has one.
pub fn launch(
    launch: &Launch<'_>,
    buffers: &Buffers<'_>,
    kernel: impl Fn(Emu<'_>) + Sync,
) -> Result<Counters, Fault> {
    let done = AtomicU32::new(0);
    let run = |block| {
        let result = Cta::new(block, launch, buffers).run(&kernel);
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(progress) = launch.progress {
            progress(done);
        }
        result
    };
    // Every CTA runs, also after a fault, so that the one reported does not depend on timing.
    let results: Vec<_> = (0..launch.grid).into_par_iter().map(run).collect();
    results.into_iter().try_fold(Counters::default(), |sum, counters| Ok(sum + counters?))
}
