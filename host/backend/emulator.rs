//! The GPU kernels themselves, on the emulator.

use std::time::Instant;

use ffpa_emulator::{Accumulators, Buffer, Buffers, Counters, Emu, Launch, TensorMap, launch};
use ffpa_kernels_gpu::abi::{self, CombineParams, QuantizeParams};
use ffpa_kernels_gpu::catalog::{Entry, Quantize, emulate, emulate_combine, emulate_quantize};
use ffpa_kernels_gpu::config::Arch;

use super::{Backend, BackendKind, HostParts, HostTensors, PartTensors, Report, Tensors};
use crate::combination::Combination;
use crate::device::DeviceInfo;
use crate::error::Error;
use crate::options::Progress;
use crate::placement::{Addresses, Placement};
use crate::plan::Plan;
use crate::tensor_map::{Tensor, tensor_maps};

/// An emulated device of some architecture.
pub(crate) struct Emulator {
    device: DeviceInfo,
    accumulators: Accumulators,
    seed: u64,
}

impl Emulator {
    pub(crate) fn new(arch: Arch, seed: u64) -> Self {
        let accumulators = match arch {
            Arch::Sm89 => Accumulators::Truncated13,
            Arch::Sm90a | Arch::Sm120f => Accumulators::Full,
        };
        Emulator { device: DeviceInfo::of_arch(arch), accumulators, seed }
    }
}

impl Backend for Emulator {
    fn kind(&self) -> BackendKind {
        BackendKind::Emulator
    }

    fn device(&self) -> &DeviceInfo {
        &self.device
    }

    fn run(&self, plan: &Plan, tensors: Tensors<'_>, progress: Option<&Progress>) -> Result<Report, Error> {
        let HostTensors { q, k, v, scales, mask, o, lse } = tensors.host(BackendKind::Emulator)?;
        let mut buffers = vec![
            Buffer::read_only("q", q),
            Buffer::read_only("k", k),
            Buffer::read_only("v", v),
            Buffer::read_write("out", o),
        ];
        let [q, k, v, o] = [0, 1, 2, 3].map(|i| buffers[i].address());
        let mut at = Addresses { q, k, v, o, ..Addresses::default() };
        for (i, name) in ["q's scales", "k's scales", "v's scales"].into_iter().enumerate() {
            if scales[i].is_empty() {
                continue;
            }
            let buffer = Buffer::read_only(name, bytemuck::cast_slice(scales[i]));
            at.scales[i] = buffer.address();
            buffers.push(buffer);
        }
        if let Some(lse) = lse {
            let buffer = Buffer::read_write("lse", bytemuck::cast_slice_mut(lse));
            at.lse = buffer.address();
            buffers.push(buffer);
        }
        if let Some(mask) = mask {
            let buffer = Buffer::read_only("mask", mask);
            at.mask = buffer.address();
            buffers.push(buffer);
        }
        // As on a device, the workspace holds anything before the first launch.
        let mut workspace = vec![u128::MAX; plan.workspace_bytes.div_ceil(16)];
        let workspace = Buffer::read_write("workspace", bytemuck::cast_slice_mut(&mut workspace));
        at.workspace = workspace.address();
        buffers.push(workspace);
        let buffers = Buffers(buffers);
        let ctas = |pass: &Plan| pass.grid as usize;
        let (all, mut before) = (plan.passes().map(ctas).sum(), 0);
        let mut counters = Counters::default();
        let start = Instant::now();
        for pass in plan.passes() {
            let report = progress.map(|progress| move |done: u32| progress(before + done as usize, all));
            let report = report.as_ref().map(|f| f as &(dyn Fn(u32) + Sync));
            counters = counters + self.pass(pass, &at, &buffers, report)?;
            before += ctas(pass);
        }
        let elapsed = Some(start.elapsed());
        Ok(Report { counters: Some(counters), ..Report::new(plan, BackendKind::Emulator, elapsed) })
    }

    fn combine(&self, combination: &Combination, parts: PartTensors<'_>) -> Result<Report, Error> {
        let HostParts { outputs, lses, o, lse } = parts.host(BackendKind::Emulator)?;
        // On a device the parts would be uploaded one behind the other.
        let span = outputs.iter().map(|part| part.len()).max().unwrap_or(0).next_multiple_of(16);
        let mut stacked = vec![0_u128; span / 16 * outputs.len()];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut stacked);
        for (to, from) in bytes.chunks_mut(span.max(1)).zip(&outputs) {
            to[..from.len()].copy_from_slice(from);
        }
        let stacked_lse = lses.concat();
        let mut params = combination.params;
        let mut buffers = vec![
            Buffer::read_only("parts", bytes),
            Buffer::read_only("parts' lse", bytemuck::cast_slice(&stacked_lse)),
            Buffer::read_write("out", o),
        ];
        (params.first.base, params.part_stride) = (buffers[0].address(), span as u64);
        (params.first_reference, params.row_part_stride) = (buffers[1].address(), 4 * u64::from(params.rows));
        params.o.base = buffers[2].address();
        if let Some(lse) = lse {
            buffers.push(Buffer::read_write("lse", bytemuck::cast_slice_mut(lse)));
            params.lse = buffers[3].address();
        }
        let start = Instant::now();
        let counters = self.combine_parts(combination, &params, &Buffers(buffers))?;
        let elapsed = Some(start.elapsed());
        let report = Report::of_combination(combination, BackendKind::Emulator, &self.device, elapsed);
        Ok(Report { counters: Some(counters), ..report })
    }
}

/// A tensor map as the emulator reads it.
fn encode(tensor: &Tensor) -> abi::TensorMap {
    let &Tensor { base, sizes, byte_strides, box_sizes } = tensor;
    TensorMap { base, sizes, strides: byte_strides, box_sizes }.encode()
}

impl Emulator {
    /// Launches a plan's own kernels, not those of the early rows.
    fn pass(
        &self,
        plan: &Plan,
        at: &Addresses,
        buffers: &Buffers<'_>,
        progress: Option<&(dyn Fn(u32) + Sync)>,
    ) -> Result<Counters, Error> {
        let Placement { quantize, mut forward, combine } = plan.place(at);
        let encode = |tensor: &Tensor| Ok::<_, Error>(encode(tensor));
        forward.maps = tensor_maps(plan.kernel, &plan.problem, &forward, encode)?;
        if let (Some(params), Some(quantization)) = (quantize, &plan.quantization)
            && plan.grid > 0
        {
            for &(kernel, grid) in &quantization.launches {
                self.quantize(kernel, grid, &params, buffers)?;
            }
        }
        let kernel = plan.kernel.entry();
        let mut counters = self.launch(&kernel, plan.grid, buffers, progress, |warp| {
            // SAFETY: the emulator checks every access against the launch's buffers and memory.
            unsafe { emulate(kernel.name, warp, &forward) }
        })?;
        if let (Some(params), Some(combination)) = (combine, &plan.combination) {
            counters = counters + self.combine_parts(combination, &params, buffers)?;
        }
        Ok(counters)
    }

    /// What this costs is no part of a call's counters: those are the forward kernel's, and the combining one's.
    fn quantize(
        &self,
        kernel: &Quantize,
        grid: u32,
        params: &QuantizeParams,
        buffers: &Buffers<'_>,
    ) -> Result<Counters, Error> {
        let kernel = kernel.entry();
        self.launch(&kernel, grid, buffers, None, |warp| {
            // SAFETY: as above.
            unsafe { emulate_quantize(kernel.name, warp, params) }
        })
    }

    fn combine_parts(
        &self,
        combination: &Combination,
        params: &CombineParams,
        buffers: &Buffers<'_>,
    ) -> Result<Counters, Error> {
        let kernel = combination.kernel.entry();
        self.launch(&kernel, combination.grid, buffers, None, |warp| {
            // SAFETY: as above.
            unsafe { emulate_combine(kernel.name, warp, params) }
        })
    }

    /// Launches an entry; `run` runs one of its warps and says whether there is such an entry.
    fn launch(
        &self,
        kernel: &Entry,
        grid: u32,
        buffers: &Buffers<'_>,
        progress: Option<&(dyn Fn(u32) + Sync)>,
        run: impl Fn(Emu<'_>) -> bool + Sync,
    ) -> Result<Counters, Error> {
        let (warps, shared_bytes) = (kernel.threads / 32, kernel.shared_bytes);
        let (accumulators, seed) = (self.accumulators, self.seed);
        let shape = Launch { grid, warps, shared_bytes, seed, accumulators, progress };
        let counters = launch(&shape, buffers, |warp| {
            assert!(run(warp), "{} is not in the catalog", kernel.name);
        });
        counters.map_err(|fault| Error::Emulator { kernel: kernel.name, fault: Box::new(fault) })
    }
}

#[cfg(test)]
mod tests {
    use float8::F8E4M3;
    use half::{bf16, f16};

    use super::super::cpu::quantize::Quantized;
    use super::*;
    use crate::build_info::BuildInfo;
    use crate::element::Element;
    use crate::nvfp4::{E2m1x2, Ue4m3};
    use crate::plan::plan;
    use crate::precision::{Fp8, NvFp4, Precision, ScoreNumbers, ValueScales};
    use crate::problem::Problem;
    use crate::quantization::Quantization;
    use ffpa_kernels_gpu::abi::Params;
    use ffpa_kernels_gpu::catalog::QUANTIZES;
    use ffpa_kernels_gpu::config::{Arithmetic, Dtype};

    /// Numbers without pattern, some of them large.
    fn samples<T: Element>(count: usize, seed: u32) -> Vec<T> {
        let next =
            |i: usize| (i as u32 ^ seed).wrapping_mul(0x9E37_79B9).rotate_left(13).wrapping_mul(0x85EB_CA6B);
        let value = |bits: u32| (bits >> 8) as f32 / (1 << 23) as f32 - 1.0;
        let wide: Vec<f32> =
            (0..count).map(|i| value(next(i)) * if i % 97 == 0 { 9.0 } else { 1.5 }).collect();
        let mut samples = vec![T::zeroed(); count];
        T::round(&wide, &mut samples);
        samples
    }

    /// What rows hold.
    #[derive(Clone, Copy)]
    enum Numbers {
        E4m3,
        Int8,
        /// Scales of a step of 64 columns stand so many times.
        NvFp4(usize),
    }

    /// What bytes stand for: `count` of each row of `row_bytes`.
    fn decoded(bytes: &[u8], row_bytes: usize, count: usize, numbers: Numbers) -> Vec<f32> {
        let number = |row: &[u8], i: usize| match numbers {
            Numbers::E4m3 => F8E4M3::from_bits(row[i]).to_f32(),
            Numbers::Int8 => f32::from(row[i] as i8),
            Numbers::NvFp4(times) => {
                let (line, i) = (&row[i / 192 * 128..], i % 192);
                let scale = |copy: usize| Ue4m3::from_bits(line[4 * (i / 64 * times + copy) + i % 64 / 16]);
                assert!((1..times).all(|copy| scale(copy) == scale(0)));
                E2m1x2::from_bits(line[32 + i / 2]).to_f32()[i % 2] * scale(0).to_f32()
            }
        };
        bytes.chunks(row_bytes).flat_map(|row| (0..count).map(move |i| number(row, i))).collect()
    }

    /// What transposed values stand for: the tiles of a head, of so many rows and keys.
    fn transposed(bytes: &[u8], [rows, keys]: [usize; 2], [kv_len, d]: [usize; 2]) -> Vec<f32> {
        // Of 32 keys: first those whose numbers modulo 8 are 0, 1, then 2, 3 and so on, by ascending numbers.
        let mut order: Vec<usize> = (0..32).collect();
        order.sort_by_key(|key| (key % 8 / 2, *key));
        let row_bytes = 32 + keys / 2;
        let tiles = decoded(bytes, row_bytes, keys, Numbers::NvFp4(1));
        let mut values = vec![0.0; kv_len * d];
        for (place, value) in tiles.into_iter().enumerate() {
            let (tile, row, k) = (place / (rows * keys), place / keys % rows, place % keys);
            let key = tile * keys + k / 32 * 32 + order[k % 32];
            // Rows of 16 columns: those with even numbers, then the others.
            let column = row / 16 * 16 + row % 8 * 2 + row % 16 / 8;
            match key < kv_len && column < d {
                true => values[key * d + column] = value,
                false => assert_eq!(value, 0.0),
            }
        }
        values
    }

    /// Equal, but for the sign of zeros: integers have none.
    fn same(what: &str, got: impl Iterator<Item = f32>, want: &[f32]) {
        let bits = |x: f32| (x + 0.0).to_bits();
        let got: Vec<f32> = got.collect();
        assert_eq!(got.len(), want.len());
        let other = got.iter().zip(want).position(|(got, want)| bits(*got) != bits(*want));
        assert!(other.is_none(), "{what}: {other:?} is {:?}", other.map(|i| (got[i], want[i])));
    }

    /// Parameters of some forward kernel, in which addresses come.
    fn forward() -> Params {
        let problem = Problem::contiguous(Dtype::Bf16, [1, 1, 1, 1, 1, 64]);
        let emulator = Emulator::new(Arch::Sm89, 1);
        plan(&problem, emulator.device(), &BuildInfo::current()).expect("there is a kernel").params
    }

    /// On a device of so many multiprocessors: the fewer there are, the more blocks of rows a CTA has.
    fn check<T: Element>(precision: Precision, sizes: [usize; 6], multiprocessors: u32) {
        let [batch, q_heads, kv_heads, q_len, kv_len, d] = sizes;
        let mut problem = Problem::contiguous(T::DTYPE, sizes);
        problem.precision = precision;
        // Two ways of rounding to e2m1.
        let arch = if multiprocessors == 1 { Arch::Sm120f } else { Arch::Sm89 };
        let emulator = Emulator::new(arch, 1);
        // Whatever the build: there may be no forward kernel for what is quantised here.
        let build = BuildInfo { quantizes: QUANTIZES.iter().collect(), ..BuildInfo::current() };
        let device = DeviceInfo { multiprocessors, ..emulator.device().clone() };
        let tile = [d.next_multiple_of(64), if d <= 128 { 128 } else { 64 }];
        let quantization = Quantization::of(&problem, tile, &device, &build).expect("there is a kernel");
        let quantization = quantization.expect("it quantises");
        let q = samples::<T>(batch * q_heads * q_len * d, 1);
        let [k, v] = [2, 3].map(|seed| samples::<T>(batch * kv_heads * kv_len * d, seed));
        let mut workspace = vec![u128::MAX; quantization.bytes.div_ceil(16)];
        let (params, base) = {
            let tensors = [("q", &q), ("k", &k), ("v", &v)];
            let mut buffers: Vec<_> =
                tensors.map(|(name, data)| Buffer::read_only(name, bytemuck::cast_slice(data))).into();
            buffers.push(Buffer::read_write("workspace", bytemuck::cast_slice_mut(&mut workspace)));
            let [q, k, v, workspace] = [0, 1, 2, 3].map(|i| buffers[i].address());
            let mut forward = forward();
            (forward.q.base, forward.k.base, forward.v.base) = (q, k, v);
            let params = quantization.place(workspace, &mut forward);
            let buffers = Buffers(buffers);
            for &(kernel, grid) in &quantization.launches {
                emulator.quantize(kernel, grid, &params, &buffers).expect("it runs");
            }
            (params, workspace)
        };
        let bytes: &[u8] = bytemuck::cast_slice(&workspace);
        let at = |address: u64, count: usize| &bytes[(address - base) as usize..][..count];
        let floats = |address: u64, count: usize| -> Vec<f32> {
            bytemuck::cast_slice(at(address, 4 * count)).to_vec()
        };
        let row_bytes = params.row_bytes as usize;
        let (q_rows, kv_rows) = (batch * q_heads * q_len, batch * kv_heads * kv_len);
        let blocks = kv_len.div_ceil(64);
        let [of_q, of_k] = match problem.arithmetic() {
            Arithmetic::Int8 => [Numbers::Int8; 2],
            Arithmetic::NvFp4 => [Numbers::NvFp4(2), Numbers::NvFp4(1)],
            _ => [Numbers::E4m3; 2],
        };
        let want = Quantized::new::<T>(problem.arithmetic(), &quantization.params, [&q, &k, &v]);

        let scales = floats(params.q_scale, q_rows);
        let got = decoded(at(params.q8, q_rows * row_bytes), row_bytes, d, of_q);
        let got = got.iter().enumerate().map(|(i, x)| x * scales[i / d]);
        same("queries", got, &want.q);

        let scales = floats(params.k_scale, batch * kv_heads * blocks * 4);
        let got = decoded(at(params.k8, kv_rows * row_bytes), row_bytes, d, of_k);
        let scale =
            |row: usize| scales[(row / kv_len * blocks + row % kv_len / 64) * 4 + row % kv_len % 8 / 2];
        let got = got.iter().enumerate().map(|(i, x)| x * scale(i / d));
        same("keys", got, &want.k);

        let got = match of_k {
            Numbers::NvFp4(_) => {
                let [rows, keys] = tile;
                let head_bytes = kv_len.div_ceil(keys) * rows * (32 + keys / 2);
                let heads = at(params.v8, batch * kv_heads * head_bytes).chunks(head_bytes);
                heads.flat_map(|head| transposed(head, tile, [kv_len, d])).collect()
            }
            _ => decoded(at(params.v8, kv_rows * row_bytes), row_bytes, d, Numbers::E4m3),
        };
        let columns = batch * kv_heads * d;
        let by_columns = params.v_by_columns != 0;
        let scales = match by_columns {
            true => floats(params.v_columns, columns),
            false => floats(params.v_scale, batch * kv_heads * blocks),
        };
        let means = if params.smooth_v != 0 { floats(params.v_mean, columns) } else { vec![0.0; columns] };
        let got = got.iter().enumerate().map(|(i, x)| {
            let (row, column) = (i / d, i % d);
            let (head, row) = (row / kv_len, row % kv_len);
            match by_columns {
                true => x * scales[head * d + column] + means[head * d + column],
                false => x * scales[head * blocks + row / 64],
            }
        });
        same("values", got, &want.v);
    }

    #[test]
    fn kernels_and_cpu_quantise_to_the_same_bits() {
        let fp8 = Fp8::default();
        let recipes = [
            fp8,
            fp8.with_scores(ScoreNumbers::Int8).with_value_scales(ValueScales::Channel { smooth: true }),
            fp8.with_smooth_k(false).with_value_scales(ValueScales::Block).with_f16_sums(true),
        ];
        for recipe in recipes {
            for sizes in [
                [1, 2, 1, 70, 700, 128],
                [2, 2, 2, 33, 65, 72],
                [1, 1, 1, 1, 1300, 224],
                [1, 1, 1, 5, 3, 8],
                [1, 2, 1, 37, 190, 320],
                [1, 1, 1, 66, 530, 512],
                [1, 2, 2, 9, 75, 1000],
            ] {
                for multiprocessors in [1, 128] {
                    check::<bf16>(Precision::Fp8(recipe), sizes, multiprocessors);
                }
            }
        }
    }

    #[test]
    fn kernels_and_cpu_quantise_to_the_same_four_bits() {
        let nvfp4 = NvFp4::default();
        for recipe in [nvfp4, nvfp4.with_smooth_v(true), nvfp4.with_smooth_k(false)] {
            for sizes in [
                [1, 2, 1, 70, 700, 128],
                [2, 2, 2, 33, 65, 72],
                [1, 1, 1, 1, 1300, 256],
                [1, 1, 1, 5, 3, 8],
                [1, 2, 1, 37, 190, 200],
            ] {
                for multiprocessors in [1, 128] {
                    check::<bf16>(Precision::NvFp4(recipe), sizes, multiprocessors);
                    check::<f16>(Precision::NvFp4(recipe), sizes, multiprocessors);
                }
            }
        }
    }

    /// All columns together, and in blocks of 8 and of 32.
    #[test]
    fn kernels_and_cpu_rotate_to_the_same_bits() {
        for d in [8, 40, 64, 96, 128, 200, 256, 512, 1000, 1024] {
            for scores in [ScoreNumbers::E4m3, ScoreNumbers::Int8] {
                let recipe = Fp8::default().with_scores(scores).with_rotation(true);
                let rough = recipe.with_smooth_k(false).with_value_scales(ValueScales::Block);
                check::<f16>(Precision::Fp8(recipe), [1, 2, 1, 35, 70, d], 128);
                check::<bf16>(Precision::Fp8(rough), [1, 2, 2, 9, 130, d], 1);
            }
        }
    }
}
