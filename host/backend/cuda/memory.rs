//! Device memory for tensors that lie on the host, kept from call to call.

use std::ptr::null_mut;
use std::sync::Mutex;

use super::driver::{Pointer, call};
use crate::error::Error;

/// A block of device memory.
pub struct Block {
    pub address: u64,
    bytes: usize,
}

/// Blocks that are not in use. Lives as long as its context.
#[derive(Default)]
pub struct Pool {
    free: Mutex<Vec<Block>>,
}

impl Pool {
    /// A block of at least `bytes` bytes: the smallest free one, or a new one.
    pub fn take(&self, bytes: usize) -> Result<Block, Error> {
        let mut free = self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let fitting = (0..free.len()).filter(|&i| free[i].bytes >= bytes);
        if let Some(i) = fitting.min_by_key(|&i| free[i].bytes) {
            return Ok(free.swap_remove(i));
        }
        // Memory is about to grow: let go of blocks that turned out too small.
        for block in free.drain(..) {
            // SAFETY: the block is not in use.
            unsafe { call!(cuMemFree_v2(block.address))? };
        }
        let mut block = Block { address: 0, bytes: bytes.max(256).next_multiple_of(256) };
        // SAFETY: the context is current.
        unsafe { call!(cuMemAlloc_v2(&mut block.address, block.bytes))? };
        Ok(block)
    }

    /// Gives a block back.
    pub fn give(&self, block: Block) {
        self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(block);
    }
}

/// Starts a copy to the device.
pub fn upload(to: &Block, from: &[u8], stream: Pointer) -> Result<(), Error> {
    if from.is_empty() {
        return Ok(());
    }
    // SAFETY: the block is at least as large; the driver takes pageable memory before it returns.
    unsafe { call!(cuMemcpyHtoDAsync_v2(to.address, from.as_ptr().cast(), from.len(), stream)) }
}

/// Starts a copy from the device, which the stream's next synchronisation ends.
pub fn download(to: &mut [u8], from: &Block, stream: Pointer) -> Result<(), Error> {
    if to.is_empty() {
        return Ok(());
    }
    // SAFETY: the block is at least as large, and the caller synchronises before it lets go of the slice.
    unsafe { call!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from.address, to.len(), stream)) }
}

/// A pair of events around work on a stream.
pub struct Timer {
    events: [Pointer; 2],
}

impl Timer {
    pub fn start(stream: Pointer) -> Result<Self, Error> {
        let mut timer = Timer { events: [null_mut(); 2] };
        for event in &mut timer.events {
            // SAFETY: the context is current.
            unsafe { call!(cuEventCreate(event, 0))? };
        }
        // SAFETY: the event and the stream are live.
        unsafe { call!(cuEventRecord(timer.events[0], stream))? };
        Ok(timer)
    }

    pub fn stop(&self, stream: Pointer) -> Result<(), Error> {
        // SAFETY: the event and the stream are live.
        unsafe { call!(cuEventRecord(self.events[1], stream)) }
    }

    /// Time between the two, once the stream has been synchronised.
    pub fn elapsed(&self) -> Result<std::time::Duration, Error> {
        let mut milliseconds = 0.0;
        // SAFETY: both events were recorded.
        unsafe { call!(cuEventElapsedTime(&mut milliseconds, self.events[0], self.events[1]))? };
        Ok(std::time::Duration::from_secs_f64(f64::from(milliseconds) / 1e3))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        for event in self.events.into_iter().filter(|event| !event.is_null()) {
            // SAFETY: the event is live; the driver lets it finish.
            let _ = unsafe { call!(cuEventDestroy_v2(event)) };
        }
    }
}
