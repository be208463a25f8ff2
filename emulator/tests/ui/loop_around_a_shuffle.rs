//! A lane-dependent `while` around a collective.

use cuda_std::Warp;

fn kernel<W: Warp>(warp: W, mut x: W::F32) {
    while warp.less_f32(x, warp.splat_f32(1.0)) {
        x = x + warp.shuffle_xor(x, 1);
    }
}

fn main() {}
