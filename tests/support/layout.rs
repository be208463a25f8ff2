//! Tensors in memory as hostile as a caller's can be: NaN in every gap, and guards on both sides.

use ffpa::{F8E4M3, Input, Refusal, Scales, TensorRef, bf16, f16};
use microfloat::f8e4m3fn;

use super::cases::LayoutKind;

/// Elements before and after each tensor that no call may touch.
const GUARD: usize = 64;

/// What the tests need of an element type beyond the library's.
pub trait TestElement: Input + PartialEq {
    const NAME: &'static str;
    /// Bits of the significand, the hidden one included.
    const BITS: i32;
    fn from_f64(x: f64) -> Self;
    fn to_f64(self) -> f64;
    fn bits(self) -> u16;

    /// What a call is given of a tensor; only those in eight bits have scales.
    fn view<'a>(
        tensor: &'a Placed<Self>,
        scales: Option<Scales<'a>>,
    ) -> Result<TensorRef<'a, Self>, Refusal> {
        assert!(scales.is_none());
        TensorRef::strided(tensor.slice(), tensor.shape, tensor.strides)
    }
}

impl TestElement for f16 {
    const NAME: &'static str = "f16";
    const BITS: i32 = 11;
    fn from_f64(x: f64) -> Self {
        f16::from_f32(x as f32)
    }
    fn to_f64(self) -> f64 {
        f16::to_f64(self)
    }
    fn bits(self) -> u16 {
        self.to_bits()
    }
}

impl TestElement for bf16 {
    const NAME: &'static str = "bf16";
    const BITS: i32 = 8;
    fn from_f64(x: f64) -> Self {
        bf16::from_f32(x as f32)
    }
    fn to_f64(self) -> f64 {
        bf16::to_f64(self)
    }
    fn bits(self) -> u16 {
        self.to_bits()
    }
}

impl TestElement for F8E4M3 {
    const NAME: &'static str = "f8e4m3";
    const BITS: i32 = 4;
    fn from_f64(x: f64) -> Self {
        let x = if x.is_nan() { x } else { x.clamp(-448.0, 448.0) };
        F8E4M3::from_bits(f8e4m3fn::from_f32(x as f32).to_bits())
    }
    fn to_f64(self) -> f64 {
        f64::from(f8e4m3fn::from_bits(self.to_bits()).to_f32())
    }
    fn bits(self) -> u16 {
        self.to_bits().into()
    }
    fn view<'a>(
        tensor: &'a Placed<Self>,
        scales: Option<Scales<'a>>,
    ) -> Result<TensorRef<'a, Self>, Refusal> {
        let view = TensorRef::strided(tensor.slice(), tensor.shape, tensor.strides)?;
        scales.map_or(Ok(view), |scales| view.with_scales(scales))
    }
}

/// A tensor within a larger block of memory.
pub struct Placed<T> {
    block: Vec<T>,
    /// First element of the tensor: 16-byte aligned.
    start: usize,
    pub shape: [usize; 4],
    pub strides: [usize; 3],
}

impl<T: TestElement> Placed<T> {
    /// A block of NaN in which a tensor of this shape and these strides lies, `offset` elements after the guard.
    fn blank(shape: [usize; 4], strides: [usize; 3], offset: usize, span: usize) -> Self {
        let block = vec![T::from_f64(f64::NAN); GUARD + span + GUARD + 16];
        let misaligned = block.as_ptr().align_offset(16);
        Placed { block, start: GUARD + misaligned + offset, shape, strides }
    }

    pub fn new(kind: LayoutKind, shape: [usize; 4]) -> Self {
        let [b, h, n, d] = shape;
        let strides = match kind {
            LayoutKind::Bhnd | LayoutKind::BroadcastKv | LayoutKind::BroadcastBatch => [h * n * d, n * d, d],
            LayoutKind::Bnhd | LayoutKind::FusedQkv => [n * h * d, d, h * d],
            LayoutKind::Padded => {
                // In steps of 16 bytes.
                let step = 16 / size_of::<T>();
                let row = d + step;
                let head = n * row + 3 * step;
                [h * head + 5 * step, head, row]
            }
        };
        Self::blank(shape, strides, 0, b * strides[0].max(1))
    }

    /// A view of this tensor's block: heads from `head` on.
    fn index(&self, [b, h, n]: [usize; 3]) -> usize {
        self.start + b * self.strides[0] + h * self.strides[1] + n * self.strides[2]
    }

    /// Stores values given as `[batch, heads, length, head dim]`.
    pub fn fill(&mut self, values: &[f64]) {
        let [b, h, n, d] = self.shape;
        let rows = (0..b).flat_map(|b| (0..h).flat_map(move |h| (0..n).map(move |n| [b, h, n])));
        for (row, values) in rows.zip(values.chunks(d.max(1))) {
            let at = self.index(row);
            self.block[at..at + d].iter_mut().zip(values).for_each(|(x, v)| *x = T::from_f64(*v));
        }
    }

    /// The values as `[batch, heads, length, head dim]`.
    pub fn values(&self) -> Vec<f64> {
        let [b, h, n, d] = self.shape;
        let rows = (0..b).flat_map(|b| (0..h).flat_map(move |h| (0..n).map(move |n| [b, h, n])));
        rows.flat_map(|row| self.block[self.index(row)..][..d].iter().map(|x| x.to_f64())).collect()
    }

    pub fn slice(&self) -> &[T] {
        &self.block[self.start..]
    }

    pub fn slice_mut(&mut self) -> &mut [T] {
        &mut self.block[self.start..]
    }

    /// All bits of the block.
    pub fn bits(&self) -> Vec<u16> {
        self.block.iter().map(|x| x.bits()).collect()
    }

    /// How many elements outside the tensor differ between two states of the block.
    pub fn outside_changes(&self, before: &[u16]) -> usize {
        let [b, h, n, d] = self.shape;
        let mut inside = vec![false; self.block.len()];
        for b in 0..b {
            for h in 0..h {
                for n in 0..n {
                    let at = self.index([b, h, n]);
                    inside[at..at + d].fill(true);
                }
            }
        }
        let changed = |(i, x): (usize, &T)| !inside[i] && x.bits() != before[i];
        self.block.iter().enumerate().filter(|&entry| changed(entry)).count()
    }
}

/// Q, K and V of a case in memory.
pub struct Inputs<T> {
    tensors: Vec<Placed<T>>,
}

impl<T: TestElement> Inputs<T> {
    pub fn new(kind: LayoutKind, shapes: [[usize; 4]; 3], values: [&[f64]; 3]) -> Self {
        let mut tensors: Vec<Placed<T>> = match kind {
            LayoutKind::FusedQkv => {
                // One projection per input, each a slice of the heads of a block of the sum of all heads.
                let heads: usize = shapes.iter().map(|shape| shape[1]).sum();
                let mut first = 0;
                let mut place = |[b, h, n, d]: [usize; 4]| {
                    let strides = [n * heads * d, d, heads * d];
                    let placed = Placed::blank([b, h, n, d], strides, first * d, b * strides[0]);
                    first += h;
                    placed
                };
                shapes.map(&mut place).into()
            }
            _ => shapes.map(|shape| Placed::new(kind, shape)).into(),
        };
        // Where the others would lie is NaN, as all that is no tensor's.
        match kind {
            LayoutKind::BroadcastKv => tensors[1..].iter_mut().for_each(|tensor| tensor.strides[1] = 0),
            LayoutKind::BroadcastBatch => tensors[1..].iter_mut().for_each(|tensor| tensor.strides[0] = 0),
            _ => {}
        }
        for (tensor, values) in tensors.iter_mut().zip(values) {
            tensor.fill(values);
        }
        Inputs { tensors }
    }

    pub fn tensors(&self) -> [&Placed<T>; 3] {
        [&self.tensors[0], &self.tensors[1], &self.tensors[2]]
    }
}
