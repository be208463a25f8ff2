//! Which kernel: pure, from a problem, a device and a build.

use std::cmp::Reverse;

use ffpa_kernels_gpu::catalog::{Copies, Kernel};

use crate::build_info::BuildInfo;
use crate::device::DeviceInfo;
use crate::error::Error;
use crate::packing::QuerySide;
use crate::precision::Family;
use crate::problem::Problem;

/// The best kernel for the problem: of those that the device runs and that take what is asked, the one with the least head
/// dim; among equals, that with the smallest tile that holds all rows of a head, if any does; among the rest, one without
/// masks, then one for the device's nearest architecture, then one with block-scaled instructions, then one with bulk copies, and
/// then that with the largest tile.
pub(crate) fn select(
    problem: &Problem,
    side: &QuerySide,
    device: &DeviceInfo,
    build: &BuildInfo,
) -> Result<&'static Kernel, Error> {
    check_device(device, build)?;
    let family = problem.family();
    let runs = |kernel: &&'static Kernel| {
        kernel.arithmetic == problem.arithmetic()
            && kernel.f16_sums == problem.precision.f16_sums()
            && kernel.shared_bytes <= device.shared_bytes
            && device.nearness(kernel.arch).is_some()
    };
    let kernels: Vec<_> = build.kernels.iter().copied().filter(runs).collect();
    if kernels.is_empty() {
        let of_family = |kernel: &&'static Kernel| kernel.arithmetic.family() == family;
        let reason = match build.kernels.iter().any(of_family) {
            true if problem.precision.f16_sums() => {
                "its kernels with f16 sums are those of sm_89; rebuild with 89 in FFPA_BUILD_ARCH, or ask for f32 sums".into()
            }
            true => format!("this build has no such kernels for {}", device.name),
            false => {
                "this build has none of its kernels; rebuild with FFPA_BUILD_EXT and FFPA_BUILD_HEADDIM at their defaults"
                    .into()
            }
        };
        return Err(Error::FamilyUnavailable { family, reason });
    }
    let largest = kernels.iter().map(|kernel| kernel.head_dim).max().unwrap_or(0);
    if family != Family::Native {
        if problem.head_dim > largest {
            return Err(Error::QuantSplitD { family, head_dim: problem.head_dim, window: largest });
        }
        if problem.mask.is_some() || problem.dropout.is_some() {
            let reason = "its kernels take no masks or dropout; compute in 16 bits".into();
            return Err(Error::FamilyUnavailable { family, reason });
        }
    }
    let masked = problem.mask.is_some() || problem.dropout.is_some() || side.packed && side.causal;
    let takes = |kernel: &&&'static Kernel| kernel.head_dim >= problem.head_dim && (kernel.masked || !masked);
    let rank = |kernel: &Kernel| {
        let waste = if kernel.rows >= side.rows { kernel.rows } else { usize::MAX };
        let (nearness, single) = (device.nearness(kernel.arch), kernel.copies == Copies::Async);
        let (scaled, rows) = (Reverse(kernel.block_scaled), Reverse(kernel.rows));
        (kernel.head_dim, waste, kernel.masked, nearness, scaled, single, rows)
    };
    let best = kernels.iter().filter(takes).min_by_key(|kernel| rank(kernel));
    best.copied().ok_or_else(|| {
        let head_dims = |masks: bool| {
            let fitting = kernels.iter().filter(|kernel| kernel.masked || !masks);
            let mut compiled: Vec<usize> = fitting.map(|kernel| kernel.head_dim).collect();
            compiled.sort_unstable();
            compiled.dedup();
            compiled
        };
        let (head_dim, dtype, device) = (problem.head_dim, problem.dtype, device.name.clone());
        let compiled = head_dims(false);
        match compiled.last() {
            Some(&largest) if largest >= head_dim => {
                Error::MasksNotCompiled { head_dim, compiled: head_dims(true), dtype, device }
            }
            _ => Error::HeadDimNotCompiled { head_dim, compiled, dtype, device },
        }
    })
}

/// Refuses devices that no kernel of this build runs on. (A build without kernels refuses calls, not devices.)
pub(crate) fn check_device(device: &DeviceInfo, build: &BuildInfo) -> Result<(), Error> {
    let runs = |kernel: &&'static Kernel| device.nearness(kernel.arch).is_some();
    if !device.archs().is_empty() && (build.kernels.is_empty() || build.kernels.iter().any(runs)) {
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
