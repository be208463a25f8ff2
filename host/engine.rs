//! Where calls run.

use std::fmt;
use std::sync::Arc;

use crate::backend::cpu::Cpu;
use crate::backend::{Backend, BackendKind};
use crate::device::DeviceInfo;
use crate::error::Error;

/// A backend on a device, ready to run calls. Cheap to clone, and usable from any thread.
#[derive(Clone)]
pub struct Engine {
    pub(crate) backend: Arc<dyn Backend>,
}

impl Engine {
    /// CUDA device 0 where this build has the feature and the machine a device that the kernels run on, else the host's
    /// cores.
    pub fn auto() -> Self {
        Self::cuda(0).unwrap_or_else(|error| {
            tracing::warn!(%error, "CUDA cannot be used; using the cpu backend");
            Self::cpu()
        })
    }

    /// The host's cores.
    pub fn cpu() -> Self {
        Engine { backend: Arc::new(Cpu::new()) }
    }

    /// The emulator, as a device of an architecture. Orders of execution are those of seed 0.
    #[cfg(feature = "emulator")]
    pub fn emulator(arch: crate::Arch) -> Self {
        Self::emulator_with_seed(arch, 0)
    }

    /// The emulator with another order of execution. Results do not depend on it, unless a kernel is wrong.
    #[cfg(feature = "emulator")]
    pub fn emulator_with_seed(arch: crate::Arch, seed: u64) -> Self {
        Engine { backend: Arc::new(crate::backend::emulator::Emulator::new(arch, seed)) }
    }

    /// CUDA device `ordinal`.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`] without the feature `cuda`, a driver or the device;
    /// [`Error::DeviceUnsupported`] if no compiled kernel runs on it.
    pub fn cuda(ordinal: u32) -> Result<Self, Error> {
        #[cfg(feature = "cuda")]
        return Ok(Engine { backend: crate::backend::cuda::Cuda::open(ordinal)? });
        #[cfg(not(feature = "cuda"))]
        Err(Error::BackendUnavailable {
            backend: BackendKind::Cuda,
            reason: format!("device {ordinal} needs a build with --features cuda"),
        })
    }

    /// Waits for the work that calls on device tensors have started on the engine's own stream.
    ///
    /// # Errors
    /// [`Error::Driver`], also for faults of work that was started earlier.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.backend.synchronize()
    }

    /// Which backend it is.
    pub fn backend(&self) -> BackendKind {
        self.backend.kind()
    }

    /// The device it plans for.
    pub fn device(&self) -> &DeviceInfo {
        self.backend.device()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("backend", &self.backend()).field("device", self.device()).finish()
    }
}
