//! The kernels on a CUDA device.
//!
//! One module per kernel, loaded from the embedded PTX when it is first wanted: the driver's compiler takes a moment per
//! kernel, and keeps its results on disk. After that a call is a launch: no allocation, no synchronisation, no lock.

mod device;
pub(crate) mod driver;
mod launch;
mod memory;

use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock};

use ffpa_kernels_gpu::abi::Matrices;
use ffpa_kernels_gpu::catalog::{CATALOG, Kernel};

use self::device::Context;
use self::driver::{Pointer, call};
use self::launch::launch;
use self::memory::{Loan, Pool, Timer, download, upload};
use super::{Backend, BackendKind, DeviceTensors, HostTensors, Report, Tensors};
use crate::build_info::BuildInfo;
use crate::device::DeviceInfo;
use crate::error::Error;
use crate::images;
use crate::options::Progress;
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
    /// By place in the catalog.
    functions: Vec<OnceLock<Function>>,
    /// Held while a kernel is loaded.
    loading: Mutex<()>,
    pool: Pool,
}

impl Cuda {
    pub(crate) fn open(ordinal: u32) -> Result<Arc<Self>, Error> {
        let (context, device) = device::open(ordinal)?;
        check_device(&device, &BuildInfo::current())?;
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
            functions: CATALOG.iter().map(|_| OnceLock::new()).collect(),
            loading: Mutex::new(()),
            pool: Pool::default(),
        }))
    }

    /// The loaded kernel. The context is current.
    fn function(&self, kernel: &'static Kernel) -> Result<Function, Error> {
        let damaged = Error::DamagedImage { kernel: kernel.name };
        let place = CATALOG.iter().position(|row| row.name == kernel.name);
        let slot = &self.functions[place.ok_or(damaged.clone())?];
        if let Some(function) = slot.get() {
            return Ok(*function);
        }
        let _loading = self.loading.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(function) = slot.get() {
            return Ok(*function);
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
        Ok(*slot.get_or_init(|| Function { module, entry: function }))
    }

    /// Runs on tensors in host memory: up, compute, down.
    fn run_staged(&self, plan: &Plan, tensors: HostTensors<'_>) -> Result<Report, Error> {
        let (problem, params, stream) = (&plan.problem, &plan.params, self.stream.0);
        let span =
            |matrices: &Matrices, heads: usize| matrices.span(problem.batch, heads, problem.head_dim * 2);
        let (q_heads, kv_heads) = (params.q_heads as usize, problem.kv_heads);
        let q = &tensors.q[..span(&params.q, q_heads)];
        let k = &tensors.k[..span(&params.k, kv_heads)];
        let v = &tensors.v[..span(&params.v, kv_heads)];
        let o = &mut tensors.o[..span(&params.o, q_heads)];
        let lse: &mut [u8] = tensors.lse.map_or(&mut [], |lse| bytemuck::cast_slice_mut(lse));

        let sizes = [q.len(), k.len(), v.len(), o.len(), lse.len()];
        let blocks =
            sizes.into_iter().map(|bytes| self.pool.take(bytes)).collect::<Result<Vec<_>, Error>>()?;
        // Whatever happens from here on, the blocks go back only when the device is done with them.
        let result = self.compute_staged(plan, [q, k, v], o, lse, &blocks);
        // SAFETY: the stream is live.
        let done = unsafe { call!(cuStreamSynchronize(stream)) };
        let timer = result?;
        done?;
        Ok(Report::new(plan, BackendKind::Cuda, Some(timer.elapsed()?)))
    }

    /// Starts the copies and the kernel; the caller synchronises.
    fn compute_staged(
        &self,
        plan: &Plan,
        inputs: [&[u8]; 3],
        o: &mut [u8],
        lse: &mut [u8],
        blocks: &[Loan<'_>],
    ) -> Result<Timer, Error> {
        let stream = self.stream.0;
        // The output goes up too, so that what lies between its rows comes down as it was.
        for (block, bytes) in blocks.iter().zip(inputs.into_iter().chain([&*o])) {
            upload(block, bytes, stream)?;
        }
        let [q, k, v, o_address, lse_address] = [0, 1, 2, 3, 4].map(|i: usize| blocks[i].address());
        let lse_address = if lse.is_empty() { 0 } else { lse_address };
        let timer = Timer::start(stream)?;
        let addresses = DeviceTensors { q, k, v, o: o_address, lse: lse_address, stream: None };
        launch(self.function(plan.kernel)?.entry, plan, &addresses, stream)?;
        timer.stop(stream)?;
        download(o, &blocks[3], stream)?;
        download(lse, &blocks[4], stream)?;
        Ok(timer)
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
            let _ = call!(cuStreamDestroy_v2(self.stream.0));
            for function in self.functions.iter().filter_map(OnceLock::get) {
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
                launch(self.function(plan.kernel)?.entry, plan, &tensors, stream)?;
                Ok(Report::new(plan, BackendKind::Cuda, None))
            }
        }
    }

    fn synchronize(&self) -> Result<(), Error> {
        let _current = self.context.enter()?;
        // SAFETY: the stream is live.
        unsafe { call!(cuStreamSynchronize(self.stream.0)) }
    }
}
