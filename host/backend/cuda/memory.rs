//! Device memory for tensors that lie on the host, kept from call to call.

use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use super::driver::{Pointer, call};
use crate::error::Error;

/// Blocks of device memory that are not in use.
#[derive(Default)]
pub struct Pool {
    free: Mutex<Vec<Block>>,
}

struct Block {
    address: u64,
    bytes: usize,
}

/// A block on loan. It goes back to the pool when it is dropped, when the device must be done with it.
pub struct Loan<'a> {
    pool: &'a Pool,
    block: Block,
}

impl Loan<'_> {
    /// The block's address.
    pub fn address(&self) -> u64 {
        self.block.address
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let Block { address, bytes } = self.block;
        self.pool.free().push(Block { address, bytes });
    }
}

impl Pool {
    fn free(&self) -> MutexGuard<'_, Vec<Block>> {
        self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A block of at least `bytes` bytes: the smallest free one, or a new one. The context is current.
    pub fn take(&self, bytes: usize) -> Result<Loan<'_>, Error> {
        let mut free = self.free();
        let fitting = (0..free.len()).filter(|&i| free[i].bytes >= bytes);
        if let Some(i) = fitting.min_by_key(|&i| free[i].bytes) {
            return Ok(Loan { pool: self, block: free.swap_remove(i) });
        }
        drop(free);
        // Memory is about to grow: let go of blocks that turned out too small.
        self.clear()?;
        let mut block = Block { address: 0, bytes: bytes.max(256).next_multiple_of(256) };
        // SAFETY: the context is current.
        unsafe { call!(cuMemAlloc_v2(&mut block.address, block.bytes))? };
        Ok(Loan { pool: self, block })
    }

    /// Frees all blocks that are not on loan. The context is current.
    pub fn clear(&self) -> Result<(), Error> {
        for block in self.free().drain(..) {
            // SAFETY: the block is not in use.
            unsafe { call!(cuMemFree_v2(block.address))? };
        }
        Ok(())
    }
}

/// `CU_STREAM_PER_THREAD`: one handle, and a stream for each thread.
const PER_THREAD_STREAM: usize = 2;

/// A stream: its handle, and for the per-thread stream the thread.
type StreamKey = (usize, Option<ThreadId>);

/// Workspaces of calls on device tensors, one for each stream. Work on a stream is done in order, so its calls can share one;
/// what was given out once stays allocated, since captured graphs go on using it.
#[derive(Default)]
pub struct Workspaces {
    by_stream: Mutex<HashMap<StreamKey, Vec<Block>>>,
}

impl Workspaces {
    /// Starts work on a stream with a workspace of at least `bytes` bytes. No other call's work comes in between. The context
    /// is current.
    pub fn with<R>(
        &self,
        stream: Pointer,
        bytes: usize,
        start: impl FnOnce(u64) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut by_stream = self.by_stream.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let handle = stream as usize;
        let thread = (handle == PER_THREAD_STREAM).then(|| thread::current().id());
        let blocks = by_stream.entry((handle, thread)).or_default();
        if let Some(block) = blocks.last().filter(|block| block.bytes >= bytes) {
            return start(block.address);
        }
        let mut block = Block { address: 0, bytes: bytes.next_power_of_two() };
        // SAFETY: the context is current.
        unsafe { call!(cuMemAlloc_v2(&mut block.address, block.bytes))? };
        let address = block.address;
        blocks.push(block);
        start(address)
    }

    /// Frees them all. The context is current, and the device is done with them.
    pub fn clear(&self) -> Result<(), Error> {
        let mut by_stream = self.by_stream.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for block in by_stream.drain().flat_map(|(_, blocks)| blocks) {
            // SAFETY: the block is not in use.
            unsafe { call!(cuMemFree_v2(block.address))? };
        }
        Ok(())
    }
}

/// Starts a copy to the device, to the block's first bytes.
pub fn upload(to: &Loan<'_>, from: &[u8], stream: Pointer) -> Result<(), Error> {
    upload_at(to, 0, from, stream)
}

/// Starts a copy to the device, to a place in a block.
pub fn upload_at(to: &Loan<'_>, offset: usize, from: &[u8], stream: Pointer) -> Result<(), Error> {
    if from.is_empty() {
        return Ok(());
    }
    assert!(offset + from.len() <= to.block.bytes, "a block holds what is copied to it");
    let address = to.address() + offset as u64;
    // SAFETY: the block is large enough; the driver takes pageable memory before it returns.
    unsafe { call!(cuMemcpyHtoDAsync_v2(address, from.as_ptr().cast(), from.len(), stream)) }
}

/// Starts a copy from the device, which the stream's next synchronisation ends.
pub fn download(to: &mut [u8], from: &Loan<'_>, stream: Pointer) -> Result<(), Error> {
    if to.is_empty() {
        return Ok(());
    }
    // SAFETY: the block is at least as large, and the caller synchronises before it lets go of the slice.
    unsafe { call!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from.address(), to.len(), stream)) }
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
