//! Mbarriers, and the bulk tensor copies that they await (PTX ISA, "mbarrier" and "cp.async.bulk.tensor").

use std::collections::BTreeMap;

use crate::clock::{AGENTS, Knowledge};
use crate::fault::{Fault, Place};

/// An mbarrier.
pub struct Mbarrier {
    arrivals: u32,
    /// Arrivals that the current phase still waits for.
    missing: u32,
    /// Bytes announced and not yet copied; below zero if copies were faster.
    bytes: i64,
    /// Phases completed.
    pub phase: u32,
    /// Its number among the agents of the CTA's clocks.
    pub agent: usize,
    /// Who made it, and at which of its counts.
    pub made: (Place, u32),
    /// The last copy that it awaits, with its phase, and the last phase that a warp has waited for.
    last_copy: Option<(u32, Place)>,
    awaited: u32,
    /// What those who arrived in the current phase knew.
    gathered: Knowledge,
    /// What those knew who arrived up to the last completed phase.
    released: Knowledge,
}

impl Mbarrier {
    /// Whether the phase of this parity has completed; the one before the first has parity 1.
    pub fn is_complete(&self, parity: u32) -> bool {
        self.phase & 1 != parity
    }

    fn settle(&mut self) {
        if self.missing == 0 && self.bytes == 0 {
            self.phase += 1;
            self.missing = self.arrivals;
            // Copies of this phase were made by the barrier's own agent, whose counts are phases.
            self.gathered.learn(self.agent, self.phase);
            self.released = self.gathered.clone();
        }
    }
}

/// A bulk copy on its way.
pub struct BulkCopy {
    pub barrier: u32,
    /// All bytes of the box, zeros included, by 16 at a place.
    pub chunks: Vec<(u32, [u8; 16])>,
}

/// The mbarriers and bulk copies of a CTA.
#[derive(Default)]
pub struct Bulk {
    barriers: BTreeMap<u32, Mbarrier>,
    pub copies: Vec<BulkCopy>,
}

impl Bulk {
    /// Makes an mbarrier.
    pub fn init(
        &mut self,
        address: u32,
        arrivals: u32,
        warps: usize,
        (place, count): (Place, u32),
        knowledge: &Knowledge,
    ) -> Result<(), Fault> {
        let (agent, gathered) = (warps + self.barriers.len(), knowledge.clone());
        if arrivals == 0 || self.barriers.len() == AGENTS {
            return Err(Fault::MbarrierMisused { address, access: place });
        }
        let barrier = Mbarrier {
            arrivals,
            missing: arrivals,
            bytes: 0,
            phase: 0,
            agent,
            made: (place, count),
            last_copy: None,
            awaited: 0,
            released: gathered.clone(),
            gathered,
        };
        self.barriers.insert(address, barrier);
        Ok(())
    }

    /// The mbarrier at an address.
    pub fn barrier(&self, address: u32, access: Place) -> Result<&Mbarrier, Fault> {
        self.barriers.get(&address).ok_or(Fault::MbarrierMisused { address, access })
    }

    /// An arrival that announces bytes.
    pub fn arrive(
        &mut self,
        address: u32,
        bytes: u32,
        knowledge: &Knowledge,
        access: Place,
    ) -> Result<(), Fault> {
        let barrier = self.barriers.get_mut(&address).ok_or(Fault::MbarrierMisused { address, access })?;
        if barrier.missing == 0 {
            return Err(Fault::MbarrierMisused { address, access });
        }
        barrier.missing -= 1;
        barrier.bytes += i64::from(bytes);
        barrier.gathered.merge(knowledge);
        barrier.settle();
        Ok(())
    }

    /// A copy is on its way.
    pub fn start(&mut self, copy: BulkCopy, place: Place) {
        if let Some(barrier) = self.barriers.get_mut(&copy.barrier) {
            barrier.last_copy = Some((barrier.phase + 1, place));
        }
        self.copies.push(copy);
    }

    /// A warp has waited for the last completed phase; what it learns by that.
    pub fn acquire(&mut self, address: u32) -> Option<&Knowledge> {
        let barrier = self.barriers.get_mut(&address)?;
        barrier.awaited = barrier.phase;
        Some(&barrier.released)
    }

    /// A copy that no warp waited for.
    pub fn forgotten(&self) -> Option<Place> {
        let forgotten = |barrier: &Mbarrier| barrier.last_copy.filter(|&(phase, _)| phase > barrier.awaited);
        self.barriers.values().find_map(forgotten).map(|(_, place)| place)
    }

    /// Whether a warp that waits for a phase may go on.
    pub fn is_complete(&self, address: u32, parity: u32) -> bool {
        self.barriers.get(&address).is_some_and(|barrier| barrier.is_complete(parity))
    }

    /// The `index`th copy in flight arrives.
    pub fn land(&mut self, index: usize) -> BulkCopy {
        let copy = self.copies.swap_remove(index);
        if let Some(barrier) = self.barriers.get_mut(&copy.barrier) {
            barrier.bytes -= 16 * copy.chunks.len() as i64;
            barrier.settle();
        }
        copy
    }
}
