//! IEEE half precision.

use cuda_std::Warp;

use super::Element;
use crate::config::Dtype;

/// IEEE half precision.
pub enum F16 {}

impl Element for F16 {
    const DTYPE: Dtype = Dtype::F16;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn mma<W: Warp>(warp: W, d: &mut [W::F32; 4], a: [W::U32; 4], b: [W::U32; 2]) {
        warp.mma_m16n8k16_f16(d, a, b);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn pack<W: Warp>(warp: W, low: W::F32, high: W::F32) -> W::U32 {
        warp.pack_f16(low, high)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn unpack<W: Warp>(warp: W, word: W::U32) -> [W::F32; 2] {
        [warp.unpack_f16(word), warp.unpack_f16(word >> 16)]
    }
}
