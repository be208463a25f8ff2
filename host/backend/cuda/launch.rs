//! The only launches.

use std::ptr::null_mut;

use super::driver::{Pointer, call};
use ffpa_kernels_gpu::abi::CombineParams;
use ffpa_kernels_gpu::catalog::Combine;

use crate::backend::DeviceTensors;
use crate::error::Error;
use crate::plan::Plan;

/// A plan's kernels, loaded.
#[derive(Clone, Copy)]
pub struct Functions {
    pub forward: Pointer,
    /// Null if there is nothing to combine.
    pub combine: Pointer,
}

/// Starts a plan's kernels on a stream. The context is current. `tensors` has a workspace if the plan needs one.
pub fn launch(
    functions: Functions,
    plan: &Plan,
    tensors: &DeviceTensors,
    stream: Pointer,
) -> Result<(), Error> {
    if plan.grid == 0 {
        return Ok(());
    }
    let mut params = plan.params;
    params.q.base = tensors.q;
    params.k.base = tensors.k;
    params.v.base = tensors.v;
    params.o.base = tensors.o;
    params.lse = tensors.lse;
    params.mask.base = tensors.mask;
    let combine = plan.combination.as_ref().map(|c| (c.place(tensors.workspace, &mut params), c.grid));
    let (grid, threads, shared) = (plan.grid, plan.kernel.threads() as u32, plan.kernel.shared_bytes as u32);
    let mut arguments: [Pointer; 1] = [(&raw mut params).cast()];
    // SAFETY: the kernel takes one `Params`, which the driver copies before it returns; the tensors are what their
    // constructors' callers promised, and the plan checked that the kernel stays within them.
    unsafe {
        let arguments = arguments.as_mut_ptr();
        call!(cuLaunchKernel(
            functions.forward,
            grid,
            1,
            1,
            threads,
            1,
            1,
            shared,
            stream,
            arguments,
            null_mut()
        ))?;
    }
    match combine {
        Some((params, grid)) => launch_combine(functions.combine, params, grid, stream),
        None => Ok(()),
    }
}

/// Starts a combining kernel on a stream. The context is current.
pub fn launch_combine(
    function: Pointer,
    mut params: CombineParams,
    grid: u32,
    stream: Pointer,
) -> Result<(), Error> {
    if grid == 0 {
        return Ok(());
    }
    let threads = Combine::THREADS as u32;
    let mut arguments: [Pointer; 1] = [(&raw mut params).cast()];
    // SAFETY: as above.
    unsafe {
        let arguments = arguments.as_mut_ptr();
        call!(cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, 0, stream, arguments, null_mut()))
    }
}
