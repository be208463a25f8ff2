//! The only launch.

use std::ptr::null_mut;

use super::driver::{Pointer, call};
use crate::backend::DeviceTensors;
use crate::error::Error;
use crate::plan::Plan;

/// Starts a plan's kernel on a stream. The context is current, and `function` is the kernel, loaded.
pub fn launch(function: Pointer, plan: &Plan, tensors: &DeviceTensors, stream: Pointer) -> Result<(), Error> {
    if plan.grid == 0 {
        return Ok(());
    }
    let mut params = plan.params;
    params.q.base = tensors.q;
    params.k.base = tensors.k;
    params.v.base = tensors.v;
    params.o.base = tensors.o;
    params.lse = tensors.lse;
    let (grid, threads, shared) = (plan.grid, plan.kernel.threads() as u32, plan.kernel.shared_bytes as u32);
    let mut arguments: [Pointer; 1] = [(&raw mut params).cast()];
    // SAFETY: the kernel takes one `Params`, which the driver copies before it returns; the tensors are what their
    // constructors' callers promised, and the plan checked that the kernel stays within them.
    unsafe {
        let arguments = arguments.as_mut_ptr();
        call!(cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, shared, stream, arguments, null_mut()))
    }
}
