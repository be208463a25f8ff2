//! Results over parts of the keys, brought together by their log-sum-exps (FlashDecoding; Milakov and Gimelshein 2018,
//! section 3.1): with `L_i` a part's log-sum-exp and `O_i` its output, `L = ln sum exp(L_i)` and
//! `O = sum exp(L_i - L) O_i`.
//!
//! In general a part has a reference score `m_i` and a sum `l_i` relative to it, of which `L_i` is the logarithm; differences
//! of references are taken first, so that they are exact where scores are large.
//!
//! A warp has a row. Each lane has 8 columns, or 16 bytes of the output, of every 256.

use core::f32::consts::LN_2;

use cuda_std::Warp;

use crate::abi::{CombineParams, Matrices};
use crate::format::Element;
use crate::schedule::divide;

/// Parts whose loads are in flight together.
const BATCH: u32 = 4;

/// An element of the parts' outputs.
pub trait Part {
    /// Bytes of an element.
    const BYTES: u32;

    /// Eight of them, widened, where `mask` holds; zeros elsewhere.
    ///
    /// # Safety
    /// Where `mask` holds, they lie at this 16-byte aligned address in a live buffer that nothing writes to.
    unsafe fn load<W: Warp>(warp: W, address: W::U64, mask: W::Bool) -> [W::F32; 8];
}

/// Parts in f32.
pub enum Single {}

impl Part for Single {
    const BYTES: u32 = 4;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load<W: Warp>(warp: W, address: W::U64, mask: W::Bool) -> [W::F32; 8] {
        // SAFETY: the caller's.
        let words = unsafe { [warp.load_global_x4(address, mask), warp.load_global_x4(address + 16, mask)] };
        let [[a, b, c, d], [e, f, g, h]] = words;
        [a, b, c, d, e, f, g, h].map(|word| warp.float_from_bits(word))
    }
}

impl<F: Element> Part for F {
    const BYTES: u32 = 2;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[track_caller]
    unsafe fn load<W: Warp>(warp: W, address: W::U64, mask: W::Bool) -> [W::F32; 8] {
        // SAFETY: the caller's.
        let words = unsafe { warp.load_global_x4(address, mask) };
        let [[a, b], [c, d], [e, f], [g, h]] = words.map(|word| F::unpack(warp, word));
        [a, b, c, d, e, f, g, h]
    }
}

/// One warp's row, the `row`th of all batch entries and heads; without effect beyond the last.
///
/// # Safety
/// `params` describes live buffers, as [`CombineParams`] documents, and the parts are complete.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
pub unsafe fn combine<W: Warp, P: Part, F: Element>(warp: W, params: &CombineParams, row: u32) {
    if row >= params.rows {
        return;
    }
    let (first, o) = (row_address(&params.first, params, row), row_address(&params.o, params, row));
    // SAFETY: here and below, the caller's; what does not exist is neither read nor written.
    let maximum = unsafe { largest_reference(warp, params, row) };
    let mut sum = warp.splat_f32(0.0);
    let mut column = 0;
    while column < params.head_dim {
        let lane_column = (warp.lane_id() << 3) + column;
        let valid = warp.less(lane_column, warp.splat(params.head_dim));
        let place = warp.mul_wide(lane_column, P::BYTES);
        let mut output = [warp.splat_f32(0.0); 8];
        sum = warp.splat_f32(0.0);
        let mut part = 0;
        while part < params.parts {
            for part in part..part + BATCH {
                let address = first.wrapping_add(params.part_stride.wrapping_mul(part as u64));
                // SAFETY: see above.
                let (reference, part_sum, values) = unsafe {
                    let reference = part_reference(warp, params, row, part);
                    let part_sum = part_sum(warp, params, row, part, reference);
                    (reference, part_sum, P::load(warp, place + address, valid & exists(warp, params, part)))
                };
                // A part without visible keys may hold anything.
                let empty = no_keys(warp, part_sum);
                let zero_if_empty = |x| warp.select_f32(empty, warp.splat_f32(0.0), x);
                let growth = warp.exp2((reference - maximum) * params.scale_log2);
                let weight = zero_if_empty(growth * part_sum);
                sum = sum + weight;
                for c in 0..8 {
                    output[c] = warp.fma(weight, zero_if_empty(values[c]), output[c]);
                }
            }
            part += BATCH;
        }
        let factor = warp.select_f32(no_keys(warp, sum), warp.splat_f32(0.0), warp.reciprocal(sum));
        let [a, b, c, d, e, f, g, h] = output.map(|x| x * factor);
        let words = [[a, b], [c, d], [e, f], [g, h]].map(|[low, high]| F::pack(warp, low, high));
        // SAFETY: see above.
        unsafe { warp.store_global_x4(warp.mul_wide(lane_column, 2) + o, words, valid) };
        column += 256;
    }
    if params.lse != 0 {
        // By the natural scale, so that a mask's least float does not overflow.
        let natural = warp.splat_f32(params.scale_log2 * LN_2);
        // SAFETY: see above.
        let reference = maximum + unsafe { shift(warp, params, row) };
        let lse = warp.fma(reference, natural, warp.log2(sum) * LN_2);
        let lse = warp.select_f32(no_keys(warp, sum), warp.splat_f32(f32::NEG_INFINITY), lse);
        let first_lane = warp.less(warp.lane_id(), warp.splat(1));
        let (head, row) = divide(row, params.o.rows);
        let base = params.lse + 4 * head as u64 * params.lse_head_stride as u64;
        // SAFETY: see above.
        unsafe { warp.store_global_f32(row_value(warp, base, row), lse, first_lane) };
    }
}

/// Whether no key was seen: else the largest probability, 1 relative to its reference, is in the sum.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn no_keys<W: Warp>(warp: W, sum: W::F32) -> W::Bool {
    warp.less_f32(sum, warp.splat_f32(0.5))
}

/// Whether there is such a part.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn exists<W: Warp>(warp: W, params: &CombineParams, part: u32) -> W::Bool {
    warp.less(warp.splat(part), warp.splat(params.parts))
}

/// The largest reference of the row's parts.
///
/// # Safety
/// As [`combine`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
unsafe fn largest_reference<W: Warp>(warp: W, params: &CombineParams, row: u32) -> W::F32 {
    let mut maximum = warp.splat_f32(f32::NEG_INFINITY);
    let mut part = 0;
    while part < params.parts {
        for part in part..part + BATCH {
            // SAFETY: the caller's.
            maximum = warp.max(maximum, unsafe { part_reference(warp, params, row, part) });
        }
        part += BATCH;
    }
    maximum
}

/// A part's reference for the row; minus infinity if there is no such part.
///
/// # Safety
/// As [`combine`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
unsafe fn part_reference<W: Warp>(warp: W, params: &CombineParams, row: u32, part: u32) -> W::F32 {
    // SAFETY: the caller's.
    let value = unsafe { part_value(warp, params, params.first_reference, row, part) };
    warp.select_f32(exists(warp, params, part), value, warp.splat_f32(f32::NEG_INFINITY))
}

/// A part's sum for the row, relative to its reference; 0 if there is no such part.
///
/// # Safety
/// As [`combine`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
unsafe fn part_sum<W: Warp>(
    warp: W,
    params: &CombineParams,
    row: u32,
    part: u32,
    reference: W::F32,
) -> W::F32 {
    if params.first_sum == 0 {
        let seen = !warp.less_f32(reference, warp.splat_f32(f32::MIN));
        return warp.select_f32(seen, warp.splat_f32(1.0), warp.splat_f32(0.0));
    }
    // SAFETY: the caller's.
    unsafe { part_value(warp, params, params.first_sum, row, part) }
}

/// A part's float for the row, of those whose first part's begin at `base`; 0 if there is no such part.
///
/// # Safety
/// As [`combine`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
unsafe fn part_value<W: Warp>(warp: W, params: &CombineParams, base: u64, row: u32, part: u32) -> W::F32 {
    let base = base.wrapping_add(params.row_part_stride.wrapping_mul(part as u64));
    // SAFETY: the caller's; what does not exist is not read.
    let bits = unsafe { warp.load_global::<4>(row_value(warp, base, row), exists(warp, params, part)) };
    warp.float_from_bits(bits)
}

/// What the row's references lack.
///
/// # Safety
/// As [`combine`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[track_caller]
unsafe fn shift<W: Warp>(warp: W, params: &CombineParams, row: u32) -> W::F32 {
    let some = warp.less(warp.splat(0), warp.splat((params.shift != 0).into()));
    // SAFETY: the caller's.
    let shift = unsafe { warp.load_global::<4>(row_value(warp, params.shift, row), some) };
    warp.float_from_bits(shift) * params.score_factor
}

/// Address of a row's float.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn row_value<W: Warp>(warp: W, base: u64, row: u32) -> W::U64 {
    warp.mul_wide(warp.splat(row), 4) + base
}

/// Address of a row of a tensor, the `row`th of all batch entries and heads.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn row_address(matrices: &Matrices, params: &CombineParams, row: u32) -> u64 {
    let (head, row) = divide(row, matrices.rows);
    let (batch, head) = divide(head, params.heads);
    let offset = batch as u64 * matrices.batch_stride
        + head as u64 * matrices.head_stride
        + row as u64 * matrices.row_stride as u64;
    matrices.base + offset
}
