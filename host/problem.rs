//! What is asked, without the data: validated here, once, and nowhere else.

use ffpa_kernels_gpu::abi::{self, MaskKind};
use ffpa_kernels_gpu::config::{Arithmetic, Dtype};
use ffpa_kernels_gpu::scales::BLOCK;

use crate::element::{Element, Input, InputType};
use crate::error::Error;
use crate::mask::Mask;
use crate::options::ForwardOptions;
use crate::precision::{Family, Precision};
use crate::refusal::Refusal;
use crate::scale::TensorScales;
use crate::tensor::{Layout, Lse, Memory, MemoryMut, TensorMut, TensorRef};

/// The largest head dim that any build supports.
pub(crate) const MAX_HEAD_DIM: usize = 1024;

/// Sequence lengths are counted in 32 bits, with room for a tile's rows beyond.
pub(crate) const MAX_ROWS: usize = (1 << 31) - 1;

/// A row stride in bytes is a 32-bit number.
const MAX_ROW_STRIDE: usize = u32::MAX as usize;

/// How one tensor lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Its name in messages.
    pub name: &'static str,
    /// Bytes from one batch entry, head and row to the next.
    pub byte_strides: [usize; 3],
    /// The largest power of two, up to 16, that divides its address.
    pub alignment: usize,
}

/// A forward call, validated: what a kernel is chosen by.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Problem {
    /// What the products are computed in.
    pub precision: Precision,
    /// Element type of Q, K and V.
    pub input: InputType,
    /// Element type of O.
    pub dtype: Dtype,
    /// Batch entries.
    pub batch: usize,
    /// Heads of Q and O.
    pub q_heads: usize,
    /// Heads of K and V.
    pub kv_heads: usize,
    /// Rows of Q and O that are computed.
    pub q_len: usize,
    /// The first of them in memory.
    pub first_row: usize,
    /// Rows of Q and O, and of the log-sum-exp, in memory.
    pub head_rows: usize,
    /// Rows of K and V.
    pub kv_len: usize,
    /// Columns of all four.
    pub head_dim: usize,
    /// Whether the causal mask applies.
    pub causal: bool,
    /// What scores are multiplied with.
    pub scale: f32,
    /// Whether the log-sum-exp is asked for.
    pub lse: bool,
    /// Whether the tensors lie in device memory.
    pub on_device: bool,
    /// Q, K, V and O in memory.
    pub operands: [Operand; 4],
    /// The scales of Q, K and V in memory.
    pub scales: [Option<ScaleOperand>; 3],
    /// The mask in memory.
    pub mask: Option<MaskOperand>,
    /// What drops probabilities, as kernels are told.
    pub dropout: Option<abi::Dropout>,
}

/// How the scales of a tensor lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleOperand {
    /// Bytes from one batch entry, head and block of rows to the next.
    pub byte_strides: [usize; 3],
    /// Rows of a block; all of a head's if they share one.
    pub rows: usize,
}

/// How a mask lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskOperand {
    /// What its elements are.
    pub kind: MaskKind,
    /// Bytes from one batch entry, query head, query row and key to the next; 0 where it repeats.
    pub byte_strides: [usize; 4],
}

impl Problem {
    /// Checks a call.
    ///
    /// # Errors
    /// A [`Refusal`] for what does not fit together, [`Error::HeadDimUnsupported`] beyond 1024.
    pub(crate) fn new<T: Input, O: Element>(
        q: &TensorRef<'_, T>,
        k: &TensorRef<'_, T>,
        v: &TensorRef<'_, T>,
        o: &TensorMut<'_, O>,
        lse: Option<&Lse<'_>>,
        options: &ForwardOptions<'_>,
    ) -> Result<Self, Error> {
        let [batch, q_heads, q_len, head_dim] = q.layout.shape;
        let [_, kv_heads, kv_len, _] = k.layout.shape;
        same_shape("q", [batch, q_heads, q_len, head_dim], "out", o.layout.shape, 0..4)?;
        same_shape("k", k.layout.shape, "v", v.layout.shape, 0..4)?;
        same_shape("q", q.layout.shape, "k", k.layout.shape, [0, 3])?;
        if q_heads != 0 && (kv_heads == 0 || !q_heads.is_multiple_of(kv_heads)) {
            return Err(Refusal::HeadsNotMultiple { q_heads, kv_heads }.into());
        }
        if head_dim > MAX_HEAD_DIM {
            return Err(Error::HeadDimUnsupported { head_dim, limit: MAX_HEAD_DIM });
        }
        // Rows are copied 16 bytes at a time.
        let multiple = 16 / T::TYPE.bytes();
        if head_dim == 0 || !head_dim.is_multiple_of(multiple) {
            return Err(Refusal::HeadDimNotMultiple { head_dim, multiple }.into());
        }
        for (tensor, rows) in [("q", q_len), ("k", kv_len)] {
            if rows > MAX_ROWS {
                return Err(Refusal::TooManyRows { tensor, rows, limit: MAX_ROWS }.into());
            }
        }
        o.layout.check_disjoint()?;
        let scale = options.scale.unwrap_or(1.0 / (head_dim as f32).sqrt());
        if !scale.is_finite() {
            return Err(Refusal::ScaleNotFinite { scale }.into());
        }
        for (tensor, scales) in [("q", q.scales), ("k", k.scales), ("v", v.scales)] {
            match (T::TYPE, scales) {
                (InputType::F8E4M3, None) => return Err(Refusal::ScalesMissing { tensor }.into()),
                (InputType::Sixteen(_), Some(_)) => {
                    return Err(Refusal::ScalesUnused { tensor, input: T::TYPE.name() }.into());
                }
                _ => {}
            }
        }
        if T::TYPE == InputType::F8E4M3 && options.precision != Precision::Native {
            return Err(Refusal::PrecisionFixed { input: T::TYPE.name() }.into());
        }
        let on_device = same_memory(q, k, v, o, lse, options.mask.as_ref())?;
        if let Some(Lse { memory: MemoryMut::Host(data) }) = lse {
            let needed = batch.saturating_mul(q_heads).saturating_mul(q_len);
            if data.len() != needed {
                return Err(Refusal::LseLength { needed, len: data.len() }.into());
            }
        }
        if let Some(Lse { memory: MemoryMut::Device(address, _) }) = lse {
            let (bytes, alignment) = ((*address % 4) as usize, 4);
            if bytes != 0 {
                return Err(
                    Refusal::Misaligned { tensor: "lse", what: "the address", bytes, alignment }.into()
                );
            }
        }
        let operands = [
            operand("q", &q.layout, q.memory.address(), T::TYPE.bytes())?,
            operand("k", &k.layout, k.memory.address(), T::TYPE.bytes())?,
            operand("v", &v.layout, v.memory.address(), T::TYPE.bytes())?,
            operand("out", &o.layout, o.memory.address(), O::DTYPE.bytes())?,
        ];
        let scales = [
            q.scales.map(|scales| scale_operand("q", &scales, q_len, 1)).transpose()?,
            k.scales.map(|scales| scale_operand("k", &scales, kv_len, BLOCK)).transpose()?,
            v.scales.map(|scales| scale_operand("v", &scales, kv_len, BLOCK)).transpose()?,
        ];
        let mask =
            options.mask.map(|mask| mask_operand(&mask, [batch, q_heads, q_len, kv_len])).transpose()?;
        let dropout = options.dropout.map(|dropout| dropout.parameters()).transpose()?;
        Ok(Problem {
            precision: options.precision,
            input: T::TYPE,
            dtype: O::DTYPE,
            batch,
            q_heads,
            kv_heads,
            q_len,
            first_row: 0,
            head_rows: q_len,
            kv_len,
            head_dim,
            causal: options.causal,
            scale,
            lse: lse.is_some(),
            on_device,
            operands,
            scales,
            mask,
            dropout: dropout.filter(|dropout| dropout.threshold > 0),
        })
    }

    /// A native problem on contiguous, aligned tensors: `[batch, q_heads, kv_heads, q_len, kv_len, head_dim]`. For planning
    /// without tensors; sizes are the caller's affair.
    pub fn contiguous(dtype: Dtype, sizes: [usize; 6]) -> Self {
        let [batch, q_heads, kv_heads, q_len, kv_len, head_dim] = sizes;
        let operand = |name, heads: usize, rows: usize| {
            let row = head_dim * dtype.bytes();
            Operand { name, byte_strides: [heads * rows * row, rows * row, row], alignment: 16 }
        };
        Problem {
            precision: Precision::Native,
            input: InputType::Sixteen(dtype),
            dtype,
            batch,
            q_heads,
            kv_heads,
            q_len,
            first_row: 0,
            head_rows: q_len,
            kv_len,
            head_dim,
            causal: false,
            scale: 1.0 / (head_dim as f32).sqrt(),
            lse: false,
            on_device: true,
            operands: [
                operand("q", q_heads, q_len),
                operand("k", kv_heads, kv_len),
                operand("v", kv_heads, kv_len),
                operand("out", q_heads, q_len),
            ],
            scales: [None; 3],
            mask: None,
            dropout: None,
        }
    }

    /// Bytes from the first element of Q, K, V and O to one past the last.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only the CUDA backend copies tensors"))]
    pub(crate) fn spans(&self) -> [usize; 4] {
        let (q, kv) = ([self.batch, self.q_heads, self.q_len], [self.batch, self.kv_heads, self.kv_len]);
        let shapes = [q, kv, kv, q];
        let (input, output) = (self.input.bytes(), self.dtype.bytes());
        let elements = [input, input, input, output];
        std::array::from_fn(|i| span(shapes[i], self.operands[i].byte_strides, self.head_dim * elements[i]))
    }

    /// Bytes from the first scale of Q, K and V to one past the last.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only the CUDA backend copies tensors"))]
    pub(crate) fn scale_spans(&self) -> [usize; 3] {
        let shapes = [[self.q_heads, self.q_len], [self.kv_heads, self.kv_len], [self.kv_heads, self.kv_len]];
        std::array::from_fn(|i| {
            let ([heads, length], Some(scales)) = (shapes[i], self.scales[i]) else { return 0 };
            span([self.batch, heads, length.div_ceil(scales.rows)], scales.byte_strides, size_of::<f32>())
        })
    }

    /// The family of kernels.
    pub(crate) fn family(&self) -> Family {
        match self.input {
            InputType::Sixteen(_) => self.precision.family(),
            InputType::F8E4M3 => Family::Fp8,
        }
    }

    /// What kernels compute in.
    pub(crate) fn arithmetic(&self) -> Arithmetic {
        match self.input {
            InputType::Sixteen(dtype) => self.precision.arithmetic(dtype),
            InputType::F8E4M3 => Arithmetic::E4m3,
        }
    }

    /// Floating-point operations: 4 per head dim column and pair of query and visible key.
    pub fn flops(&self) -> f64 {
        let (q, kv) = (self.q_len as f64, self.kv_len as f64);
        let pairs = if !self.causal {
            q * kv
        } else if q <= kv {
            q * (kv - q) + q * (q + 1.0) / 2.0
        } else {
            kv * (kv + 1.0) / 2.0
        };
        4.0 * self.batch as f64 * self.q_heads as f64 * self.head_dim as f64 * pairs
    }
}

/// Bytes from the first item of a tensor to one past the last, each of `item` bytes.
fn span(shape: [usize; 3], byte_strides: [usize; 3], item: usize) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    shape.into_iter().zip(byte_strides).map(|(size, stride)| (size - 1) * stride).sum::<usize>() + item
}

/// Refuses two shapes that differ in one of the dimensions.
pub(crate) fn same_shape(
    first: &'static str,
    a: [usize; 4],
    second: &'static str,
    b: [usize; 4],
    dimensions: impl IntoIterator<Item = usize>,
) -> Result<(), Refusal> {
    const NAMES: [&str; 4] = ["batch size", "number of heads", "sequence length", "head dim"];
    match dimensions.into_iter().find(|&i| a[i] != b[i]) {
        None => Ok(()),
        Some(i) => Err(Refusal::ShapeMismatch {
            dimension: NAMES[i],
            first,
            first_size: a[i],
            second,
            second_size: b[i],
        }),
    }
}

/// Whether all tensors lie in device memory; an error if only some do.
fn same_memory<T, O>(
    q: &TensorRef<'_, T>,
    k: &TensorRef<'_, T>,
    v: &TensorRef<'_, T>,
    o: &TensorMut<'_, O>,
    lse: Option<&Lse<'_>>,
    mask: Option<&Mask<'_>>,
) -> Result<bool, Refusal> {
    let mut others =
        vec![("k", k.memory.is_device()), ("v", v.memory.is_device()), ("out", o.memory.is_device())];
    for (name, scales) in [("q's scales", q.scales), ("k's scales", k.scales), ("v's scales", v.scales)] {
        others.extend(scales.map(|scales| (name, scales.memory.is_device())));
    }
    others.extend(lse.map(|lse| ("lse", lse.memory.is_device())));
    others.extend(mask.map(|mask| ("mask", mask.memory.is_device())));
    let on_device = q.memory.is_device();
    let name = |on_device| if on_device { "device" } else { "host" };
    match others.into_iter().find(|&(_, other)| other != on_device) {
        None => Ok(on_device),
        Some((second, other)) => Err(Refusal::MixedMemory {
            first: "q",
            first_memory: name(on_device),
            second,
            second_memory: name(other),
        }),
    }
}

fn mask_operand(mask: &Mask<'_>, scores: [usize; 4]) -> Result<MaskOperand, Refusal> {
    const NAMES: [&str; 4] = ["batch size", "number of heads", "number of rows", "number of keys"];
    let bytes = mask.kind.bytes();
    let mut byte_strides = [0; 4];
    for i in 0..4 {
        let (size, expected) = (mask.shape[i], scores[i]);
        if size != 1 && size != expected {
            return Err(Refusal::MaskShape { dimension: NAMES[i], size, expected });
        }
        // Where there is one element, or one score, no step is ever made.
        if size > 1 {
            byte_strides[i] = mask.strides[i].saturating_mul(bytes);
        }
    }
    for stride in [byte_strides[2], byte_strides[3]] {
        if stride > MAX_ROW_STRIDE {
            return Err(Refusal::RowStrideTooLarge { tensor: "mask", bytes: stride, limit: MAX_ROW_STRIDE });
        }
    }
    if let Memory::Device(address) = mask.memory {
        let (remains, alignment) = ((address % bytes as u64) as usize, bytes);
        if remains != 0 {
            return Err(Refusal::Misaligned {
                tensor: "mask",
                what: "the address",
                bytes: remains,
                alignment,
            });
        }
    }
    Ok(MaskOperand { kind: mask.kind, byte_strides })
}

/// How the scales of a tensor of `length` rows, in blocks of a multiple of `block`, lie in memory.
fn scale_operand(
    tensor: &'static str,
    scales: &TensorScales<'_>,
    length: usize,
    block: usize,
) -> Result<ScaleOperand, Refusal> {
    let rows = scales.rows.min(length.max(1));
    if !rows.is_multiple_of(block) && rows < length {
        return Err(Refusal::ScaleRows { tensor, rows, block, length });
    }
    if let Memory::Device(address) = scales.memory
        && !address.is_multiple_of(4)
    {
        let (bytes, alignment) = ((address % 4) as usize, 4);
        return Err(Refusal::Misaligned { tensor, what: "the scales' address", bytes, alignment });
    }
    let byte_strides = scales.strides.map(|stride| stride.saturating_mul(size_of::<f32>()));
    if byte_strides[2] > MAX_ROW_STRIDE {
        return Err(Refusal::RowStrideTooLarge { tensor, bytes: byte_strides[2], limit: MAX_ROW_STRIDE });
    }
    Ok(ScaleOperand { byte_strides, rows })
}

/// How a tensor at `address`, of elements of `size` bytes, lies in memory.
pub(crate) fn operand(
    name: &'static str,
    layout: &Layout,
    address: u64,
    size: usize,
) -> Result<Operand, Refusal> {
    let bytes = |stride: usize| {
        let overflow = Refusal::Overflow { shape: layout.shape, strides: layout.strides };
        stride.checked_mul(size).ok_or(overflow)
    };
    // The stride of a dimension that is never stepped along means nothing.
    let empty = layout.shape.contains(&0);
    let stride = |i: usize| if layout.shape[i] > 1 && !empty { bytes(layout.strides[i]) } else { Ok(0) };
    let byte_strides = [stride(0)?, stride(1)?, stride(2)?];
    if byte_strides[2] > MAX_ROW_STRIDE {
        return Err(Refusal::RowStrideTooLarge {
            tensor: name,
            bytes: byte_strides[2],
            limit: MAX_ROW_STRIDE,
        });
    }
    // Nobody reads from where nothing is.
    let alignment = if empty { 16 } else { 1 << address.trailing_zeros().min(4) };
    Ok(Operand { name, byte_strides, alignment })
}
