//! Merging results over parts of the keys.

use bytemuck::{cast_slice, cast_slice_mut};
use ffpa_kernels_gpu::abi::{CombineParams, Matrices};
use rayon::prelude::*;

use super::Shared;
use crate::backend::HostParts;
use crate::element::Element;

/// Merges parts, row by row.
pub fn combine<T: Element>(params: &CombineParams, parts: HostParts<'_>) {
    let HostParts { outputs, lses, o, lse } = parts;
    let outputs: Vec<&[T]> = outputs.into_iter().map(cast_slice).collect();
    let output = Shared(cast_slice_mut::<u8, T>(o).as_mut_ptr());
    let lse = lse.map(|lse| Shared(lse.as_mut_ptr()));
    let columns = params.head_dim as usize;
    (0..params.rows as usize).into_par_iter().for_each_init(
        || (vec![0.0_f32; columns], vec![0.0_f32; columns], vec![T::zeroed(); columns]),
        |(sum, wide, rounded), row| {
            let maximum = lses.iter().map(|lse| lse[row]).fold(f32::NEG_INFINITY, f32::max);
            let mut weights = 0.0;
            sum.fill(0.0);
            for (values, lse) in outputs.iter().zip(&lses) {
                // A part without visible keys may hold anything.
                if lse[row] == f32::NEG_INFINITY {
                    continue;
                }
                let weight = (lse[row] - maximum).exp();
                weights += weight;
                T::widen(&values[element::<T>(&params.first, params, row)..][..columns], wide);
                sum.iter_mut().zip(wide.iter()).for_each(|(sum, x)| *sum += weight * x);
            }
            let seen = weights != 0.0;
            sum.iter_mut().for_each(|x| *x = if seen { *x / weights } else { 0.0 });
            T::round(sum, rounded);
            // SAFETY: the tensor was checked to hold its layout and not to overlap; each row is one task's.
            unsafe { output.write(element::<T>(&params.o, params, row), rounded) };
            if let Some(lse) = &lse {
                let value = if seen { maximum + weights.ln() } else { f32::NEG_INFINITY };
                // SAFETY: the slice was checked to hold every row; each is one task's.
                unsafe { lse.write(row, &[value]) };
            }
        },
    );
}

/// Number of a row's first element, the row counted over all batch entries and heads.
fn element<T>(matrices: &Matrices, params: &CombineParams, row: usize) -> usize {
    let (rows, heads) = (matrices.rows as usize, params.heads as usize);
    let (head, row) = (row / rows, row % rows);
    let offset = head / heads * matrices.batch_stride as usize
        + head % heads * matrices.head_stride as usize
        + row * matrices.row_stride as usize;
    offset / size_of::<T>()
}
