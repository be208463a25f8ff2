//! The GPU kernels themselves, on the emulator.

use std::time::Instant;

use ffpa_emulator::{Buffer, Buffers, Launch, launch};
use ffpa_kernels_gpu::abi::Params;
use ffpa_kernels_gpu::catalog::emulate;
use ffpa_kernels_gpu::config::Arch;

use super::{Backend, BackendKind, HostTensors, Report, Tensors};
use crate::device::DeviceInfo;
use crate::error::Error;
use crate::options::Progress;
use crate::plan::Plan;

/// An emulated device of some architecture.
pub(crate) struct Emulator {
    device: DeviceInfo,
    seed: u64,
}

impl Emulator {
    pub(crate) fn new(arch: Arch, seed: u64) -> Self {
        Emulator { device: DeviceInfo::of_arch(arch), seed }
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
        let HostTensors { q, k, v, o, lse } = tensors.host(BackendKind::Emulator)?;
        let mut params = plan.params;
        let mut buffers = vec![
            Buffer::read_only("q", q),
            Buffer::read_only("k", k),
            Buffer::read_only("v", v),
            Buffer::read_write("out", o),
        ];
        let matrices = [&mut params.q, &mut params.k, &mut params.v, &mut params.o];
        for (matrices, buffer) in matrices.into_iter().zip(&buffers) {
            matrices.base = buffer.address();
        }
        if let Some(lse) = lse {
            let buffer = Buffer::read_write("lse", bytemuck::cast_slice_mut(lse));
            params.lse = buffer.address();
            buffers.push(buffer);
        }
        self.launch(plan, &params, &Buffers(buffers), progress)
    }
}

impl Emulator {
    fn launch(
        &self,
        plan: &Plan,
        params: &Params,
        buffers: &Buffers<'_>,
        progress: Option<&Progress>,
    ) -> Result<Report, Error> {
        let kernel = plan.kernel;
        let report = progress.map(|progress| {
            let total = plan.grid as usize;
            move |done: u32| progress(done as usize, total)
        });
        let shape = Launch {
            grid: plan.grid,
            warps: kernel.warps,
            shared_bytes: kernel.shared_bytes,
            seed: self.seed,
            progress: report.as_ref().map(|f| f as &(dyn Fn(u32) + Sync)),
        };
        let start = Instant::now();
        let counters = launch(&shape, buffers, |warp| {
            // SAFETY: the emulator checks every access against the launch's buffers and memory.
            let known = unsafe { emulate(kernel.name, warp, params) };
            assert!(known, "{} is not in the catalog", kernel.name);
        });
        let counters =
            counters.map_err(|fault| Error::Emulator { kernel: kernel.name, fault: Box::new(fault) })?;
        let elapsed = Some(start.elapsed());
        Ok(Report { counters: Some(counters), ..Report::new(plan, BackendKind::Emulator, elapsed) })
    }
}
