//! A lane-dependent `if` around a collective.

use cuda_std::Warp;

fn kernel<W: Warp>(warp: W) {
    if warp.less(warp.lane_id(), warp.splat(16)) {
        warp.sync_threads();
    }
}

fn main() {}
