//! Shared memory, and beside each of its words who wrote and read it last.
//!
//! Accesses are ordered by happens-before, not by the order in which the scheduler happened to run them, so a missing
//! barrier is found under every seed. Within a warp, lanes of one instruction or of two are unordered until the warp
//! synchronises, as the CUDA memory model has it.

use std::panic::Location;

use crate::clock::Clocks;
use crate::fault::{Access, Fault, Place};

/// Bytes of a word: the unit of bookkeeping, and the least access.
pub const WORD: usize = 4;

/// The lane of an access made for all lanes at once.
const ALL_LANES: u8 = 32;

/// Who accessed a word, and when by its own clock.
#[derive(Clone, Copy)]
struct Record {
    warp: u8,
    /// Whose count `clock` is: the warp's, or that of the mbarrier that awaits a bulk copy.
    agent: u8,
    lane: u8,
    access: Access,
    clock: u32,
    location: &'static Location<'static>,
}

impl Record {
    fn new(place: Place, clocks: &Clocks) -> Self {
        let lane = if place.access == Access::MatrixLoad { ALL_LANES } else { place.lane as u8 };
        let (warp, clock) = (place.warp as u8, clocks.now(place.warp));
        Record { warp, agent: warp, lane, access: place.access, clock, location: place.location }
    }

    fn place(&self) -> Place {
        let lane = if self.lane == ALL_LANES { 0 } else { self.lane as usize };
        Place { warp: self.warp as usize, lane, access: self.access, location: self.location }
    }

    /// Whether this access is ordered before what `next` does now.
    fn before(&self, next: &Record, clocks: &Clocks) -> bool {
        if self.agent != next.warp {
            return clocks.ordered(next.warp as usize, self.agent as usize, self.clock);
        }
        self.clock < next.clock || (self.lane == next.lane && self.lane != ALL_LANES)
    }
}

#[derive(Clone, Copy)]
enum Content {
    Unwritten,
    InFlight(Record),
    Written(Record),
    /// By a bulk copy: its record is that of the phase that awaits it.
    Bulk(Record),
    /// Half of an mbarrier, made by this access. Nothing here invalidates one, so it stays one to the end of the CTA.
    Mbarrier(Record),
}

/// The shared memory of one CTA.
pub struct Shared {
    bytes: Vec<u8>,
    content: Vec<Content>,
    /// The last read of each word by each warp.
    readers: Vec<Option<Record>>,
    warps: usize,
}

impl Shared {
    pub(crate) fn new(bytes: usize, warps: usize) -> Self {
        let words = bytes.div_ceil(WORD);
        Shared {
            // All ones is a NaN in every float format: what slips through every check still shows in the result.
            bytes: vec![0xFF; bytes],
            content: vec![Content::Unwritten; words],
            readers: vec![None; words * warps],
            warps,
        }
    }

    /// Refuses addresses beyond the end and those that are not a multiple of the size.
    pub(crate) fn check(&self, address: u32, bytes: usize, access: Place) -> Result<usize, Fault> {
        if !(address as usize).is_multiple_of(bytes) {
            return Err(Fault::Misaligned { address: address.into(), alignment: bytes as u64, access });
        }
        if address as usize + bytes > self.bytes.len() {
            return Err(Fault::SharedOutOfRange { address, limit: self.bytes.len(), access });
        }
        Ok(address as usize)
    }

    /// Reads `N` bytes.
    pub(crate) fn read<const N: usize>(
        &mut self,
        address: u32,
        place: Place,
        clocks: &Clocks,
    ) -> Result<[u8; N], Fault> {
        let start = self.check(address, N, place)?;
        let record = Record::new(place, clocks);
        for word in start / WORD..(start + N) / WORD {
            let address = (word * WORD) as u32;
            match self.content[word] {
                Content::Unwritten => return Err(Fault::Uninitialised { address, access: place }),
                Content::Mbarrier(made) => {
                    return Err(Fault::MbarrierTouched { address, made: made.place(), access: place });
                }
                Content::InFlight(copy) => {
                    return Err(Fault::CopyInFlight { address, copy: copy.place(), access: place });
                }
                Content::Bulk(copy) if !copy.before(&record, clocks) => {
                    return Err(Fault::CopyInFlight { address, copy: copy.place(), access: place });
                }
                Content::Written(write) if !write.before(&record, clocks) => {
                    return Err(Fault::Race { address, first: write.place(), second: place });
                }
                Content::Written(_) | Content::Bulk(_) => {
                    let reader = &mut self.readers[word * self.warps + place.warp];
                    // Of several lanes that read a word at one time, none is ordered after the others.
                    let together = reader.is_some_and(|r| r.clock == record.clock && r.lane != record.lane);
                    let lane = if together { ALL_LANES } else { record.lane };
                    *reader = Some(Record { lane, ..record });
                }
            }
        }
        Ok(self.bytes[start..start + N].try_into().expect("the range has N bytes"))
    }

    /// Writes `N` bytes.
    pub(crate) fn write<const N: usize>(
        &mut self,
        address: u32,
        bytes: [u8; N],
        place: Place,
        clocks: &Clocks,
    ) -> Result<(), Fault> {
        let start = self.claim(address, N, place, clocks, Content::Written)?;
        self.bytes[start..start + N].copy_from_slice(&bytes);
        Ok(())
    }

    /// A copy of `bytes` bytes begins: until [`Shared::land`] nobody may touch them.
    pub(crate) fn begin_copy(
        &mut self,
        address: u32,
        bytes: usize,
        place: Place,
        clocks: &Clocks,
    ) -> Result<(), Fault> {
        self.claim(address, bytes, place, clocks, Content::InFlight).map(drop)
    }

    /// A bulk copy of 16 bytes begins, that the `phase`th phase of an mbarrier's agent awaits.
    pub(crate) fn begin_bulk_copy(
        &mut self,
        address: u32,
        place: Place,
        clocks: &Clocks,
        (agent, phase): (usize, u32),
    ) -> Result<(), Fault> {
        let bulk = |record| Content::Bulk(Record { agent: agent as u8, clock: phase, ..record });
        self.claim(address, 16, place, clocks, bulk).map(drop)
    }

    /// Makes the 8 bytes at `address` an mbarrier, which only mbarrier operations may touch from here on.
    pub(crate) fn make_mbarrier(&mut self, address: u32, place: Place, clocks: &Clocks) -> Result<(), Fault> {
        self.claim(address, 8, place, clocks, Content::Mbarrier).map(drop)
    }

    /// The bytes of a bulk copy arrive.
    pub(crate) fn land_bulk(&mut self, address: u32, bytes: [u8; 16]) {
        self.bytes[address as usize..][..16].copy_from_slice(&bytes);
    }

    /// The bytes of a copy arrive. With `awaited`, its warp has waited for it: from now on it counts as a write of that
    /// warp's, made now.
    pub(crate) fn land(
        &mut self,
        address: u32,
        bytes: [u8; 16],
        place: Place,
        clocks: &Clocks,
        awaited: bool,
    ) {
        let start = address as usize;
        self.bytes[start..start + 16].copy_from_slice(&bytes);
        if awaited {
            self.content[start / WORD..(start + 16) / WORD]
                .fill(Content::Written(Record::new(place, clocks)));
        }
    }

    /// Makes the words this access's, if it is ordered after all earlier ones.
    fn claim(
        &mut self,
        address: u32,
        bytes: usize,
        place: Place,
        clocks: &Clocks,
        content: impl Fn(Record) -> Content,
    ) -> Result<usize, Fault> {
        let start = self.check(address, bytes, place)?;
        let record = Record::new(place, clocks);
        for word in start / WORD..(start + bytes) / WORD {
            let address = (word * WORD) as u32;
            match self.content[word] {
                Content::Mbarrier(made) => {
                    return Err(Fault::MbarrierTouched { address, made: made.place(), access: place });
                }
                Content::InFlight(copy) => {
                    return Err(Fault::CopyInFlight { address, copy: copy.place(), access: place });
                }
                Content::Bulk(copy) if !copy.before(&record, clocks) => {
                    return Err(Fault::CopyInFlight { address, copy: copy.place(), access: place });
                }
                Content::Written(write) if !write.before(&record, clocks) => {
                    return Err(Fault::Race { address, first: write.place(), second: place });
                }
                Content::Written(write)
                    if place.access == Access::BulkCopy
                        && !clocks.proxied(place.warp, write.agent as usize, write.clock) =>
                {
                    return Err(Fault::ProxyFence { address, first: write.place(), second: place });
                }
                _ => {}
            }
            for reader in &mut self.readers[word * self.warps..(word + 1) * self.warps] {
                match reader {
                    Some(read) if !read.before(&record, clocks) => {
                        return Err(Fault::Race { address, first: read.place(), second: place });
                    }
                    _ => *reader = None,
                }
            }
            self.content[word] = content(record);
        }
        Ok(start)
    }
}
