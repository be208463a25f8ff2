//! What the emulator refuses, with the source lines that made it so.

use std::fmt;
use std::panic::Location;

/// What a warp did to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// An ordinary load.
    Load,
    /// A load that a whole warp makes together (`ldmatrix`).
    MatrixLoad,
    /// An ordinary store.
    Store,
    /// An asynchronous copy (`cp.async`).
    Copy,
    /// A bulk copy of a tensor's box (`cp.async.bulk.tensor`).
    BulkCopy,
    /// Making, using or awaiting an mbarrier.
    Mbarrier,
    /// Taking registers or giving them up (`setmaxnreg`).
    Registers,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Load => "load",
            Access::MatrixLoad => "matrix load",
            Access::Store => "store",
            Access::Copy => "asynchronous copy",
            Access::BulkCopy => "bulk copy",
            Access::Mbarrier => "mbarrier operation",
            Access::Registers => "change of registers",
        })
    }
}

/// Who did it, and on which line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Warp of the CTA.
    pub warp: usize,
    /// Lane of the warp.
    pub lane: usize,
    /// What it did.
    pub access: Access,
    /// The line of the kernel.
    pub location: &'static Location<'static>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by warp {} lane {} at {}", self.access, self.warp, self.lane, self.location)
    }
}

/// Something that a correct kernel never does.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Two accesses to one word, at least one of them a write, with no barrier between them.
    #[error("race on shared byte {address}: {second} is not ordered after {first}; a barrier is missing")]
    Race {
        /// Byte address in shared memory.
        address: u32,
        /// The access that was recorded.
        first: Place,
        /// The access that conflicts with it.
        second: Place,
    },
    /// An access to bytes that an asynchronous copy may still write.
    #[error(
        "shared byte {address} is still in flight from {copy}: {access} comes before the wait for that copy"
    )]
    CopyInFlight {
        /// Byte address in shared memory.
        address: u32,
        /// The copy.
        copy: Place,
        /// The access that came too early.
        access: Place,
    },
    /// A read of bytes that nobody wrote.
    #[error("shared byte {address} was never written: {access}")]
    Uninitialised {
        /// Byte address in shared memory.
        address: u32,
        /// The read.
        access: Place,
    },
    /// An access beyond shared memory.
    #[error("shared byte {address} lies beyond the {limit} bytes of the launch: {access}")]
    SharedOutOfRange {
        /// Byte address in shared memory.
        address: u32,
        /// Bytes of shared memory.
        limit: usize,
        /// The access.
        access: Place,
    },
    /// An access whose address is not a multiple of its size.
    #[error("address {address:#x} is not a multiple of {alignment}: {access}")]
    Misaligned {
        /// The address.
        address: u64,
        /// What it should be a multiple of.
        alignment: u64,
        /// The access.
        access: Place,
    },
    /// A global access outside the launch's buffers.
    #[error("global address {address:#x} lies in no buffer ({nearest}): {access}")]
    GlobalOutOfRange {
        /// The address.
        address: u64,
        /// The nearest buffer, and how far off it is.
        nearest: String,
        /// The access.
        access: Place,
    },
    /// A store to a buffer that is only to be read.
    #[error("buffer {buffer} is read-only: {access}")]
    ReadOnly {
        /// The buffer's name.
        buffer: String,
        /// The access.
        access: Place,
    },
    /// A copy of a number of bytes other than 0 or the whole.
    #[error("an asynchronous copy takes 0 or 16 bytes of its source, not {bytes}: {access}")]
    CopySize {
        /// The number given.
        bytes: u32,
        /// The copy.
        access: Place,
    },
    /// A warp that ended with copies nobody waited for.
    #[error("warp {} ended before it waited for {copy}", copy.warp)]
    CopyNeverAwaited {
        /// One of the copies.
        copy: Place,
    },
    /// A bulk copy to bytes that an ordinary access wrote, without a proxy fence in between.
    #[error("shared byte {address}: {second} does not see {first}; a proxy fence is missing")]
    ProxyFence {
        /// Byte address in shared memory.
        address: u32,
        /// The ordinary access.
        first: Place,
        /// The copy.
        second: Place,
    },
    /// An mbarrier that is not one, that another warp made without anything in between, or that more warps arrive at than it
    /// counts.
    #[error("no mbarrier at shared byte {address} that may be used so: {access}")]
    MbarrierMisused {
        /// Byte address in shared memory.
        address: u32,
        /// The operation.
        access: Place,
    },
    /// An access to the bytes of an mbarrier that is no operation on it: until it is invalidated, its place serves nothing
    /// else (PTX ISA, "mbarrier.init" and "mbarrier.inval").
    #[error("shared byte {address} is part of an mbarrier, made in {made}: {access}")]
    MbarrierTouched {
        /// Byte address in shared memory.
        address: u32,
        /// The operation that made it.
        made: Place,
        /// The access.
        access: Place,
    },
    /// A tensor map that is not one.
    #[error("the address of a tensor map leads to none that the driver would make: {access}")]
    TensorMapInvalid {
        /// The copy.
        access: Place,
    },
    /// A box whose first column does not lie on a 16-byte step.
    #[error("a bulk copy begins at column {column}, which is no multiple of 8: {access}")]
    BoxUnaligned {
        /// The column.
        column: u32,
        /// The copy.
        access: Place,
    },
    /// Warps wait for others that never come, at different barriers, or at mbarriers whose phases never complete.
    #[error("no warp can go on: {}", positions.join(", "))]
    Barrier {
        /// Each warp's position.
        positions: Vec<String>,
    },
    /// Registers changed to a number that is not a multiple of 8 from 24 to 256 (PTX ISA, "setmaxnreg").
    #[error("a thread cannot have {count} registers, but a multiple of 8 from 24 to 256: {access}")]
    RegisterCount {
        /// The number.
        count: u32,
        /// The operation.
        access: Place,
    },
    /// Registers changed by some warps of an aligned group of four, and not in the same way by the others.
    #[error("the four warps of a group change their registers together or not at all: {}", positions.join(", "))]
    RegistersApart {
        /// What each warp of the group did.
        positions: Vec<String>,
    },
    /// The kernel panicked.
    #[error("warp {warp} panicked: {message}")]
    Panicked {
        /// Warp of the CTA.
        warp: usize,
        /// The panic's message.
        message: String,
    },
}

impl Fault {
    /// Ends the running warp with this fault. Unwinding is caught where the warp began; no panic hook is called.
    pub(crate) fn raise(self) -> ! {
        std::panic::resume_unwind(Box::new(self))
    }
}
