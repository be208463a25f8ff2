//! Facts about a device: from the driver, or by name where there is none.

use ffpa_kernels_gpu::config::Arch;

/// What a kernel is chosen by, besides the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The device's name.
    pub name: String,
    /// Compute capability: major and minor; 0.0 on the host.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors; 0 on the host, where keys need not be divided to fill them.
    pub multiprocessors: u32,
    /// Shared memory that one CTA may use at most, in bytes.
    pub shared_bytes: usize,
    /// Bytes of the L2 cache; 0 on the host.
    pub l2_bytes: usize,
    /// What addresses and strides must be multiples of, in bytes.
    pub alignment: usize,
    /// Whether it computes on host memory where it lies, so that addresses there must be aligned too.
    pub host_addresses: bool,
}

/// Kernels copy 16 bytes at a time (`cp.async`, 16-byte stores).
pub(crate) const COPY_ALIGNMENT: usize = 16;

/// The host's compute capability, which no device has.
const HOST: (u32, u32) = (0, 0);

impl DeviceInfo {
    /// A typical device of an architecture: RTX 4090, H200 or RTX 5090.
    pub fn of_arch(arch: Arch) -> Self {
        let (name, compute_capability, multiprocessors, l2_megabytes) = match arch {
            Arch::Sm89 => ("emulated sm_89", (8, 9), 128, 72),
            Arch::Sm90a => ("emulated sm_90a", (9, 0), 132, 50),
            Arch::Sm120f => ("emulated sm_120f", (12, 0), 170, 96),
        };
        DeviceInfo {
            name: name.into(),
            compute_capability,
            multiprocessors,
            shared_bytes: arch.shared_limit(),
            l2_bytes: l2_megabytes << 20,
            alignment: COPY_ALIGNMENT,
            host_addresses: true,
        }
    }

    /// The host itself. It takes any alignment, and follows any kernel's plan, whatever architectures were built.
    pub fn cpu() -> Self {
        DeviceInfo {
            name: "cpu".into(),
            compute_capability: HOST,
            multiprocessors: 0,
            shared_bytes: Arch::Sm90a.shared_limit(),
            l2_bytes: 0,
            alignment: 1,
            host_addresses: true,
        }
    }

    /// The architectures whose kernels the device runs, the nearest first.
    pub fn archs(&self) -> &'static [Arch] {
        match self.compute_capability {
            HOST => &[Arch::Sm89, Arch::Sm120f, Arch::Sm90a],
            (12, _) => &[Arch::Sm120f, Arch::Sm89],
            (9, 0) => &[Arch::Sm90a, Arch::Sm89],
            (major, minor) if (major, minor) >= (8, 9) => &[Arch::Sm89],
            _ => &[],
        }
    }

    /// How near an architecture is, the nearest 0; `None` if the device does not run its kernels.
    pub(crate) fn nearness(&self, arch: Arch) -> Option<usize> {
        self.archs().iter().position(|&own| own == arch)
    }
}
