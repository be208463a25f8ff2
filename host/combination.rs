//! Dividing the keys among CTAs, and what brings their results together (FlashDecoding).
//!
//! With few query tiles most of a device is idle while each walks over all keys. So the keys are divided into parts, each
//! CTA leaves the normalised output, references and sums of its own, and a second kernel combines them.

use ffpa_kernels_gpu::abi::{CombineParams, Matrices, Params, Parts};
use ffpa_kernels_gpu::catalog::{Combine, Kernel, PartElement};
use ffpa_kernels_gpu::config::Dtype;

use crate::build_info::BuildInfo;
use crate::device::DeviceInfo;
use crate::error::Error;
use crate::precision::Family;

/// Tiles of keys below which a part is not worth a second kernel.
const LEAST_TILES: usize = 4;

/// Parts at most: each row's are combined one after the other.
const MOST_PARTS: usize = 128;

/// How keys are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Parts; 1 if they are not divided.
    pub count: usize,
    /// Keys of each but the last.
    pub keys: usize,
}

impl Division {
    /// As few parts as fill the device nearly as well as any number does.
    ///
    /// `tiles` CTAs times the number of parts run in waves of as many as the device holds; what counts is how full they are
    /// together (FlashAttention's rule for its number of splits: 85 % of the best).
    pub fn of(tiles: usize, keys: usize, kernel: &Kernel, device: &DeviceInfo) -> Self {
        // A CTA takes another 1024 bytes of shared memory (CUDA programming guide, "Compute capabilities").
        let held = (device.shared_bytes + 1024) / (kernel.shared_bytes + 1024);
        let slots = device.multiprocessors as usize * kernel.min_blocks.min(held);
        let key_tiles = keys.div_ceil(kernel.keys);
        let most = (key_tiles / LEAST_TILES).min(MOST_PARTS);
        if tiles == 0 || most <= 1 || 5 * tiles >= 4 * slots {
            return Division { count: 1, keys };
        }
        // Parts are whole tiles, so some numbers of parts cannot be.
        let keys = |count: usize| key_tiles.div_ceil(count) * kernel.keys;
        let possible = (1..=most).filter(|&count| key_tiles.div_ceil(key_tiles.div_ceil(count)) == count);
        let fill = |count: usize| {
            let ctas = tiles * count;
            ctas as f64 / (ctas.div_ceil(slots) * slots) as f64
        };
        let best = possible.clone().map(fill).fold(0.0, f64::max);
        let count = possible.clone().find(|&count| fill(count) >= 0.85 * best).unwrap_or(1);
        Division { count, keys: keys(count) }
    }

    /// What the kernel is told, its matrices having `rows` rows in all; addresses 0.
    pub fn parts(&self, rows: usize) -> Parts {
        match self.count {
            1 => Parts::NONE,
            count => {
                let (rows, count, keys) = (rows as u64, count as u32, self.keys as u32);
                Parts { rows, count, keys, ..Parts::NONE }
            }
        }
    }
}

/// A launch of a combining kernel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Combination {
    /// The kernel.
    pub kernel: &'static Combine,
    /// Its parameters, all addresses 0.
    pub params: CombineParams,
    /// CTAs.
    pub grid: u32,
}

impl Combination {
    /// A launch with these parameters.
    pub(crate) fn new(
        params: CombineParams,
        dtype: Dtype,
        parts: PartElement,
        device: &DeviceInfo,
        build: &BuildInfo,
    ) -> Result<Self, Error> {
        let nearness = |combine: &&'static Combine| device.nearness(combine.arch);
        let runs = |combine: &&&'static Combine| {
            combine.dtype == dtype && combine.parts == parts && nearness(combine).is_some()
        };
        let kernel = build.combines.iter().filter(runs).min_by_key(|combine| nearness(combine));
        let missing = || Error::FamilyUnavailable {
            family: Family::Native,
            reason: format!("this build has no combining kernel for {}", device.name),
        };
        let kernel = *kernel.ok_or_else(missing)?;
        Ok(Combination { kernel, params, grid: params.rows.div_ceil(Combine::ROWS as u32) })
    }

    /// For what a forward kernel with these parameters leaves.
    pub(crate) fn of_parts(
        forward: &Params,
        dtype: Dtype,
        device: &DeviceInfo,
        build: &BuildInfo,
    ) -> Result<Self, Error> {
        let row = 4 * forward.head_dim;
        let (head, rows) = (row as u64 * forward.q.rows as u64, forward.parts.rows);
        let params = CombineParams {
            first: Matrices {
                base: 0,
                batch_stride: head * forward.q_heads as u64,
                head_stride: head,
                row_stride: row,
                rows: forward.q.rows,
            },
            part_stride: rows * row as u64,
            first_reference: 0,
            first_sum: 0,
            row_part_stride: 4 * rows,
            o: forward.o,
            lse: 0,
            parts: forward.parts.count,
            heads: forward.q_heads,
            rows: rows as u32,
            head_dim: forward.head_dim,
            scale_log2: forward.scale_log2,
            lse_head_stride: forward.lse_head_stride,
            shift: 0,
            score_factor: forward.score_factor,
        };
        Self::new(params, dtype, PartElement::Single, device, build)
    }

    /// Bytes of all parts' outputs.
    pub(crate) fn output_bytes(&self) -> usize {
        self.params.parts as usize * self.params.part_stride as usize
    }

    /// Bytes of all parts' references, or sums.
    fn row_bytes(&self) -> usize {
        self.params.parts as usize * self.params.row_part_stride as usize
    }

    /// Bytes of all parts' outputs and, behind them, references and sums.
    pub(crate) fn workspace_bytes(&self) -> usize {
        self.output_bytes() + 2 * self.row_bytes()
    }

    /// Writes the addresses of a workspace into the parameters of both kernels; O, its log-sum-exp and what references lack are
    /// the forward kernel's, which is not to add that to references of parts.
    #[cfg_attr(
        not(any(feature = "emulator", feature = "cuda")),
        allow(dead_code, reason = "the cpu backend does not divide keys")
    )]
    pub(crate) fn place(&self, workspace: u64, forward: &mut Params) -> CombineParams {
        let mut params = self.params;
        let reference = workspace + self.output_bytes() as u64;
        let sum = reference + self.row_bytes() as u64;
        (forward.parts.o, forward.parts.reference, forward.parts.sum) = (workspace, reference, sum);
        (params.first.base, params.first_reference, params.first_sum) = (workspace, reference, sum);
        (params.o.base, params.lse) = (forward.o.base, forward.lse);
        params.shift = std::mem::take(&mut forward.scales.q_shift);
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ffpa_kernels_gpu::config::Arch;

    fn division(tiles: usize, keys: usize) -> Division {
        let device = DeviceInfo { multiprocessors: 132, ..DeviceInfo::of_arch(Arch::Sm90a) };
        let kernel = BuildInfo::current().kernels.into_iter().find(|k| k.keys == 64 && k.min_blocks == 2);
        Division::of(tiles, keys, kernel.expect("a kernel"), &device)
    }

    #[test]
    fn a_full_device_divides_nothing() {
        assert_eq!(division(212, 1 << 20).count, 1);
        assert_eq!(division(0, 1 << 20).count, 1);
    }

    #[test]
    fn an_empty_one_is_filled() {
        // 264 slots: 4 parts of 64 tiles fill 256 of them.
        assert_eq!(division(64, 32768), Division { count: 4, keys: 8192 });
        // One wave of 29 parts fills 0.88; a last, fuller one is not worth more parts.
        assert_eq!(division(8, 32768).count, 29);
        // Parts have at least 4 tiles of keys.
        assert_eq!(division(1, 1024), Division { count: 4, keys: 256 });
        assert_eq!(division(1, 448).count, 1);
    }

    #[test]
    fn parts_cover_the_keys_and_none_is_empty() {
        for keys in [512, 513, 5000, 32768, 99_999] {
            for tiles in [1, 3, 8, 50, 100] {
                let Division { count, keys: each } = division(tiles, keys);
                assert!(count * each >= keys && (count - 1) * each < keys, "{tiles} {keys}");
            }
        }
    }
}
