//! The only launch.

use std::ptr::null_mut;

use ffpa_kernels_gpu::catalog::Entry;

use super::driver::{Pointer, call};
use super::tensor_map::MapCache;
use crate::error::Error;
use crate::placement::{Addresses, Placement};
use crate::plan::Plan;

/// One of a plan's passes, its kernels loaded.
pub struct Pass<'p> {
    pub plan: &'p Plan,
    /// Those of its quantisation, in their order.
    pub quantize: Vec<Pointer>,
    pub forward: Pointer,
    /// Null if there is nothing to combine.
    pub combine: Pointer,
}

/// Starts a plan's kernels on a stream. The context is current. `addresses` has a workspace if the plan needs one.
pub fn launch(
    passes: &[Pass<'_>],
    addresses: &Addresses,
    maps: &MapCache,
    stream: Pointer,
) -> Result<(), Error> {
    passes.iter().try_for_each(|pass| launch_pass(pass, addresses, maps, stream))
}

fn launch_pass(
    pass: &Pass<'_>,
    addresses: &Addresses,
    maps: &MapCache,
    stream: Pointer,
) -> Result<(), Error> {
    let plan = pass.plan;
    if plan.grid == 0 {
        return Ok(());
    }
    let Placement { quantize, mut forward, combine } = plan.place(addresses);
    forward.maps = maps.of(plan, &forward)?;
    if let (Some(params), Some(quantization)) = (quantize, &plan.quantization) {
        for (function, (kernel, grid)) in pass.quantize.iter().zip(&quantization.launches) {
            start(*function, &kernel.entry(), *grid, params, stream)?;
        }
    }
    start(pass.forward, &plan.kernel.entry(), plan.grid, forward, stream)?;
    match (combine, &plan.combination) {
        (Some(params), Some(c)) => start(pass.combine, &c.kernel.entry(), c.grid, params, stream),
        _ => Ok(()),
    }
}

/// Starts a kernel on a stream, if there is work for it. The context is current; `function` is the entry, loaded, and `params`
/// its one parameter, whose tensors are what their constructors' callers promised.
pub fn start<P: Copy>(
    function: Pointer,
    entry: &Entry,
    grid: u32,
    mut params: P,
    stream: Pointer,
) -> Result<(), Error> {
    if grid == 0 {
        return Ok(());
    }
    let (threads, shared) = (entry.threads as u32, entry.shared_bytes as u32);
    let mut arguments: [Pointer; 1] = [(&raw mut params).cast()];
    // SAFETY: the driver copies the parameter before it returns, and the plan checked that the kernel stays within its
    // tensors.
    unsafe {
        let arguments = arguments.as_mut_ptr();
        call!(cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, shared, stream, arguments, null_mut()))
    }
}
