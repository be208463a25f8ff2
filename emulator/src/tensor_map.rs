//! Tensor maps: what `cuTensorMapEncodeTiled` encodes for the hardware, in a form of the emulator's own.

use crate::fault::{Fault, Place};

/// A four-dimensional tensor of 16-bit elements and the box that copies take of it, stored with the 128-byte swizzle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Address of the first element, a multiple of 16.
    pub base: u64,
    /// Elements along each dimension, the contiguous one first; none is 0.
    pub sizes: [u64; 4],
    /// Bytes from one index to the next in the other three, multiples of 16.
    pub strides: [u64; 3],
    /// Elements and rows of a box: 64 and at most 256.
    pub box_sizes: [u32; 2],
}

/// What makes 16 words a tensor map.
const MAGIC: u64 = 0x7465_6e73_6f72_6d61;

/// Columns of a box: 128 bytes, the swizzle's line.
const COLUMNS: u32 = 64;

impl TensorMap {
    /// As kernels are given it.
    pub fn encode(&self) -> [u64; 16] {
        let mut words = [0; 16];
        words[0] = MAGIC;
        words[1] = self.base;
        words[2..6].copy_from_slice(&self.sizes);
        words[6..9].copy_from_slice(&self.strides);
        words[9..11].copy_from_slice(&self.box_sizes.map(u64::from));
        words
    }

    /// The map at an address.
    pub(crate) fn at(address: u64, access: Place) -> Result<Self, Fault> {
        // SAFETY: kernels are given this address as that of their parameter, which lives as long as the launch.
        let words = unsafe { (address as *const [u64; 16]).read() };
        let map = TensorMap {
            base: words[1],
            sizes: [words[2], words[3], words[4], words[5]],
            strides: [words[6], words[7], words[8]],
            box_sizes: [words[9] as u32, words[10] as u32],
        };
        // The driver would have refused these.
        let aligned =
            map.base.is_multiple_of(16) && map.strides.iter().all(|s| s.is_multiple_of(16) && *s < 1 << 40);
        let sized = !map.sizes.contains(&0) && map.box_sizes[0] == COLUMNS && map.box_sizes[1] <= 256;
        if words[0] == MAGIC && aligned && sized { Ok(map) } else { Err(Fault::TensorMapInvalid { access }) }
    }

    /// Where each 16-byte chunk of the box at `coordinates` comes from, `None` outside the tensor, and where it goes, from a
    /// destination on.
    pub(crate) fn chunks(
        &self,
        coordinates: [u32; 4],
        destination: u32,
    ) -> impl Iterator<Item = (Option<u64>, u32)> + '_ {
        let [first_column, first_row, head, batch] = coordinates.map(u64::from);
        let [columns, rows] = self.box_sizes;
        (0..rows).flat_map(move |row| {
            (0..columns / 8).map(move |chunk| {
                let index = [first_column + 8 * u64::from(chunk), first_row + u64::from(row), head, batch];
                let inside = index.iter().zip(&self.sizes).all(|(index, size)| index < size);
                let offset: u64 = index[1..].iter().zip(&self.strides).map(|(i, stride)| i * stride).sum();
                let source = inside.then(|| self.base + 2 * index[0] + offset);
                let plain = destination + row * 2 * columns + 16 * chunk;
                // The swizzle permutes by address bits, so that tiles need not begin at one of its periods.
                (source, plain ^ ((plain >> 7 & 7) << 4))
            })
        })
    }
}
