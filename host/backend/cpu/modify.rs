//! What a call does to scores and probabilities besides the softmax: masks and dropout, row by row.

use bytemuck::pod_read_unaligned;
use ffpa_kernels_gpu::abi::{MaskKind, Params};
use ffpa_kernels_gpu::dropout::words;
use half::{bf16, f16};

/// The rows of one (batch, head) of a call.
#[derive(Clone, Copy)]
pub struct Modifier<'a> {
    pub params: &'a Params,
    /// The mask's elements.
    pub mask: Option<&'a [u8]>,
    pub batch: usize,
    pub head: usize,
}

impl Modifier<'_> {
    /// The row's place in its own head, which may be packed with others into one.
    pub fn row_in_head(&self, row: usize) -> usize {
        row % (self.params.q_len as usize).max(1)
    }

    /// Masks a row's scores, those of the keys from `first_key` on.
    pub fn mask(&self, row: usize, first_key: usize, scores: &mut [f32]) {
        let (Some(data), mask) = (self.mask, &self.params.mask) else { return };
        let (q_len, rows) = (self.params.q_len as usize, self.params.q.rows as usize);
        let head = self.head * (rows / q_len) + row / q_len;
        let offset = self.batch * mask.batch_stride as usize
            + head * mask.head_stride as usize
            + row % q_len * mask.row_stride as usize;
        for (i, score) in scores.iter_mut().enumerate() {
            let bytes = &data[offset + (first_key + i) * mask.key_stride as usize..][..mask.kind.bytes()];
            match mask.kind {
                MaskKind::None => {}
                MaskKind::Bool => *score = if bytes[0] != 0 { *score } else { f32::NEG_INFINITY },
                MaskKind::F16 => *score += pod_read_unaligned::<f16>(bytes).to_f32(),
                MaskKind::Bf16 => *score += pod_read_unaligned::<bf16>(bytes).to_f32(),
                MaskKind::F32 => *score += pod_read_unaligned::<f32>(bytes),
            }
        }
    }

    /// Drops some of a row's probabilities, those of the keys from `first_key` on, an even number.
    pub fn drop_out(&self, row: usize, first_key: usize, probabilities: &mut [f32]) {
        let dropout = &self.params.dropout;
        if dropout.threshold == 0 {
            return;
        }
        let head = (self.batch * self.params.q_heads as usize + self.head) as u32;
        let (upper, second) = (row & !8, row >> 3 & 1);
        for (i, pair) in probabilities.chunks_mut(2).enumerate() {
            let key = (first_key + 2 * i) as u32;
            let words = words(dropout.seed, dropout.offset, head, upper as u32, key);
            for (p, word) in pair.iter_mut().zip(&words[2 * second..]) {
                *p = if *word < dropout.threshold { 0.0 } else { *p };
            }
        }
    }
}
