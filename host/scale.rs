//! What the numbers of a quantised tensor are multiplied with.

use crate::refusal::Refusal;
use crate::tensor::{Memory, last_element};

/// Scales of a tensor of eight-bit numbers, f32: a number of the tensor stands for itself times its scale.
///
/// The rows of a head may be divided into blocks that have a scale each. Of K and V these are whole blocks of 64 rows, or
/// all rows.
#[derive(Clone, Copy, Debug)]
pub struct Scales<'a> {
    memory: Memory<'a, f32>,
    shared: Shared,
}

/// What shares a scale.
#[derive(Clone, Copy, Debug)]
enum Shared {
    /// All of the tensor.
    Tensor,
    /// A head.
    Head,
    /// So many rows of a head.
    Block(usize),
    /// As `Block`, at these distances.
    Strided([usize; 3], usize),
}

impl<'a> Scales<'a> {
    /// One for the whole tensor.
    pub fn per_tensor(scale: &'a f32) -> Self {
        Scales { memory: Memory::Host(std::slice::from_ref(scale)), shared: Shared::Tensor }
    }

    /// One for each head: `[batch, heads]`.
    pub fn per_head(scales: &'a [f32]) -> Self {
        Scales { memory: Memory::Host(scales), shared: Shared::Head }
    }

    /// One for each `rows` rows of a head: `[batch, heads, length / rows, rounded up]`.
    pub fn per_block(scales: &'a [f32], rows: usize) -> Self {
        Scales { memory: Memory::Host(scales), shared: Shared::Block(rows) }
    }

    /// One for each `rows` rows of a head, in device memory; `strides` are the floats from one batch entry, head and block to
    /// the next. A stride of 0 repeats; with `rows` at least the tensor's length a head has one scale.
    ///
    /// # Safety
    /// `address` is that of floats so laid out on the engine's device, live and not written to until the call's work on the
    /// device is done.
    pub unsafe fn device(address: u64, strides: [usize; 3], rows: usize) -> Self {
        Scales { memory: Memory::Device(address), shared: Shared::Strided(strides, rows) }
    }

    /// Those of a tensor of this shape.
    pub(crate) fn of(self, shape: [usize; 4]) -> Result<TensorScales<'a>, Refusal> {
        let [batch, heads, length, _] = shape;
        let (strides, rows) = match self.shared {
            Shared::Tensor => ([0; 3], length),
            Shared::Head => ([heads, 1, 0], length),
            Shared::Block(rows) => {
                let blocks = length.div_ceil(rows.max(1));
                ([heads.saturating_mul(blocks), blocks, 1], rows)
            }
            Shared::Strided(strides, rows) => (strides, rows),
        };
        let scales = TensorScales { memory: self.memory, strides, rows: rows.max(1) };
        if let Memory::Host(data) = self.memory {
            let needed = scales.span([batch, heads, length]).unwrap_or(usize::MAX);
            if needed > data.len() {
                return Err(Refusal::ScalesTooShort { shape, rows, needed, len: data.len() });
            }
        }
        Ok(scales)
    }
}

/// The scales of a tensor of known shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorScales<'a> {
    pub memory: Memory<'a, f32>,
    /// Floats from one batch entry, head and block to the next.
    pub strides: [usize; 3],
    /// Rows of a block.
    pub rows: usize,
}

impl TensorScales<'_> {
    /// Floats from the first to one past the last, for a tensor of so many batch entries, heads and rows; `None` if no number
    /// says it.
    fn span(&self, [batch, heads, length]: [usize; 3]) -> Option<usize> {
        if [batch, heads, length].contains(&0) {
            return Some(0);
        }
        let [b, h, block] = self.strides;
        let last = last_element([batch, heads, length.div_ceil(self.rows), 1], [b, h, block, 1])?;
        last.checked_add(1)
    }
}
