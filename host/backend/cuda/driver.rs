//! The driver functions that this backend calls, with integer results.
//!
//! `cust` declares results as an enum of the codes known to CUDA 11.4, so a newer driver's code would be undefined
//! behaviour there. What can fail in new ways (loading, launching, memory, anything after a device fault) is therefore
//! called through these declarations; `cust`'s types are used where they own something: devices and contexts. Both link
//! the same library.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::error::Error;

pub type Pointer = *mut c_void;

#[allow(non_snake_case)]
unsafe extern "C" {
    pub fn cuInit(flags: c_uint) -> c_int;
    pub fn cuDeviceGetCount(count: *mut c_int) -> c_int;
    pub fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int;
    pub fn cuCtxGetCurrent(context: *mut Pointer) -> c_int;
    pub fn cuCtxSetCurrent(context: Pointer) -> c_int;
    pub fn cuCtxPushCurrent_v2(context: Pointer) -> c_int;
    pub fn cuCtxPopCurrent_v2(context: *mut Pointer) -> c_int;
    pub fn cuModuleLoadData(module: *mut Pointer, image: *const c_void) -> c_int;
    pub fn cuModuleUnload(module: Pointer) -> c_int;
    pub fn cuModuleGetFunction(function: *mut Pointer, module: Pointer, name: *const c_char) -> c_int;
    pub fn cuFuncSetAttribute(function: Pointer, attribute: c_int, value: c_int) -> c_int;
    pub fn cuLaunchKernel(
        function: Pointer,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: Pointer,
        arguments: *mut Pointer,
        extra: *mut Pointer,
    ) -> c_int;
    pub fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int;
    pub fn cuMemFree_v2(address: u64) -> c_int;
    pub fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Pointer) -> c_int;
    pub fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Pointer) -> c_int;
    pub fn cuStreamCreate(stream: *mut Pointer, flags: c_uint) -> c_int;
    pub fn cuStreamDestroy_v2(stream: Pointer) -> c_int;
    pub fn cuStreamSynchronize(stream: Pointer) -> c_int;
    pub fn cuEventCreate(event: *mut Pointer, flags: c_uint) -> c_int;
    pub fn cuEventDestroy_v2(event: Pointer) -> c_int;
    pub fn cuEventRecord(event: Pointer, stream: Pointer) -> c_int;
    pub fn cuEventElapsedTime(milliseconds: *mut f32, start: Pointer, end: Pointer) -> c_int;
    pub fn cuGetProcAddress(name: *const c_char, function: *mut Pointer, version: c_int, flags: u64)
    -> c_int;
    fn cuGetErrorName(code: c_int, name: *mut *const c_char) -> c_int;
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub const MAX_DYNAMIC_SHARED_BYTES: c_int = 8;
/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`, which `cust` has no name for.
pub const MAX_SHARED_BYTES: c_int = 97;
/// `CU_STREAM_NON_BLOCKING`.
pub const NON_BLOCKING: c_uint = 1;

/// Calls a driver function; its result becomes a `Result`.
///
/// Expands to an unsafe call: the block around it says why it is sound.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::backend::cuda::driver::check(
            stringify!($function),
            $crate::backend::cuda::driver::$function($($argument),*),
        )
    };
}
pub(crate) use call;

/// A driver function's result.
pub fn check(call: &'static str, code: c_int) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(Error::Driver { call, code, name: name(code) }) }
}

/// A result code's name, as the driver knows it.
pub fn name(code: c_int) -> String {
    let mut name = std::ptr::null();
    // SAFETY: the driver stores a pointer to a static string, or null for codes that it does not know.
    let known = unsafe { cuGetErrorName(code, &mut name) == 0 && !name.is_null() };
    if !known {
        return "unknown to the driver".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
