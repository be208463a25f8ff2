//! Happens-before among the warps of a CTA, by vector clocks (Flanagan and Freund, "FastTrack", 2009).

/// Mbarriers of a CTA at most: each is an agent of its own, beside the warps, that bulk copies are made by.
pub const AGENTS: usize = 64;

/// What an agent, or somebody who learned of it, knows of everybody's progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knowledge {
    /// Counts by agent: what that agent did up to this count is ordered before what the knower does now.
    known: Vec<u32>,
    /// The same for what asynchronous copies see: ordinary accesses reach them only through a proxy fence.
    proxied: Vec<u32>,
}

impl Knowledge {
    fn new(agents: usize) -> Self {
        Knowledge { known: vec![0; agents], proxied: vec![0; agents] }
    }

    /// Learns what another knows.
    pub fn merge(&mut self, other: &Knowledge) {
        let pairs = [(&mut self.known, &other.known), (&mut self.proxied, &other.proxied)];
        for (mine, theirs) in pairs {
            mine.resize(mine.len().max(theirs.len()), 0);
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
        }
    }

    /// Learns that all an agent did up to its count is done, also as asynchronous copies see it.
    pub fn learn(&mut self, agent: usize, count: u32) {
        for counts in [&mut self.known, &mut self.proxied] {
            counts[agent] = counts[agent].max(count);
        }
    }
}

/// What each warp knows.
///
/// A warp's own component counts its synchronisations. An access at count `c` of agent `v` is ordered before what warp
/// `w` does now if `w` has, through barriers, learned of a count of `v` that is at least `c`.
pub struct Clocks {
    warps: Vec<Knowledge>,
}

impl Clocks {
    pub fn new(warps: usize) -> Self {
        let mut clocks = Clocks { warps: vec![Knowledge::new(warps + AGENTS); warps] };
        (0..warps).for_each(|warp| clocks.advance(warp));
        clocks
    }

    /// The warp's own count now.
    pub fn now(&self, warp: usize) -> u32 {
        self.warps[warp].known[warp]
    }

    /// Whether an access of another agent, at its count `then`, is ordered before what `warp` does now.
    pub fn ordered(&self, warp: usize, other: usize, then: u32) -> bool {
        self.warps[warp].known[other] >= then
    }

    /// Whether it is also ordered before the asynchronous copies that `warp` starts now.
    pub fn proxied(&self, warp: usize, other: usize, then: u32) -> bool {
        self.warps[warp].proxied[other] >= then
    }

    /// What the warp knows.
    pub fn of(&self, warp: usize) -> &Knowledge {
        &self.warps[warp]
    }

    /// The warp learns what others knew.
    pub fn acquire(&mut self, warp: usize, knowledge: &Knowledge) {
        self.warps[warp].merge(knowledge);
    }

    /// The warp orders its own lanes.
    pub fn advance(&mut self, warp: usize) {
        self.warps[warp].known[warp] += 1;
    }

    /// All ordinary accesses that the warp knows of reach the asynchronous copies that it knows of from here on.
    pub fn fence(&mut self, warp: usize) {
        let Knowledge { known, proxied } = &mut self.warps[warp];
        proxied.copy_from_slice(known);
        self.advance(warp);
    }

    /// All warps meet.
    pub fn join(&mut self) {
        let mut all = Knowledge::default();
        self.warps.iter().for_each(|warp| all.merge(warp));
        for warp in 0..self.warps.len() {
            self.warps[warp] = all.clone();
            self.advance(warp);
        }
    }
}
