//! Masks of cases, and what they mean.

use ffpa::{Mask, MaskElement, Refusal, bf16, f16};

use super::cases::{MaskCase, MaskElementKind, MaskPattern};
use super::inputs::Normal;

/// A mask's elements in memory, and the term of every score that it stands for.
pub struct MaskData {
    elements: Elements,
    shape: Vec<usize>,
    /// `[batch, heads, rows, keys]`; minus infinity hides.
    pub terms: Vec<f64>,
}

enum Elements {
    Bool(Vec<bool>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    F32(Vec<f32>),
}

impl MaskData {
    /// For scores `[batch, heads, rows, keys]`.
    pub fn new(all: [usize; 4], mask: &MaskCase, seed: u64) -> Self {
        let dimensions = mask.dimensions.len();
        let sizes = mask.dimensions.chars().zip(&all[4 - dimensions..]);
        let shape: Vec<usize> = sizes.map(|(kind, &size)| if kind == '1' { 1 } else { size }).collect();
        let [b, h, n, k]: [usize; 4] =
            [vec![1; 4 - dimensions], shape.clone()].concat().try_into().expect("four dimensions");
        let mut normal = Normal::new(seed.wrapping_add(77));
        let values: Vec<f64> =
            (0..b * h * n * k).map(|i| value(mask.pattern, i / k % n, i % k, &mut normal)).collect();
        let (elements, values) = store(mask.element, &values);
        let repeated = |i: usize, size: usize| if size == 1 { 0 } else { i };
        let terms = (0..all.iter().product()).map(|i| {
            let (row, key) = (i / all[3] % all[2], i % all[3]);
            let (batch, head) = (i / all[3] / all[2] / all[1], i / all[3] / all[2] % all[1]);
            let [batch, head] = [repeated(batch, b), repeated(head, h)];
            values[((batch * h + head) * n + repeated(row, n)) * k + repeated(key, k)]
        });
        MaskData { terms: terms.collect(), elements, shape }
    }

    pub fn view(&self) -> Result<Mask<'_>, Refusal> {
        match &self.elements {
            Elements::Bool(data) => Mask::new(data, &self.shape),
            Elements::F16(data) => Mask::new(data, &self.shape),
            Elements::Bf16(data) => Mask::new(data, &self.shape),
            Elements::F32(data) => Mask::new(data, &self.shape),
        }
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

/// Elements of a kind, and what these say after their rounding.
fn store(kind: MaskElementKind, values: &[f64]) -> (Elements, Vec<f64>) {
    fn round<E: MaskElement>(
        values: &[f64],
        to: impl Fn(f64) -> E,
        from: impl Fn(E) -> f64,
    ) -> (Vec<E>, Vec<f64>) {
        let elements: Vec<E> = values.iter().map(|&x| to(x)).collect();
        let rounded = elements.iter().map(|&x| from(x)).collect();
        (elements, rounded)
    }
    match kind {
        MaskElementKind::Bool => {
            let visible = |x: f64| x > f64::NEG_INFINITY;
            let (elements, rounded) = round(values, visible, |v| if v { 0.0 } else { f64::NEG_INFINITY });
            (Elements::Bool(elements), rounded)
        }
        MaskElementKind::F16 => {
            let (elements, rounded) = round(values, f16::from_f64, f16::to_f64);
            (Elements::F16(elements), rounded)
        }
        MaskElementKind::Bf16 => {
            let (elements, rounded) = round(values, bf16::from_f64, bf16::to_f64);
            (Elements::Bf16(elements), rounded)
        }
        MaskElementKind::F32 => {
            let (elements, rounded) = round(values, |x| x as f32, f64::from);
            (Elements::F32(elements), rounded)
        }
    }
}
