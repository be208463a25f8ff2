//! The kernels on a CUDA device.
//!
//! One module per kernel, loaded from the embedded PTX when it is first wanted: the driver's compiler takes a moment per
//! kernel, and keeps its results on disk. Tensor maps are encoded for tensors that have not come before, and kept in host
//! memory. After that a call on device memory is a launch: nothing is allocated on the device, nothing is waited for but other
//! calls' locks, one while it looks up its tensor maps, and one while it starts work that shares the engine's workspace.

mod device;
pub(crate) mod driver;
mod launch;
mod memory;
mod tensor_map;

use std::collections::HashMap;
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ffpa_kernels_gpu::catalog::{Entry, entries};

use self::device::Context;
use self::driver::{Pointer, call};
use self::launch::{Pass, launch, start};
use self::memory::{Loan, Pool, Timer, Workspaces, download, upload, upload_at};
use self::tensor_map::MapCache;
use super::{Backend, BackendKind, HostParts, HostTensors, PartTensors, Report, Tensors};
use crate::build_info::BuildInfo;
use crate::combination::Combination;
use crate::device::DeviceInfo;
use crate::error::Error;
use crate::images;
use crate::options::Progress;
use crate::placement::Addresses;
use crate::plan::Plan;
use crate::select::check_device;

/// A loaded kernel.
#[derive(Clone, Copy)]
struct Function {
    module: Pointer,
    entry: Pointer,
}

// SAFETY: functions may be launched from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// A stream of this backend's own.
struct Stream(Pointer);

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

/// A device, opened.
pub(crate) struct Cuda {
    context: Context,
    device: DeviceInfo,
    stream: Stream,
    /// By name.
    functions: HashMap<&'static str, OnceLock<Function>>,
    /// Held while a kernel is loaded.
    loading: Mutex<()>,
    pool: Pool,
    workspaces: Workspaces,
    maps: MapCache,
}

impl Cuda {
    pub(crate) fn open(ordinal: u32) -> Result<Arc<Self>, Error> {
        let (context, device) = device::open(ordinal)?;
        check_device(&device, BuildInfo::here())?;
        let mut stream = null_mut();
        {
            let _current = context.enter()?;
            // SAFETY: the context is current.
            unsafe { call!(cuStreamCreate(&mut stream, driver::NON_BLOCKING))? };
        }
        Ok(Arc::new(Cuda {
            context,
            device,
            stream: Stream(stream),
            functions: entries().map(|entry| (entry.name, OnceLock::new())).collect(),
            loading: Mutex::new(()),
            pool: Pool::default(),
            workspaces: Workspaces::default(),
            maps: MapCache::default(),
        }))
    }

    /// The loaded kernel. The context is current.
    fn function(&self, kernel: &Entry) -> Result<Pointer, Error> {
        let damaged = Error::DamagedImage { kernel: kernel.name };
        let slot = self.functions.get(kernel.name).ok_or(damaged.clone())?;
        if let Some(function) = slot.get() {
            return Ok(function.entry);
        }
        let _loading = self.loading.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(function) = slot.get() {
            return Ok(function.entry);
        }
        let image = CString::new(images::ptx(kernel.name)?).map_err(|_| damaged.clone())?;
        let name = CString::new(kernel.name).map_err(|_| damaged)?;
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the image and the name are C strings; the module lives as long as the context.
        unsafe {
            call!(cuModuleLoadData(&mut module, image.as_ptr().cast()))?;
            call!(cuModuleGetFunction(&mut function, module, name.as_ptr()))?;
            let bytes = kernel.shared_bytes as i32;
            call!(cuFuncSetAttribute(function, driver::MAX_DYNAMIC_SHARED_BYTES, bytes))?;
        }
        tracing::debug!(kernel = kernel.name, "loaded");
        Ok(slot.get_or_init(|| Function { module, entry: function }).entry)
    }

    /// The kernels of a plan's passes, loaded. The context is current.
    fn passes<'p>(&self, plan: &'p Plan) -> Result<Vec<Pass<'p>>, Error> {
        let load = |entry: Option<Entry>| entry.map_or(Ok(null_mut()), |entry| self.function(&entry));
        let pass = |plan: &'p Plan| {
            let launches = plan.quantization.iter().flat_map(|quantization| &quantization.launches);
            Ok(Pass {
                plan,
                quantize: launches
                    .map(|(kernel, _)| self.function(&kernel.entry()))
                    .collect::<Result<_, _>>()?,
                forward: self.function(&plan.kernel.entry())?,
                combine: load(plan.combination.as_ref().map(|c| c.kernel.entry()))?,
            })
        };
        plan.passes().map(pass).collect()
    }

    /// Runs on tensors in host memory: up, compute, down.
    fn run_staged(&self, plan: &Plan, tensors: HostTensors<'_>) -> Result<Report, Error> {
        let [q, k, v, o] = plan.problem.spans();
        let (q, k, v) = (&tensors.q[..q], &tensors.k[..k], &tensors.v[..v]);
        let o = &mut tensors.o[..o];
        let lse: &mut [u8] = tensors.lse.map_or(&mut [], |lse| bytemuck::cast_slice_mut(lse));

        let mask = tensors.mask.unwrap_or(&[]);
        let spans = plan.problem.scale_spans();
        let scales = |i: usize| &bytemuck::cast_slice::<f32, u8>(tensors.scales[i])[..spans[i]];
        let [q_scales, k_scales, v_scales] = [0, 1, 2].map(scales);

        let inputs = [q, k, v, mask, q_scales, k_scales, v_scales];
        let sizes = inputs.iter().map(|input| input.len()).chain([o.len(), lse.len(), plan.workspace_bytes]);
        let blocks = sizes.map(|bytes| self.pool.take(bytes)).collect::<Result<Vec<_>, Error>>()?;
        // Whatever happens from here on, the blocks go back only when the device is done with them.
        let result = self.compute_staged(plan, inputs, o, lse, &blocks);
        Ok(Report::new(plan, BackendKind::Cuda, Some(self.elapsed(result)?)))
    }

    /// Waits for what was started on the engine's stream, and says how long it took; also if starting failed half-way.
    fn elapsed(&self, started: Result<Timer, Error>) -> Result<Duration, Error> {
        // SAFETY: the stream is live.
        let done = unsafe { call!(cuStreamSynchronize(self.stream.0)) };
        let timer = started?;
        done?;
        timer.elapsed()
    }

    /// Starts the copies and the kernel; the caller synchronises.
    fn compute_staged(
        &self,
        plan: &Plan,
        inputs: [&[u8]; 7],
        o: &mut [u8],
        lse: &mut [u8],
        blocks: &[Loan<'_>],
    ) -> Result<Timer, Error> {
        let stream = self.stream.0;
        // The output goes up too, so that what lies between its rows comes down as it was.
        for (block, bytes) in blocks.iter().zip(inputs.into_iter().chain([&*o])) {
            upload(block, bytes, stream)?;
        }
        let [q, k, v, mask, q_scales, k_scales, v_scales, o_block, lse_block, workspace] = blocks else {
            unreachable!("run_staged takes ten blocks");
        };
        let scales = [q_scales, k_scales, v_scales];
        let scale = |i: usize| if plan.problem.scales[i].is_some() { scales[i].address() } else { 0 };
        let addresses = Addresses {
            q: q.address(),
            k: k.address(),
            v: v.address(),
            scales: [0, 1, 2].map(scale),
            mask: mask.address(),
            o: o_block.address(),
            lse: if lse.is_empty() { 0 } else { lse_block.address() },
            workspace: workspace.address(),
        };
        let passes = self.passes(plan)?;
        let timer = Timer::start(stream)?;
        launch(&passes, &addresses, &self.maps, stream)?;
        timer.stop(stream)?;
        download(o, o_block, stream)?;
        download(lse, lse_block, stream)?;
        Ok(timer)
    }

    /// Combines parts in host memory: up, compute, down.
    fn combine_staged(&self, combination: &Combination, parts: HostParts<'_>) -> Result<Report, Error> {
        let HostParts { outputs, lses, o, lse } = parts;
        let lse: &mut [u8] = lse.map_or(&mut [], |lse| bytemuck::cast_slice_mut(lse));
        let span = outputs.iter().map(|part| part.len()).max().unwrap_or(0).next_multiple_of(16);
        let lse_span = 4 * combination.params.rows as usize;
        let sizes = [span * outputs.len(), lse_span * lses.len(), o.len(), lse.len()];
        let blocks =
            sizes.into_iter().map(|bytes| self.pool.take(bytes)).collect::<Result<Vec<_>, Error>>()?;
        let stream = self.stream.0;
        let mut compute = || {
            for (i, (output, lse)) in outputs.iter().zip(&lses).enumerate() {
                upload_at(&blocks[0], i * span, output, stream)?;
                upload_at(&blocks[1], i * lse_span, bytemuck::cast_slice(lse), stream)?;
            }
            // The output goes up too, so that what lies between its rows comes down as it was.
            upload(&blocks[2], o, stream)?;
            let mut params = combination.params;
            (params.first.base, params.part_stride) = (blocks[0].address(), span as u64);
            (params.first_reference, params.row_part_stride) = (blocks[1].address(), lse_span as u64);
            params.o.base = blocks[2].address();
            params.lse = if lse.is_empty() { 0 } else { blocks[3].address() };
            let entry = combination.kernel.entry();
            let function = self.function(&entry)?;
            let timer = Timer::start(stream)?;
            start(function, &entry, combination.grid, params, stream)?;
            timer.stop(stream)?;
            download(o, &blocks[2], stream)?;
            download(lse, &blocks[3], stream)?;
            Ok(timer)
        };
        // Whatever happens, the blocks go back only when the device is done with them.
        let elapsed = Some(self.elapsed(compute())?);
        Ok(Report::of_combination(combination, BackendKind::Cuda, &self.device, elapsed))
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // Others may keep the primary context alive, so what is ours must go by itself. Errors have nowhere to go.
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: the stream and the modules are live, and no call is using them any more.
        unsafe {
            let _ = call!(cuStreamSynchronize(self.stream.0));
            let _ = self.pool.clear();
            let _ = self.workspaces.clear();
            let _ = call!(cuStreamDestroy_v2(self.stream.0));
            for function in self.functions.values().filter_map(OnceLock::get) {
                let _ = call!(cuModuleUnload(function.module));
            }
        }
    }
}

impl Backend for Cuda {
    fn kind(&self) -> BackendKind {
        BackendKind::Cuda
    }

    fn device(&self) -> &DeviceInfo {
        &self.device
    }

    fn run(&self, plan: &Plan, tensors: Tensors<'_>, _progress: Option<&Progress>) -> Result<Report, Error> {
        let _current = self.context.enter()?;
        match tensors {
            Tensors::Host(tensors) => self.run_staged(plan, tensors),
            Tensors::Device(tensors) => {
                let stream = tensors.stream.map_or(self.stream.0, |stream| stream as Pointer);
                let passes = self.passes(plan)?;
                let start = |workspace| {
                    let addresses = Addresses { workspace, ..tensors.addresses };
                    launch(&passes, &addresses, &self.maps, stream)
                };
                match (plan.workspace_bytes, tensors.addresses.workspace) {
                    (0, _) => start(0)?,
                    (bytes, 0) => self.workspaces.with(stream, bytes, start)?,
                    (_, workspace) => start(workspace)?,
                }
                Ok(Report::new(plan, BackendKind::Cuda, None))
            }
        }
    }

    fn combine(&self, combination: &Combination, parts: PartTensors<'_>) -> Result<Report, Error> {
        let _current = self.context.enter()?;
        match parts {
            PartTensors::Host(parts) => self.combine_staged(combination, parts),
            PartTensors::Device(parts) => {
                let mut params = combination.params;
                (params.first.base, params.part_stride) = (parts.first, parts.part_stride);
                (params.first_reference, params.row_part_stride) = (parts.first_lse, parts.lse_part_stride);
                (params.o.base, params.lse) = (parts.o, parts.lse);
                let entry = combination.kernel.entry();
                start(self.function(&entry)?, &entry, combination.grid, params, self.stream.0)?;
                Ok(Report::of_combination(combination, BackendKind::Cuda, &self.device, None))
            }
        }
    }

    fn synchronize(&self) -> Result<(), Error> {
        let _current = self.context.enter()?;
        // SAFETY: the stream is live.
        unsafe { call!(cuStreamSynchronize(self.stream.0)) }
    }
}
