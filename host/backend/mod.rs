//! What runs a plan: the host's cores, the emulator, or a CUDA device.

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(feature = "emulator")]
pub(crate) mod emulator;

use std::fmt;
use std::time::Duration;

use crate::combination::Combination;
use crate::device::DeviceInfo;
use crate::error::Error;
use crate::options::Progress;
use crate::placement::Addresses;
use crate::plan::Plan;
use crate::refusal::Refusal;

/// Which backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// Tiled attention on the host's cores.
    Cpu,
    /// The GPU kernels themselves, on the emulator.
    Emulator,
    /// The GPU kernels on a CUDA device.
    Cuda,
}

impl BackendKind {
    /// The name users type: `cpu`, `emulator` or `cuda`.
    pub const fn name(self) -> &'static str {
        match self {
            BackendKind::Cpu => "cpu",
            BackendKind::Emulator => "emulator",
            BackendKind::Cuda => "cuda",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a call did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Where it ran.
    pub backend: BackendKind,
    /// The kernel; on the cpu backend, the one whose plan it followed.
    pub kernel: &'static str,
    /// That of the first rows, if it is another.
    pub early_kernel: Option<&'static str>,
    /// The device's name.
    pub device: String,
    /// How long the computation took, without copies between host and device. `None` if it was only started: work on
    /// device tensors runs asynchronously.
    pub elapsed: Option<Duration>,
    /// Floating-point operations, as [`Problem::flops`](crate::Problem::flops) counts them; of a merge, two per element and
    /// part.
    pub flops: f64,
    /// What the emulator counted.
    #[cfg(feature = "emulator")]
    pub counters: Option<ffpa_emulator::Counters>,
}

impl Report {
    pub(crate) fn new(plan: &Plan, backend: BackendKind, elapsed: Option<Duration>) -> Self {
        Report {
            backend,
            kernel: plan.kernel.name,
            early_kernel: plan.early.as_ref().map(|early| early.kernel.name),
            device: plan.device.clone(),
            elapsed,
            flops: plan.problem.flops(),
            #[cfg(feature = "emulator")]
            counters: None,
        }
    }

    pub(crate) fn of_combination(
        combination: &Combination,
        backend: BackendKind,
        device: &DeviceInfo,
        elapsed: Option<Duration>,
    ) -> Self {
        let params = &combination.params;
        let elements = f64::from(params.rows) * f64::from(params.head_dim);
        Report {
            backend,
            kernel: combination.kernel.name,
            early_kernel: None,
            device: device.name.clone(),
            elapsed,
            flops: 2.0 * f64::from(params.parts) * elements,
            #[cfg(feature = "emulator")]
            counters: None,
        }
    }
}

/// The tensors of a plan, as bytes in host memory.
pub(crate) struct HostTensors<'a> {
    pub q: &'a [u8],
    pub k: &'a [u8],
    pub v: &'a [u8],
    /// Of Q, K and V; empty where there are none.
    pub scales: [&'a [f32]; 3],
    pub mask: Option<&'a [u8]>,
    pub o: &'a mut [u8],
    pub lse: Option<&'a mut [f32]>,
}

/// The tensors of a plan, in device memory.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only the CUDA backend has device memory"))]
pub(crate) struct DeviceTensors {
    /// Workspace 0 for the engine's own.
    pub addresses: Addresses,
    /// The caller's stream; the engine's if none.
    pub stream: Option<usize>,
}

/// The tensors of a plan.
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only the CUDA backend has device memory"))]
pub(crate) enum Tensors<'a> {
    Host(HostTensors<'a>),
    Device(DeviceTensors),
}

impl<'a> Tensors<'a> {
    /// For backends without device memory.
    fn host(self, backend: BackendKind) -> Result<HostTensors<'a>, Refusal> {
        match self {
            Tensors::Host(tensors) => Ok(tensors),
            Tensors::Device(_) => Err(Refusal::DeviceMemory { backend: backend.name() }),
        }
    }
}

/// Results to combine, in host memory.
pub(crate) struct HostParts<'a> {
    pub outputs: Vec<&'a [u8]>,
    pub lses: Vec<&'a [f32]>,
    pub o: &'a mut [u8],
    pub lse: Option<&'a mut [f32]>,
}

/// Results to combine, as device addresses; 0 for no log-sum-exp.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only the CUDA backend has device memory"))]
pub(crate) struct DeviceParts {
    pub first: u64,
    pub part_stride: u64,
    pub first_lse: u64,
    pub lse_part_stride: u64,
    pub o: u64,
    pub lse: u64,
}

/// Results to combine.
pub(crate) enum PartTensors<'a> {
    Host(HostParts<'a>),
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only the CUDA backend has device memory"))]
    Device(DeviceParts),
}

impl<'a> PartTensors<'a> {
    /// For backends without device memory.
    fn host(self, backend: BackendKind) -> Result<HostParts<'a>, Refusal> {
        match self {
            PartTensors::Host(parts) => Ok(parts),
            PartTensors::Device(_) => Err(Refusal::DeviceMemory { backend: backend.name() }),
        }
    }
}

/// Runs plans.
pub(crate) trait Backend: Send + Sync {
    fn kind(&self) -> BackendKind;

    /// What plans for this backend are made for.
    fn device(&self) -> &DeviceInfo;

    fn run(&self, plan: &Plan, tensors: Tensors<'_>, progress: Option<&Progress>) -> Result<Report, Error>;

    /// Combines results over parts of the keys, whose elements are the output's.
    fn combine(&self, combination: &Combination, parts: PartTensors<'_>) -> Result<Report, Error>;

    /// Waits for all that was started.
    fn synchronize(&self) -> Result<(), Error> {
        Ok(())
    }
}
