//! Asynchronous copies of one warp: started, grouped, awaited (PTX ISA, "Data movement: cp.async").

use std::collections::VecDeque;

use crate::fault::Place;

/// A copy on its way.
#[derive(Clone, Copy)]
pub struct Copy {
    /// Where in shared memory.
    pub address: u32,
    /// What will be there.
    pub bytes: [u8; 16],
    /// Who started it.
    pub place: Place,
}

/// The copies of a warp. Lanes are in step, so groups are the warp's.
#[derive(Default)]
pub struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

impl Copies {
    pub fn start(&mut self, copy: Copy) {
        self.open.push(copy);
    }

    pub fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// Takes out all groups but the latest `pending`.
    pub fn wait(&mut self, pending: usize) -> impl Iterator<Item = Copy> + '_ {
        let done = self.groups.len().saturating_sub(pending);
        self.groups.drain(..done).flatten()
    }

    /// A copy that nobody waited for.
    pub fn forgotten(&self) -> Option<&Copy> {
        self.groups.iter().flatten().chain(&self.open).next()
    }
}
