//! Masks on scores, and dropout of probabilities.

use bytemuck::NoUninit;
use ffpa_kernels_gpu::abi::{self, MaskKind};
use half::{bf16, f16};

use crate::refusal::Refusal;
use crate::tensor::{Memory, last_element};

mod sealed {
    pub trait Sealed {}
}

/// An element of a [`Mask`]: `bool`, or [`f16`](struct@f16), [`bf16`](struct@bf16) or `f32`.
pub trait MaskElement: sealed::Sealed + NoUninit {
    /// Its tag.
    const KIND: MaskKind;
}

macro_rules! elements {
    ($($element:ty: $kind:ident),*) => {
        $(
            impl sealed::Sealed for $element {}
            impl MaskElement for $element {
                const KIND: MaskKind = MaskKind::$kind;
            }
        )*
    };
}

elements! { bool: Bool, f16: F16, bf16: Bf16, f32: F32 }

/// An attention mask. Of `bool`s, it hides the keys where it is false. Of floats, it is added to the scaled scores; minus
/// infinity hides a key. With a causal mask, a key is hidden if either hides it.
///
/// It has two to four dimensions, the last of `[batch, query heads, query rows, keys]`. A dimension that is missing or of
/// size 1 is repeated, without copies. Rows whose keys are all hidden give 0 and a log-sum-exp of minus infinity.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'a> {
    /// Its elements, as bytes.
    pub(crate) memory: Memory<'a, u8>,
    pub(crate) kind: MaskKind,
    pub(crate) shape: [usize; 4],
    /// In elements.
    pub(crate) strides: [usize; 4],
}

impl<'a> Mask<'a> {
    /// A contiguous mask.
    ///
    /// # Errors
    /// [`Refusal::MaskDimensions`], or [`Refusal::MaskTooShort`] if `data` has fewer elements than `shape`.
    pub fn new<E: MaskElement>(data: &'a [E], shape: &[usize]) -> Result<Self, Refusal> {
        let mut strides = vec![1_usize; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
        }
        Self::strided(data, shape, &strides)
    }

    /// A mask with any strides, counted in elements. A stride of 0 repeats.
    ///
    /// # Errors
    /// As [`Mask::new`].
    pub fn strided<E: MaskElement>(
        data: &'a [E],
        shape: &[usize],
        strides: &[usize],
    ) -> Result<Self, Refusal> {
        let memory = Memory::Host(bytemuck::cast_slice(data));
        let mask = Mask::in_memory(memory, E::KIND, shape, strides)?;
        match mask.span() {
            Some(needed) if needed <= data.len() => Ok(mask),
            needed => {
                let (shape, strides) = (mask.shape, mask.strides);
                let needed = needed.unwrap_or(usize::MAX);
                Err(Refusal::MaskTooShort { shape, strides, needed, len: data.len() })
            }
        }
    }

    /// A mask in device memory, with strides as in [`Mask::strided`].
    ///
    /// # Errors
    /// [`Refusal::MaskDimensions`].
    ///
    /// # Safety
    /// `address` is that of such a mask on the engine's device, live and not written to until the call's work on the device
    /// is done.
    pub unsafe fn device<E: MaskElement>(
        address: u64,
        shape: &[usize],
        strides: &[usize],
    ) -> Result<Self, Refusal> {
        Mask::in_memory(Memory::Device(address), E::KIND, shape, strides)
    }

    fn in_memory(
        memory: Memory<'a, u8>,
        kind: MaskKind,
        shape: &[usize],
        strides: &[usize],
    ) -> Result<Self, Refusal> {
        let dimensions = shape.len();
        if !(2..=4).contains(&dimensions) || strides.len() != dimensions {
            return Err(Refusal::MaskDimensions { shape: shape.into(), strides: strides.into() });
        }
        let mut mask = Mask { memory, kind, shape: [1; 4], strides: [0; 4] };
        mask.shape[4 - dimensions..].copy_from_slice(shape);
        mask.strides[4 - dimensions..].copy_from_slice(strides);
        Ok(mask)
    }

    /// Elements from the first to one past the last; `None` if no address can say.
    fn span(&self) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let last = last_element(self.shape, self.strides).filter(|&last| last < 1 << 60)?;
        Some(last + 1)
    }

    /// Bytes from the first element to one past the last.
    pub(crate) fn bytes(&self) -> usize {
        self.span().unwrap_or(0) * self.kind.bytes()
    }
}

/// Dropout: each probability is dropped with the same chance, and the others are divided by the share that is kept. The
/// log-sum-exp is that of all probabilities.
///
/// Which ones are dropped depends on seed, offset, batch entry, head, row and key alone, and is the same on every backend:
/// [`ffpa_kernels_gpu::dropout`] says how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The chance, at least 0 and below 1.
    pub rate: f32,
    /// The generator's key.
    pub seed: u64,
    /// Calls with one seed and different offsets are independent.
    pub offset: u32,
}

impl Dropout {
    /// What a kernel is told.
    ///
    /// # Errors
    /// [`Refusal::DropoutRate`].
    pub(crate) fn parameters(&self) -> Result<abi::Dropout, Refusal> {
        if !(0.0..1.0).contains(&self.rate) {
            return Err(Refusal::DropoutRate { rate: self.rate });
        }
        let range = (1_u64 << 32) as f64;
        // A float below 1 times 2^32 stays below it.
        let threshold = (f64::from(self.rate) * range).round() as u32;
        let kept = 1.0 - f64::from(threshold) / range;
        let (seed, scale) = ([self.seed as u32, (self.seed >> 32) as u32], (1.0 / kept) as f32);
        Ok(abi::Dropout { seed, offset: self.offset, threshold, scale })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_the_last_of_four() {
        let data = [true; 12];
        let mask = Mask::new(&data, &[3, 4]).expect("two dimensions");
        assert_eq!((mask.shape, mask.strides), ([1, 1, 3, 4], [0, 0, 4, 1]));
        let mask = Mask::new(&data, &[2, 1, 1, 6]).expect("four dimensions");
        assert_eq!((mask.shape, mask.strides, mask.bytes()), ([2, 1, 1, 6], [6, 6, 6, 1], 12));
        assert!(matches!(Mask::new(&data, &[12]), Err(Refusal::MaskDimensions { .. })));
        assert!(matches!(Mask::new(&data, &[1, 1, 1, 3, 4]), Err(Refusal::MaskDimensions { .. })));
    }

    #[test]
    fn elements_beyond_the_slice_are_refused() {
        let data = [0.0_f32; 11];
        let refusal = Mask::new(&data, &[3, 4]).unwrap_err();
        let (shape, strides) = ([1, 1, 3, 4], [0, 0, 4, 1]);
        assert_eq!(refusal, Refusal::MaskTooShort { shape, strides, needed: 12, len: 11 });
        assert!(Mask::strided(&data, &[100, 4], &[0, 1]).is_ok());
        assert!(Mask::strided(&data, &[3, 4], &[usize::MAX, 1]).is_err());
    }

    #[test]
    fn rates_become_thresholds() {
        let parameters = |rate| Dropout { rate, seed: 0x0123_4567_89AB_CDEF, offset: 7 }.parameters();
        let half = parameters(0.5).expect("a rate");
        assert_eq!((half.threshold, half.scale, half.offset), (1 << 31, 2.0, 7));
        assert_eq!(half.seed, [0x89AB_CDEF, 0x0123_4567]);
        assert_eq!(parameters(0.0).expect("a rate").threshold, 0);
        assert_eq!(parameters(1.0_f32.next_down()).expect("a rate").threshold, u32::MAX - 255);
        for rate in [1.0, -0.1, f32::NAN, f32::INFINITY] {
            assert!(matches!(parameters(rate), Err(Refusal::DropoutRate { .. })), "{rate}");
        }
    }
}
