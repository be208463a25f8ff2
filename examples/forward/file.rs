//! Tensors from and to safetensors files.

use std::path::Path;

use ffpa::{Dtype, Element, Mask, Refusal, bf16, f16};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as FileDtype, TensorView};

use crate::Failure;
use crate::arguments::LayoutArgument;
use crate::elements::Elements;

/// Real activations, for calls without a file.
pub const SAMPLE: &[u8] = include_bytes!("../data/minilm_layer0.safetensors");
/// What stands before the sample's names.
pub const SAMPLE_PREFIX: &str = "layer0.";

/// Q, K and V of a file, unconverted.
pub struct Inputs<'a> {
    pub q: Input<'a>,
    pub k: Input<'a>,
    pub v: Input<'a>,
}

/// A mask of a file.
pub struct MaskInput {
    elements: Elements,
    /// As in the file.
    shape: Vec<usize>,
}

impl MaskInput {
    /// Finds the tensor `name` in a file's bytes.
    pub fn read(bytes: &[u8], name: &str) -> Result<Self, Failure> {
        let file =
            SafeTensors::deserialize(bytes).map_err(|e| format!("not a whole safetensors file: {e}"))?;
        let view = tensor(&file, name)?;
        let bytes = view.data();
        let elements = match view.dtype() {
            FileDtype::BOOL | FileDtype::U8 => Elements::Bool(bytes.iter().map(|&byte| byte != 0).collect()),
            FileDtype::F16 => Elements::F16(pairs(bytes).map(f16::from_bits).collect()),
            FileDtype::BF16 => Elements::Bf16(pairs(bytes).map(bf16::from_bits).collect()),
            FileDtype::F32 => Elements::F32(fours(bytes).collect()),
            other => {
                return Err(format!("mask {name} holds {other:?}; bool, f16, bf16 and f32 are known").into());
            }
        };
        Ok(MaskInput { elements, shape: view.shape().to_vec() })
    }

    /// As the library takes it.
    pub fn view(&self) -> Result<Mask<'_>, Refusal> {
        self.elements.view(&self.shape)
    }

    /// What is added to each of the scores `[batch, heads, rows, keys]`; minus infinity hides.
    pub fn terms(&self, scores: [usize; 4]) -> Vec<f64> {
        self.elements.terms(&self.shape, scores)
    }
}

/// One tensor of a file.
pub struct Input<'a> {
    view: TensorView<'a>,
    /// `[batch, heads, length, head dim]`, whatever the order in the file.
    pub shape: [usize; 4],
}

impl<'a> Inputs<'a> {
    /// Finds `<prefix>q`, `<prefix>k` and `<prefix>v` in a file's bytes.
    pub fn read(bytes: &'a [u8], prefix: &str, layout: LayoutArgument) -> Result<Self, Failure> {
        let file =
            SafeTensors::deserialize(bytes).map_err(|e| format!("not a whole safetensors file: {e}"))?;
        let input = |name: &str| {
            let name = format!("{prefix}{name}");
            let view = tensor(&file, &name)?;
            let shape: [usize; 4] = view
                .shape()
                .try_into()
                .map_err(|_| format!("{name} has {} dimensions, not 4", view.shape().len()))?;
            if !matches!(view.dtype(), FileDtype::F16 | FileDtype::BF16 | FileDtype::F32) {
                return Err(format!("{name} holds {:?}; f16, bf16 and f32 are known", view.dtype()));
            }
            Ok(Input { view, shape: logical(shape, layout) })
        };
        Ok(Inputs { q: input("q")?, k: input("k")?, v: input("v")? })
    }

    /// The type to compute in where the user names none.
    pub fn dtype(&self) -> Dtype {
        match self.q.view.dtype() {
            FileDtype::F16 => Dtype::F16,
            _ => Dtype::Bf16,
        }
    }
}

/// A tensor by its whole name.
fn tensor<'a>(file: &SafeTensors<'a>, name: &str) -> Result<TensorView<'a>, String> {
    file.tensor(name).map_err(|_| {
        let mut names: Vec<&str> = file.names().into_iter().collect();
        names.sort_unstable();
        format!("the file has no tensor {name}; it has {}", names.join(", "))
    })
}

/// Batch, heads, length, head dim from a file's order, or back.
fn logical([a, b, c, d]: [usize; 4], layout: LayoutArgument) -> [usize; 4] {
    match layout {
        LayoutArgument::Bhnd => [a, b, c, d],
        LayoutArgument::Bnhd => [a, c, b, d],
    }
}

impl Input<'_> {
    /// The elements, in the file's order.
    pub fn elements<T: Element>(&self) -> Vec<T> {
        let bytes = self.view.data();
        let wide: Vec<f32> = match self.view.dtype() {
            FileDtype::F16 => pairs(bytes).map(|bits| f16::from_bits(bits).to_f32()).collect(),
            FileDtype::BF16 => pairs(bytes).map(|bits| bf16::from_bits(bits).to_f32()).collect(),
            _ => fours(bytes).collect(),
        };
        let mut elements = vec![T::zeroed(); wide.len()];
        T::round(&wide, &mut elements);
        elements
    }
}

fn pairs(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]))
}

fn fours(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// Writes `o` and `lse`.
pub fn write<T: Element>(
    path: &Path,
    o: &[T],
    lse: &[f32],
    shape: [usize; 4],
    layout: LayoutArgument,
) -> Result<(), Failure> {
    let dtype = match T::DTYPE {
        Dtype::F16 => FileDtype::F16,
        Dtype::Bf16 => FileDtype::BF16,
    };
    let o = TensorView::new(dtype, logical(shape, layout).to_vec(), bytemuck::cast_slice(o))?;
    let lse = TensorView::new(FileDtype::F32, shape[..3].to_vec(), bytemuck::cast_slice(lse))?;
    safetensors::serialize_to_file([("o", o), ("lse", lse)], None, path)
        .map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    Ok(())
}
