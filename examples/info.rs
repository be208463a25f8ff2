//! What this build contains, what this machine has, and what would run where.
//!
//! ```text
//! cargo run --example info
//! ```

use std::collections::BTreeMap;

use ffpa::{BuildInfo, Dtype, Engine, Error, Problem, plan};

fn main() {
    let build = BuildInfo::current();
    println!("ffpa {}", env!("CARGO_PKG_VERSION"));
    println!("CUDA_FWD_AVAILABLE       {}", BuildInfo::CUDA_FWD_AVAILABLE);
    println!("CUDA_TMA_AVAILABLE       {}", BuildInfo::CUDA_TMA_AVAILABLE);
    println!("CUDA_QUANT_TMA_AVAILABLE {}", BuildInfo::CUDA_QUANT_TMA_AVAILABLE);

    println!("\nkernels (architecture, family, what they multiply: head dims)");
    let mut rows: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for kernel in &build.kernels {
        let family = kernel.arithmetic.family().name();
        rows.entry((kernel.arch, family, kernel.arithmetic.name())).or_default().push(kernel.head_dim);
    }
    for ((arch, family, arithmetic), head_dims) in &rows {
        println!("  {:8} {family:6} {arithmetic:5} {head_dims:?}", arch.target());
    }
    if rows.is_empty() {
        println!("  none: FFPA_BUILD_ARCH, FFPA_BUILD_EXT or FFPA_BUILD_HEADDIM leave nothing");
    }
    if !BuildInfo::CUDA_FWD_AVAILABLE {
        println!("  as source for the cpu and emulator backends; --features cuda embeds them for a GPU");
    }

    println!("\ndevices");
    let mut ordinal = 0;
    loop {
        match Engine::cuda(ordinal) {
            Ok(engine) => describe(&engine, &build),
            Err(Error::BackendUnavailable { reason, .. }) if ordinal == 0 => {
                println!("  no CUDA device: {reason}");
                break;
            }
            Err(Error::BackendUnavailable { .. }) => break,
            Err(error) => println!("  device {ordinal}: {error}"),
        }
        ordinal += 1;
    }
    describe(&Engine::cpu(), &build);
}

/// A device, and the kernel that each compiled head dim would run on there.
fn describe(engine: &Engine, build: &BuildInfo) {
    let device = engine.device();
    let (major, minor) = device.compute_capability;
    println!("  {} backend: {} (as compute capability {major}.{minor})", engine.backend(), device.name);
    let mut head_dims: Vec<usize> = build.kernels.iter().map(|kernel| kernel.head_dim).collect();
    head_dims.sort_unstable();
    head_dims.dedup();
    for head_dim in head_dims {
        let problem = Problem::contiguous(Dtype::Bf16, [1, 1, 1, 1024, 1024, head_dim]);
        match plan(&problem, device, build) {
            Ok(plan) => println!("    bf16, head dim {head_dim:4}: {}", plan.kernel.name),
            Err(error) => println!("    bf16, head dim {head_dim:4}: {error}"),
        }
    }
}
