//! A mask's elements in memory, and what they say.

use ffpa::{Mask, Refusal, bf16, f16};

/// The elements of a mask.
pub enum Elements {
    Bool(Vec<bool>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    F32(Vec<f32>),
}

impl Elements {
    /// The mask of this shape.
    pub fn view(&self, shape: &[usize]) -> Result<Mask<'_>, Refusal> {
        match self {
            Elements::Bool(data) => Mask::new(data, shape),
            Elements::F16(data) => Mask::new(data, shape),
            Elements::Bf16(data) => Mask::new(data, shape),
            Elements::F32(data) => Mask::new(data, shape),
        }
    }

    /// What an element adds to a score; minus infinity hides.
    fn term(&self, i: usize) -> f64 {
        match self {
            Elements::Bool(data) if data[i] => 0.0,
            Elements::Bool(_) => f64::NEG_INFINITY,
            Elements::F16(data) => data[i].to_f64(),
            Elements::Bf16(data) => data[i].to_f64(),
            Elements::F32(data) => data[i].into(),
        }
    }

    /// What a mask of this shape adds to each of the scores `[batch, heads, rows, keys]`, dimensions of size 1 repeated.
    pub fn terms(&self, shape: &[usize], [batch, heads, rows, keys]: [usize; 4]) -> Vec<f64> {
        let sizes = [vec![1; 4 - shape.len()], shape.to_vec()].concat();
        let place = |index: [usize; 4]| {
            let step =
                |place: usize, (i, &size): (usize, &usize)| place * size + if size == 1 { 0 } else { i };
            index.into_iter().zip(&sizes).fold(0, step)
        };
        (0..batch * heads * rows * keys)
            .map(|i| [i / keys / rows / heads, i / keys / rows % heads, i / keys % rows, i % keys])
            .map(|index| self.term(place(index)))
            .collect()
    }
}

#[test]
fn missing_dimensions_and_those_of_size_1_repeat() {
    let rows = Elements::F32(vec![1.0, 2.0]);
    assert_eq!(rows.terms(&[2, 1], [1, 2, 2, 2]), [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0]);
    let heads = Elements::Bool(vec![true, false]);
    let hidden = f64::NEG_INFINITY;
    assert_eq!(heads.terms(&[1, 2, 1, 1], [2, 2, 1, 1]), [0.0, hidden, 0.0, hidden]);
}
