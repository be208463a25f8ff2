//! Merging results over disjoint sets of keys, as engines need that spread a context over devices or caches.

use ffpa_kernels_gpu::abi::{CombineParams, Matrices};
use ffpa_kernels_gpu::catalog::PartElement;

use crate::backend::{DeviceParts, HostParts, PartTensors, Report};
use crate::build_info::BuildInfo;
use crate::combination::Combination;
use crate::element::Element;
use crate::engine::Engine;
use crate::error::Error;
use crate::forward::OutputFor;
use crate::plan::check_alignment;
use crate::problem::{operand, same_shape};
use crate::refusal::Refusal;
use crate::tensor::{Lse, LseRef, Memory, MemoryMut, TensorMut, TensorRef};

/// An attention result over some of the keys.
#[derive(Clone, Copy, Debug)]
pub struct Partial<'a, T> {
    /// The output, normalised over these keys: `[batch, heads, rows, head dim]`.
    pub o: TensorRef<'a, T>,
    /// Its log-sum-exp.
    pub lse: LseRef<'a>,
}

/// Merges attention results over disjoint sets of keys into the result over all of them: with `L_i` a part's log-sum-exp
/// and `O_i` its output, `L = ln sum exp(L_i)` and `O = sum exp(L_i - L) O_i`.
///
/// A part whose rows saw no key (log-sum-exp minus infinity) does not count, whatever its output holds. All parts have the
/// shape of `out` and the same strides; in device memory they also lie at equal distances, as any two do. On device memory
/// the call returns when the work is started, on the engine's stream.
///
/// # Errors
/// A [`Refusal`] for parts that do not fit together, [`Error::FamilyUnavailable`] without a kernel for the device.
pub fn merge_lse<T: Element>(
    engine: &Engine,
    parts: &[Partial<'_, T>],
    out: &mut impl OutputFor<T, Element = T>,
) -> Result<Report, Error> {
    let (o, lse) = out.parts();
    let combination = combination(engine, parts, &o, lse.as_ref())?;
    engine.backend.combine(&combination, tensors(parts, o, lse)?)
}

/// Checks a call and says how it will run.
fn combination<T: Element>(
    engine: &Engine,
    parts: &[Partial<'_, T>],
    o: &TensorMut<'_, T>,
    lse: Option<&Lse<'_>>,
) -> Result<Combination, Error> {
    let refuse = |reason| Refusal::Parts { reason };
    let first = parts.first().ok_or(refuse("there are no parts to merge"))?;
    let shape @ [batch, heads, rows, head_dim] = o.layout.shape;
    if head_dim == 0 || !head_dim.is_multiple_of(8) {
        return Err(Refusal::HeadDimNotMultiple { head_dim, multiple: 8 }.into());
    }
    o.layout.check_disjoint()?;
    let all_rows = batch.checked_mul(heads).and_then(|n| n.checked_mul(rows));
    let limit = u32::MAX as usize;
    let too_many = Refusal::TooManyRows { tensor: "out", rows: all_rows.unwrap_or(usize::MAX), limit };
    let all_rows = all_rows.filter(|&rows| rows <= limit).ok_or(too_many)?;
    let on_device = o.memory.is_device();
    let check_lse = |device: bool, len: Option<usize>| match len {
        _ if device != on_device => {
            Err(refuse("parts, output and log-sum-exps must lie in one kind of memory"))
        }
        Some(len) if len != all_rows => Err(Refusal::LseLength { needed: all_rows, len }),
        _ => Ok(()),
    };
    match lse.map(|lse| &lse.memory) {
        Some(MemoryMut::Host(data)) => check_lse(false, Some(data.len()))?,
        Some(MemoryMut::Device(..)) => check_lse(true, None)?,
        None => {}
    }
    let operands = [
        operand("a part", &first.o.layout, first.o.memory.address(), T::DTYPE.bytes())?,
        operand("out", &o.layout, o.memory.address(), T::DTYPE.bytes())?,
    ];
    for part in parts {
        same_shape("a part", part.o.layout.shape, "out", shape, 0..4)?;
        match part.lse.memory {
            Memory::Host(data) => check_lse(false, Some(data.len()))?,
            Memory::Device(_) => check_lse(true, None)?,
        }
        if part.o.memory.is_device() != on_device {
            return Err(refuse("parts, output and log-sum-exps must lie in one kind of memory").into());
        }
        let part = operand("a part", &part.o.layout, part.o.memory.address(), T::DTYPE.bytes())?;
        if part.byte_strides != operands[0].byte_strides {
            return Err(refuse("parts must have the same strides").into());
        }
        check_alignment(&[part], on_device, engine.device())?;
    }
    check_alignment(&operands[1..], on_device, engine.device())?;
    let [first, o] = operands.map(|operand| {
        let [batch, head, row] = operand.byte_strides;
        let (batch_stride, head_stride, row_stride) = (batch as u64, head as u64, row as u32);
        Matrices { base: 0, batch_stride, head_stride, row_stride, rows: rows as u32 }
    });
    let params = CombineParams {
        first,
        part_stride: 0,
        first_reference: 0,
        first_sum: 0,
        row_part_stride: 0,
        o,
        lse: 0,
        parts: parts.len() as u32,
        heads: heads as u32,
        rows: all_rows as u32,
        head_dim: head_dim as u32,
        scale_log2: std::f32::consts::LOG2_E,
        lse_head_stride: rows as u32,
        shift: 0,
        score_factor: 1.0,
    };
    Combination::new(params, T::DTYPE, PartElement::Output, engine.device(), BuildInfo::here())
}

/// The tensors of a call that has been checked.
fn tensors<'a, T: Element>(
    parts: &[Partial<'a, T>],
    o: TensorMut<'a, T>,
    lse: Option<Lse<'a>>,
) -> Result<PartTensors<'a>, Refusal> {
    let o_data = match o.memory {
        MemoryMut::Host(data) => bytemuck::cast_slice_mut(data),
        MemoryMut::Device(o, _) => {
            let lse = lse.map_or(0, |lse| lse.memory.address());
            let (first, part_stride) = spacing(parts.iter().map(|part| part.o.memory.address()))?;
            let (first_lse, lse_part_stride) = spacing(parts.iter().map(|part| part.lse.memory.address()))?;
            let parts = DeviceParts { first, part_stride, first_lse, lse_part_stride, o, lse };
            return Ok(PartTensors::Device(parts));
        }
    };
    Ok(PartTensors::Host(HostParts {
        outputs: parts.iter().map(|part| bytemuck::cast_slice(part.o.memory.slice())).collect(),
        lses: parts.iter().map(|part| part.lse.memory.slice()).collect(),
        o: o_data,
        lse: lse.and_then(|lse| match lse.memory {
            MemoryMut::Host(data) => Some(data),
            MemoryMut::Device(..) => None,
        }),
    }))
}

/// The first address and what leads from each to the next, modulo 2^64.
fn spacing(mut addresses: impl Iterator<Item = u64> + Clone) -> Result<(u64, u64), Refusal> {
    let steps = addresses.clone().zip(addresses.clone().skip(1)).map(|(a, b)| b.wrapping_sub(a));
    let first = addresses.next().unwrap_or(0);
    let stride = steps.clone().next().unwrap_or(0);
    if steps.clone().any(|step| step != stride) {
        let reason = "parts in device memory must lie at equal distances: stack them, or merge two at a time";
        return Err(Refusal::Parts { reason });
    }
    Ok((first, stride))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_parts_have_a_spacing() {
        assert_eq!(spacing([100, 40].into_iter()), Ok((100, 60_u64.wrapping_neg())));
        assert_eq!(spacing([7].into_iter()), Ok((7, 0)));
        assert_eq!(spacing([1, 3, 5].into_iter()), Ok((1, 2)));
        assert!(spacing([1, 3, 6].into_iter()).is_err());
    }
}
