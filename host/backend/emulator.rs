//! The GPU kernels themselves, on the emulator.

use std::time::Instant;

use ffpa_emulator::{Accumulators, Buffer, Buffers, Counters, Emu, Launch, TensorMap, launch};
use ffpa_kernels_gpu::abi::{self, CombineParams, Params, QuantizeParams};
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
        let HostTensors { q, k, v, mask, o, lse } = tensors.host(BackendKind::Emulator)?;
        let mut buffers = vec![
            Buffer::read_only("q", q),
            Buffer::read_only("k", k),
            Buffer::read_only("v", v),
            Buffer::read_write("out", o),
        ];
        let [q, k, v, o] = [0, 1, 2, 3].map(|i| buffers[i].address());
        let mut at = Addresses { q, k, v, o, ..Addresses::default() };
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
        let Placement { quantize, mut forward, combine } = plan.place(&at);
        let encode = |tensor: &Tensor| Ok::<_, Error>(encode(tensor));
        forward.maps = tensor_maps(plan.kernel, &plan.problem, &forward, encode)?;
        let start = Instant::now();
        if let (Some(params), Some(quantization)) = (quantize, &plan.quantization)
            && plan.grid > 0
        {
            for (kernel, grid) in quantization.statistics.into_iter().chain([quantization.rows]) {
                self.quantize(kernel, grid, &params, &buffers)?;
            }
        }
        let mut counters = self.forward(plan, &forward, &buffers, progress)?;
        if let (Some(params), Some(combination)) = (combine, &plan.combination) {
            counters = counters + self.combine_parts(combination, &params, &buffers)?;
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
    fn forward(
        &self,
        plan: &Plan,
        params: &Params,
        buffers: &Buffers<'_>,
        progress: Option<&Progress>,
    ) -> Result<Counters, Error> {
        let report = progress.map(|progress| {
            let total = plan.grid as usize;
            move |done: u32| progress(done as usize, total)
        });
        let report = report.as_ref().map(|f| f as &(dyn Fn(u32) + Sync));
        let kernel = plan.kernel.entry();
        self.launch(&kernel, plan.grid, buffers, report, |warp| {
            // SAFETY: the emulator checks every access against the launch's buffers and memory.
            unsafe { emulate(kernel.name, warp, params) }
        })
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
