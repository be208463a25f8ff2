//! Which kernel: pure, from a problem, a device and a build.

use ffpa_kernels_gpu::catalog::Kernel;

use crate::build_info::BuildInfo;
use crate::device::DeviceInfo;
use crate::element::Family;
use crate::error::Error;
use crate::problem::Problem;

/// The best kernel for the problem: of the device's nearest architecture that this build has, the one with the least
/// head dim that holds the problem's.
pub(crate) fn select(
    problem: &Problem,
    device: &DeviceInfo,
    build: &BuildInfo,
) -> Result<&'static Kernel, Error> {
    let of_family = |kernel: &&'static Kernel| {
        problem.family == Family::Native
            && kernel.dtype == problem.dtype
            && kernel.shared_bytes <= device.shared_bytes
    };
    check_device(device, build)?;
    for &arch in device.archs() {
        let kernels: Vec<_> =
            build.kernels.iter().copied().filter(|k| k.arch == arch).filter(of_family).collect();
        if kernels.is_empty() {
            continue;
        }
        let fitting = kernels.iter().filter(|kernel| kernel.head_dim >= problem.head_dim);
        return fitting.min_by_key(|kernel| kernel.head_dim).copied().ok_or_else(|| {
            let mut compiled: Vec<usize> = kernels.iter().map(|kernel| kernel.head_dim).collect();
            compiled.sort_unstable();
            compiled.dedup();
            Error::HeadDimNotCompiled { head_dim: problem.head_dim, compiled, dtype: problem.dtype, arch }
        });
    }
    let reason = format!("this build has native kernels for {} only", compiled_archs(build));
    Err(Error::FamilyUnavailable { family: problem.family, reason })
}

/// Refuses devices that no kernel of any build runs on.
pub(crate) fn check_device(device: &DeviceInfo, build: &BuildInfo) -> Result<(), Error> {
    if !device.archs().is_empty() {
        return Ok(());
    }
    let (major, minor) = device.compute_capability;
    let compiled = compiled_archs(build);
    Err(Error::DeviceUnsupported { device: device.name.clone(), major, minor, needed: "8.9", compiled })
}

fn compiled_archs(build: &BuildInfo) -> String {
    let mut archs: Vec<_> = build.kernels.iter().map(|kernel| kernel.arch).collect();
    archs.sort_unstable();
    archs.dedup();
    if archs.is_empty() {
        return "no architecture".into();
    }
    archs.iter().map(|arch| arch.target()).collect::<Vec<_>>().join(", ")
}
