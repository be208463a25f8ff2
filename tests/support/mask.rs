//! Masks of cases, and what they mean.

use ffpa::{Mask, Refusal, bf16, f16};

use super::cases::{MaskCase, MaskElementKind, MaskPattern};
use super::elements::Elements;
use super::inputs::Normal;

/// A mask's elements in memory, and the term of every score that it stands for.
pub struct MaskData {
    elements: Elements,
    shape: Vec<usize>,
    /// `[batch, heads, rows, keys]`; minus infinity hides.
    pub terms: Vec<f64>,
}

impl MaskData {
    /// For scores `[batch, heads, rows, keys]`.
    pub fn new(all: [usize; 4], mask: &MaskCase, seed: u64) -> Self {
        let dimensions = mask.dimensions.len();
        let sizes = mask.dimensions.chars().zip(&all[4 - dimensions..]);
        let shape: Vec<usize> = sizes.map(|(kind, &size)| if kind == '1' { 1 } else { size }).collect();
        let (rows, keys) = (shape[dimensions - 2], shape[dimensions - 1]);
        let mut normal = Normal::new(seed.wrapping_add(77));
        let values: Vec<f64> = (0..shape.iter().product())
            .map(|i: usize| value(mask.pattern, i / keys % rows, i % keys, &mut normal))
            .collect();
        let elements = store(mask.element, &values);
        MaskData { terms: elements.terms(&shape, all), elements, shape }
    }

    pub fn view(&self) -> Result<Mask<'_>, Refusal> {
        self.elements.view(&self.shape)
    }
}

/// The element for a row and a key, exactly.
fn value(pattern: MaskPattern, row: usize, key: usize, normal: &mut Normal) -> f64 {
    let x = normal.sample();
    let hidden = match pattern {
        MaskPattern::Random => x > 0.5,
        MaskPattern::First => key < 150,
        MaskPattern::Last => key >= 50,
        MaskPattern::Middle => (60..200).contains(&key),
        MaskPattern::Rows => row % 2 == 1 || row < 20,
        MaskPattern::Least => return f64::from(f32::MIN),
    };
    if hidden { f64::NEG_INFINITY } else { 2.0 * x }
}

/// Values as elements of a kind.
fn store(kind: MaskElementKind, values: &[f64]) -> Elements {
    let values = values.iter();
    match kind {
        MaskElementKind::Bool => Elements::Bool(values.map(|&x| x > f64::NEG_INFINITY).collect()),
        MaskElementKind::F16 => Elements::F16(values.map(|&x| f16::from_f64(x)).collect()),
        MaskElementKind::Bf16 => Elements::Bf16(values.map(|&x| bf16::from_f64(x)).collect()),
        MaskElementKind::F32 => Elements::F32(values.map(|&x| x as f32).collect()),
    }
}
