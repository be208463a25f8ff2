//! Borrowed four-dimensional tensors, in host or device memory.
//!
//! Shapes are `[batch, heads, sequence length, head dim]`, whatever the order in memory. The last dimension is
//! contiguous; the other three have strides, counted in elements.

use std::marker::PhantomData;

use float8::F8E4M3;

use crate::element::{Element, Input};
use crate::refusal::Refusal;
use crate::scale::{Scales, TensorScales};

/// Shape and strides of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub shape: [usize; 4],
    pub strides: [usize; 3],
}

impl Layout {
    fn bhnd(shape: [usize; 4]) -> Self {
        let [_, h, n, d] = shape.map(|size| size.max(1));
        Layout { shape, strides: [h.saturating_mul(n).saturating_mul(d), n.saturating_mul(d), d] }
    }

    fn bnhd(shape: [usize; 4]) -> Self {
        let [_, h, n, d] = shape.map(|size| size.max(1));
        Layout { shape, strides: [h.saturating_mul(n).saturating_mul(d), d, h.saturating_mul(d)] }
    }

    fn new(shape: [usize; 4], strides: [usize; 3]) -> Self {
        Layout { shape, strides }
    }

    /// Elements from the first one to one past the last.
    fn span(&self) -> Result<usize, Refusal> {
        let overflow = Refusal::Overflow { shape: self.shape, strides: self.strides };
        if self.shape.contains(&0) {
            return Ok(0);
        }
        let [batch, head, row] = self.strides;
        // No element here is wider than 4 bytes.
        let last = last_element(self.shape, [batch, head, row, 1]).filter(|&last| last < 1 << 61);
        last.map(|last| last + 1).ok_or(overflow)
    }

    /// Refuses a slice that is too short for it.
    fn check_len(&self, len: usize) -> Result<(), Refusal> {
        let needed = self.span()?;
        if needed <= len {
            return Ok(());
        }
        Err(Refusal::TooShort { shape: self.shape, strides: self.strides, needed, len })
    }

    /// Refuses layouts in which two elements may share an address: each dimension must step over all of the next
    /// smaller one.
    pub fn check_disjoint(&self) -> Result<(), Refusal> {
        // Nothing overlaps where nothing is; sizes that no address can span must not be multiplied below.
        if self.span()? == 0 {
            return Ok(());
        }
        let mut dimensions: Vec<(usize, usize)> =
            self.strides.into_iter().zip(self.shape).filter(|&(_, size)| size > 1).collect();
        dimensions.sort_unstable();
        let mut extent = self.shape[3];
        for (stride, size) in dimensions {
            if stride < extent {
                return Err(Refusal::OutputOverlaps { shape: self.shape, strides: self.strides });
            }
            extent += (size - 1) * stride;
        }
        Ok(())
    }
}

/// The index of the last element of a tensor that has some; `None` if no number says it.
pub(crate) fn last_element(shape: [usize; 4], strides: [usize; 4]) -> Option<usize> {
    let mut reaches = shape.into_iter().zip(strides).map(|(size, stride)| (size - 1).checked_mul(stride));
    reaches.try_fold(0_usize, |last, reach| last.checked_add(reach?))
}

/// Where the elements of an input lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Memory<'a, T> {
    Host(&'a [T]),
    Device(u64),
}

impl<'a, T> Memory<'a, T> {
    /// Whether they lie in device memory.
    pub fn is_device(&self) -> bool {
        matches!(self, Memory::Device(_))
    }

    /// The first element's.
    pub fn address(&self) -> u64 {
        match self {
            Memory::Host(data) => data.as_ptr() as u64,
            Memory::Device(address) => *address,
        }
    }

    /// The elements, if they lie in host memory.
    pub fn slice(&self) -> &'a [T] {
        match self {
            Memory::Host(data) => data,
            Memory::Device(_) => &[],
        }
    }
}

/// An input tensor.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a, T> {
    pub(crate) memory: Memory<'a, T>,
    pub(crate) layout: Layout,
    pub(crate) scales: Option<TensorScales<'a>>,
}

impl<'a, T: Input> TensorRef<'a, T> {
    /// A contiguous tensor stored batch, head, row, column.
    ///
    /// # Errors
    /// [`Refusal::TooShort`] if `data` has fewer elements than `shape`.
    pub fn bhnd(data: &'a [T], shape: [usize; 4]) -> Result<Self, Refusal> {
        Self::host(data, Layout::bhnd(shape))
    }

    /// A contiguous tensor stored batch, row, head, column. `shape` is still `[batch, heads, length, head dim]`.
    ///
    /// # Errors
    /// [`Refusal::TooShort`] if `data` has fewer elements than `shape`.
    pub fn bnhd(data: &'a [T], shape: [usize; 4]) -> Result<Self, Refusal> {
        Self::host(data, Layout::bnhd(shape))
    }

    /// A tensor with any strides: `strides` are the elements from one batch entry, head and row to the next. A stride of
    /// 0 repeats.
    ///
    /// # Errors
    /// [`Refusal::TooShort`] if an element lies beyond `data`, [`Refusal::Overflow`] if an address cannot say where.
    pub fn strided(data: &'a [T], shape: [usize; 4], strides: [usize; 3]) -> Result<Self, Refusal> {
        Self::host(data, Layout::new(shape, strides))
    }

    fn host(data: &'a [T], layout: Layout) -> Result<Self, Refusal> {
        layout.check_len(data.len())?;
        Ok(TensorRef { memory: Memory::Host(data), layout, scales: None })
    }

    /// A tensor in device memory, with strides as in [`TensorRef::strided`].
    ///
    /// # Safety
    /// `address` is that of a tensor of this layout on the engine's device, live and not written to until the call's
    /// work on the device is done.
    pub unsafe fn device(address: u64, shape: [usize; 4], strides: [usize; 3]) -> Self {
        TensorRef { memory: Memory::Device(address), layout: Layout::new(shape, strides), scales: None }
    }

    /// `[batch, heads, sequence length, head dim]`.
    pub fn shape(&self) -> [usize; 4] {
        self.layout.shape
    }
}

impl<'a> TensorRef<'a, F8E4M3> {
    /// The same tensor with scales, without which no call takes it.
    ///
    /// # Errors
    /// [`Refusal::ScalesTooShort`] if there are fewer than the tensor's shape needs.
    pub fn with_scales(self, scales: Scales<'a>) -> Result<Self, Refusal> {
        Ok(TensorRef { scales: Some(scales.of(self.layout.shape)?), ..self })
    }
}

/// Where the elements of an output lie.
#[derive(Debug)]
pub(crate) enum MemoryMut<'a, T> {
    Host(&'a mut [T]),
    Device(u64, PhantomData<&'a mut [T]>),
}

impl<T> MemoryMut<'_, T> {
    /// Whether they lie in device memory.
    pub fn is_device(&self) -> bool {
        matches!(self, MemoryMut::Device(..))
    }

    /// The first element's.
    pub fn address(&self) -> u64 {
        match self {
            MemoryMut::Host(data) => data.as_ptr() as u64,
            MemoryMut::Device(address, _) => *address,
        }
    }

    fn reborrow(&mut self) -> MemoryMut<'_, T> {
        match self {
            MemoryMut::Host(data) => MemoryMut::Host(data),
            MemoryMut::Device(address, _) => MemoryMut::Device(*address, PhantomData),
        }
    }
}

/// An output tensor.
#[derive(Debug)]
pub struct TensorMut<'a, T> {
    pub(crate) memory: MemoryMut<'a, T>,
    pub(crate) layout: Layout,
}

impl<'a, T: Element> TensorMut<'a, T> {
    /// As [`TensorRef::bhnd`].
    ///
    /// # Errors
    /// As there.
    pub fn bhnd(data: &'a mut [T], shape: [usize; 4]) -> Result<Self, Refusal> {
        Self::host(data, Layout::bhnd(shape))
    }

    /// As [`TensorRef::bnhd`].
    ///
    /// # Errors
    /// As there.
    pub fn bnhd(data: &'a mut [T], shape: [usize; 4]) -> Result<Self, Refusal> {
        Self::host(data, Layout::bnhd(shape))
    }

    /// As [`TensorRef::strided`]; elements must not overlap.
    ///
    /// # Errors
    /// As there, and [`Refusal::OutputOverlaps`].
    pub fn strided(data: &'a mut [T], shape: [usize; 4], strides: [usize; 3]) -> Result<Self, Refusal> {
        Self::host(data, Layout::new(shape, strides))
    }

    fn host(data: &'a mut [T], layout: Layout) -> Result<Self, Refusal> {
        layout.check_len(data.len())?;
        layout.check_disjoint()?;
        Ok(TensorMut { memory: MemoryMut::Host(data), layout })
    }

    /// As [`TensorRef::device`].
    ///
    /// # Safety
    /// As there, and nothing else accesses the elements until the call's work on the device is done.
    pub unsafe fn device(address: u64, shape: [usize; 4], strides: [usize; 3]) -> Self {
        TensorMut { memory: MemoryMut::Device(address, PhantomData), layout: Layout::new(shape, strides) }
    }

    pub(crate) fn reborrow(&mut self) -> TensorMut<'_, T> {
        TensorMut { memory: self.memory.reborrow(), layout: self.layout }
    }

    /// `[batch, heads, sequence length, head dim]`.
    pub fn shape(&self) -> [usize; 4] {
        self.layout.shape
    }
}

/// An output for the log-sum-exp: f32 `[batch, query heads, query rows]`, contiguous.
#[derive(Debug)]
pub struct Lse<'a> {
    pub(crate) memory: MemoryMut<'a, f32>,
}

impl<'a> Lse<'a> {
    /// In host memory.
    pub fn host(data: &'a mut [f32]) -> Self {
        Lse { memory: MemoryMut::Host(data) }
    }

    /// In device memory.
    ///
    /// # Safety
    /// `batch * query heads * query rows` floats from `address` on are live on the engine's device, and nothing else
    /// accesses them until the call's work on the device is done.
    pub unsafe fn device(address: u64) -> Self {
        Lse { memory: MemoryMut::Device(address, PhantomData) }
    }

    pub(crate) fn reborrow(&mut self) -> Lse<'_> {
        Lse { memory: self.memory.reborrow() }
    }
}

/// A log-sum-exp to read: f32 `[batch, heads, rows]`, contiguous.
#[derive(Clone, Copy, Debug)]
pub struct LseRef<'a> {
    pub(crate) memory: Memory<'a, f32>,
}

impl<'a> LseRef<'a> {
    /// In host memory.
    pub fn host(data: &'a [f32]) -> Self {
        LseRef { memory: Memory::Host(data) }
    }

    /// In device memory.
    ///
    /// # Safety
    /// `batch * heads * rows` floats from `address` on are live on the engine's device, and nothing writes to them until the
    /// call's work on the device is done.
    pub unsafe fn device(address: u64) -> Self {
        LseRef { memory: Memory::Device(address) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn contiguous_layouts_span_exactly_their_elements() {
        let data = vec![f16::ZERO; 2 * 3 * 5 * 8];
        assert!(TensorRef::bhnd(&data, [2, 3, 5, 8]).is_ok());
        assert!(TensorRef::bnhd(&data, [2, 3, 5, 8]).is_ok());
        let short = &data[1..];
        let refusal = TensorRef::bhnd(short, [2, 3, 5, 8]).unwrap_err();
        let strides = [120, 40, 8];
        assert_eq!(refusal, Refusal::TooShort { shape: [2, 3, 5, 8], strides, needed: 240, len: 239 });
    }

    #[test]
    fn empty_tensors_need_no_memory() {
        for shape in [[0, 3, 5, 8], [2, 0, 5, 8], [2, 3, 0, 8]] {
            assert!(TensorRef::<f16>::bhnd(&[], shape).is_ok());
        }
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let huge = usize::MAX / 2;
        assert!(matches!(TensorRef::<f16>::bhnd(&[], [huge, huge, huge, 8]), Err(Refusal::Overflow { .. })));
        assert!(matches!(
            TensorRef::<f16>::strided(&[], [2, 1, 1, 8], [usize::MAX, 0, 0]),
            Err(Refusal::Overflow { .. })
        ));
    }

    #[test]
    fn outputs_may_interleave_but_not_overlap() {
        let mut data = vec![f16::ZERO; 1000];
        assert!(TensorMut::strided(&mut data, [1, 2, 4, 8], [0, 8, 16]).is_ok());
        assert!(matches!(
            TensorMut::strided(&mut data, [1, 2, 4, 8], [0, 0, 8]),
            Err(Refusal::OutputOverlaps { .. })
        ));
        assert!(matches!(
            TensorMut::strided(&mut data, [1, 2, 4, 8], [0, 8, 12]),
            Err(Refusal::OutputOverlaps { .. })
        ));
    }
}
