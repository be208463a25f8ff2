//! A device and its primary context, the one that other libraries of the process use too.

use std::ffi::c_int;
use std::ptr::null_mut;

use cust::context::Context as Primary;
use cust::device::{Device, DeviceAttribute};

use super::super::BackendKind;
use super::driver::{MAX_SHARED_BYTES, Pointer, call};
use crate::device::{COPY_ALIGNMENT, DeviceInfo};
use crate::error::Error;

/// A device's primary context.
pub struct Context {
    /// Keeps the context retained.
    primary: Primary,
}

// SAFETY: contexts may be used from any thread; this one is never destroyed while borrowed.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A context made current on this thread, until it is dropped.
pub struct Current;

impl Drop for Current {
    fn drop(&mut self) {
        // SAFETY: undoes the push that made this value; nothing between leaves a context behind.
        let _ = unsafe { call!(cuCtxPopCurrent_v2(&mut null_mut())) };
    }
}

impl Context {
    /// Makes the context current on this thread.
    pub fn enter(&self) -> Result<Current, Error> {
        // SAFETY: the context is retained.
        unsafe { call!(cuCtxPushCurrent_v2(self.primary.as_raw().cast()))? };
        Ok(Current)
    }
}

/// Opens device `ordinal`.
pub fn open(ordinal: u32) -> Result<(Context, DeviceInfo), Error> {
    let unavailable = |reason: String| Error::BackendUnavailable { backend: BackendKind::Cuda, reason };
    let mut count: c_int = 0;
    // SAFETY: the first calls that a process may make.
    let started = unsafe { call!(cuInit(0)).and_then(|()| call!(cuDeviceGetCount(&mut count))) };
    started.map_err(|error| match error {
        Error::Driver { code: 100, .. } => {
            unavailable("no CUDA driver, or no device, on this machine".into())
        }
        error => unavailable(error.to_string()),
    })?;
    if ordinal as c_int >= count {
        return Err(unavailable(format!("there is no device {ordinal}; the driver sees {count}")));
    }
    let failed = |error: cust::error::CudaError| unavailable(format!("device {ordinal}: {error}"));
    let device = Device::get_device(ordinal).map_err(failed)?;
    let attribute = |attribute| device.get_attribute(attribute).map(|value| value as u32).map_err(failed);
    let mut shared_bytes = 0;
    // SAFETY: the device exists.
    unsafe { call!(cuDeviceGetAttribute(&mut shared_bytes, MAX_SHARED_BYTES, device.as_raw()))? };
    let info = DeviceInfo {
        name: device.name().map_err(failed)?,
        compute_capability: (
            attribute(DeviceAttribute::ComputeCapabilityMajor)?,
            attribute(DeviceAttribute::ComputeCapabilityMinor)?,
        ),
        multiprocessors: attribute(DeviceAttribute::MultiprocessorCount)?,
        shared_bytes: shared_bytes as usize,
        l2_bytes: attribute(DeviceAttribute::L2CacheSize)? as usize,
        alignment: COPY_ALIGNMENT,
        host_addresses: false,
    };
    // Retaining makes it current; the caller's stays as it was.
    let mut before: Pointer = null_mut();
    // SAFETY: the driver is initialised.
    unsafe { call!(cuCtxGetCurrent(&mut before))? };
    let primary = Primary::new(device).map_err(failed)?;
    // SAFETY: it was current before.
    unsafe { call!(cuCtxSetCurrent(before))? };
    Ok((Context { primary }, info))
}
