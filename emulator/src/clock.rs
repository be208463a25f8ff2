//! Happens-before among the warps of a CTA, by vector clocks (Flanagan and Freund, "FastTrack", 2009).

/// What each warp knows of the others' progress.
///
/// A warp's own component counts its synchronisations. An access at count `c` of warp `v` is ordered before what warp
/// `w` does now if `w` has, through barriers, learned of a count of `v` that is at least `c`.
pub struct Clocks {
    known: Vec<Vec<u32>>,
}

impl Clocks {
    pub fn new(warps: usize) -> Self {
        let mut clocks = Clocks { known: vec![vec![0; warps]; warps] };
        (0..warps).for_each(|warp| clocks.advance(warp));
        clocks
    }

    /// The warp's own count now.
    pub fn now(&self, warp: usize) -> u32 {
        self.known[warp][warp]
    }

    /// Whether an access of another warp, at its count `then`, is ordered before what `warp` does now.
    pub fn ordered(&self, warp: usize, other: usize, then: u32) -> bool {
        self.known[warp][other] >= then
    }

    /// The warp orders its own lanes.
    pub fn advance(&mut self, warp: usize) {
        self.known[warp][warp] += 1;
    }

    /// All warps meet.
    pub fn join(&mut self) {
        let warps = self.known.len();
        let latest: Vec<u32> = (0..warps).map(|warp| self.now(warp)).collect();
        for warp in 0..warps {
            self.known[warp].copy_from_slice(&latest);
            self.advance(warp);
        }
    }
}
