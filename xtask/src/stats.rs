//! What each kernel costs, by the assembler's word: kept in a file that only `bless` changes, so that every change of it is
//! seen and meant.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use cuda_builder::check::{Expected, deviations, warnings};
use cuda_builder::ptx::Summary;
use cuda_builder::ptxas::Tools;
use cuda_builder::sass::{MainLoop, Part};
use cuda_builder::{CudaBuilder, Entry, Options};
use ffpa_kernels_gpu::catalog::{self, entries};
use ffpa_kernels_gpu::{CUDA_STD_SOURCE_DIR, SOURCE_DIR};
use serde::{Deserialize, Serialize};

use crate::{Failure, root, target_dir};

/// What one kernel costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stats {
    /// Registers of a thread.
    pub registers: usize,
    /// Bytes of spill stores.
    pub spill_stores: usize,
    /// Bytes of spill loads.
    pub spill_loads: usize,
    /// Dynamic shared memory of a CTA, in bytes.
    pub shared_bytes: usize,
    /// Barriers in the PTX.
    pub barriers: usize,
    /// Matrix instructions in the PTX.
    pub mma: usize,
    /// `ldmatrix` in the PTX.
    pub ldmatrix: usize,
    /// Instructions of the main loop's machine code, rare branches included.
    pub loop_instructions: usize,
    /// Matrix instructions among them.
    pub loop_mma: usize,
    /// These by kind, for instance `132 QMMA.SF` or `64 HMMA, 32 IMMA`: where the hardware lacks an instruction of the PTX,
    /// others stand for it.
    pub loop_mma_kinds: String,
    /// Share of the tensor core's time on a GeForce if nothing overlaps, in percent (see `cuda_builder::sass`).
    pub tensor_percent: usize,
    /// The share if everything overlaps but the issue of instructions.
    pub tensor_percent_overlapped: usize,
}

/// A kernel, its cost, and what is wrong with it.
pub struct Measured {
    /// The kernel.
    pub kernel: catalog::Entry,
    /// Its cost.
    pub stats: Stats,
    /// What is not as it must be.
    pub deviations: Vec<String>,
}

/// Builds and assembles the kernels of the catalog whose names have one of the patterns in them; all of them without patterns.
///
/// # Errors
/// If there is no such kernel, or the toolchain, a tool or a kernel fails.
pub fn measure(patterns: &[String]) -> Result<Vec<Measured>, Failure> {
    let wanted = |name: &str| patterns.is_empty() || patterns.iter().any(|pattern| name.contains(pattern));
    let kernels: Vec<catalog::Entry> = entries().filter(|kernel| wanted(kernel.name)).collect();
    if kernels.is_empty() {
        return Err(format!("the catalog has no kernel named like {}", patterns.join(" or ")).into());
    }
    let tools = Tools::find()?;
    let cache = target_dir().join("ffpa-ptx-cache");
    let builder = CudaBuilder::new("ffpa_kernels_gpu", SOURCE_DIR)
        .dependency("cuda_std", CUDA_STD_SOURCE_DIR)
        .cache_dir(&cache);
    let entry = |kernel: &catalog::Entry| Entry {
        name: kernel.name.into(),
        arch: kernel.arch.target().into(),
        threads: kernel.threads,
        min_blocks: kernel.min_blocks,
    };
    let options = |kernel: &catalog::Entry| Options {
        ptx_version: kernel.ptx_version.map(str::to_string),
        ..Options::default()
    };
    let add =
        |builder: CudaBuilder, kernel: &catalog::Entry| builder.entry_with(entry(kernel), options(kernel));
    let modules = kernels.iter().fold(builder, add).build()?;
    let cubins = target_dir().join("cubins");
    fs::create_dir_all(&cubins)?;
    let measured = kernels.into_iter().zip(modules).map(|(kernel, module)| {
        let cubin = cubins.join(format!("{}.cubin", kernel.name));
        let resources = tools.assemble(&module.ptx, kernel.arch.target(), &cubin)?;
        // Kernels that only combine multiply no matrices.
        let body = MainLoop::find(&tools.disassemble(&cubin)?).unwrap_or_default();
        let summary = Summary::of(&module.ptx);
        let expected = Expected {
            entry: kernel.name,
            arch: kernel.arch.target(),
            barriers: kernel.barriers,
            version: kernel.ptx_version,
        };
        let mut wrong: Vec<String> = deviations(&module.ptx, &expected)
            .into_iter()
            .chain(warnings(&resources))
            .map(|deviation| deviation.to_string())
            .collect();
        let spills = resources.spill_stores + resources.spill_loads;
        if spills > kernel.spill_allowance {
            wrong.push(format!("{spills} bytes of spills, allowed are {}", kernel.spill_allowance));
        }
        if kernel.shared_bytes > kernel.arch.shared_limit() {
            wrong.push(format!("{} bytes of shared memory", kernel.shared_bytes));
        }
        let percent = |share: fn(&MainLoop, Part) -> Option<f64>| match body.matrix() {
            0 => Ok(0),
            _ => share(&body, Part::GeForce)
                .map(|share| (100.0 * share).round() as usize)
                .ok_or("an unknown matrix instruction"),
        };
        let kinds: Vec<String> =
            body.matrix_kinds().into_iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let stats = Stats {
            registers: resources.registers,
            spill_stores: resources.spill_stores,
            spill_loads: resources.spill_loads,
            shared_bytes: kernel.shared_bytes,
            barriers: summary.barriers(),
            mma: summary.count("mma.sync"),
            ldmatrix: summary.count("ldmatrix"),
            loop_instructions: body.instructions(),
            loop_mma: body.matrix(),
            loop_mma_kinds: kinds.join(", "),
            tensor_percent: percent(MainLoop::tensor_share_without_overlap)?,
            tensor_percent_overlapped: percent(MainLoop::tensor_share)?,
        };
        Ok(Measured { kernel, stats, deviations: wrong })
    });
    measured.collect()
}

/// A line per kernel.
pub fn table(measured: &[Measured]) -> String {
    let width = measured.iter().map(|m| m.kernel.name.len()).max().unwrap_or(0);
    let mut text = format!(
        "{:width$} {:>5} {:>9} {:>7} {:>8} {:>5} {:>8} {:>6} {:>9} {:>11}  loop mma\n",
        "kernel", "regs", "spills", "shared", "barriers", "mma", "ldmatrix", "loop", "tensor", "overlapped"
    );
    for Measured { kernel, stats: s, deviations } in measured {
        let spills = format!("{}+{}", s.spill_stores, s.spill_loads);
        let _ = writeln!(
            text,
            "{:width$} {:>5} {:>9} {:>7} {:>8} {:>5} {:>8} {:>6} {:>8}% {:>10}%  {}",
            kernel.name,
            s.registers,
            spills,
            s.shared_bytes,
            s.barriers,
            s.mma,
            s.ldmatrix,
            s.loop_instructions,
            s.tensor_percent,
            s.tensor_percent_overlapped,
            s.loop_mma_kinds
        );
        for deviation in deviations {
            let _ = writeln!(text, "    wrong: {deviation}");
        }
    }
    text.push_str(
        "spills: bytes stored + loaded. loop: instructions of the main loop, rare branches included. tensor: clocks for which \
         the loop's matrix instructions keep a GeForce's tensor cores busy, over those and all other issue slots; overlapped: over \
         the larger of those and all issue slots.\n",
    );
    text
}

fn snapshot() -> PathBuf {
    root().join("tests/snapshots/ptx_stats.toml")
}

/// What tests expect.
///
/// # Errors
/// If the file cannot be read.
pub fn expected() -> Result<BTreeMap<String, Stats>, Failure> {
    Ok(toml::from_str(&fs::read_to_string(snapshot())?)?)
}

/// Makes these costs the ones that tests expect.
///
/// # Errors
/// If a kernel is not as it must be, or the file cannot be written.
pub fn bless(measured: &[Measured]) -> Result<(), Failure> {
    let wrong: Vec<String> = measured
        .iter()
        .flat_map(|m| m.deviations.iter().map(|deviation| format!("{}: {deviation}", m.kernel.name)))
        .collect();
    if !wrong.is_empty() {
        return Err(wrong.join("\n").into());
    }
    let stats: BTreeMap<&str, &Stats> = measured.iter().map(|m| (m.kernel.name, &m.stats)).collect();
    let head = "# What each kernel costs. Written by `cargo xtask bless` alone; a change here is a change of the machine code.\n\n";
    fs::create_dir_all(snapshot().parent().expect("a file has a folder"))?;
    fs::write(snapshot(), head.to_string() + &toml::to_string(&stats)?)?;
    Ok(())
}
