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
    /// Share of the tensor core's time if nothing overlaps, in percent (see `cuda_builder::sass`).
    pub tensor_percent: usize,
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

/// Builds and assembles every kernel of the catalog.
///
/// # Errors
/// If the toolchain, a tool or a kernel fails.
pub fn measure() -> Result<Vec<Measured>, Failure> {
    let tools = Tools::find()?;
    let cache = target_dir().join("ffpa-ptx-cache");
    let builder = CudaBuilder::new("ffpa_kernels_gpu", SOURCE_DIR)
        .dependency("cuda_std", CUDA_STD_SOURCE_DIR)
        .cache_dir(&cache);
    let entry = |kernel: catalog::Entry| Entry {
        name: kernel.name.into(),
        arch: kernel.arch.target().into(),
        threads: kernel.threads,
        min_blocks: kernel.min_blocks,
    };
    let options = |kernel: &catalog::Entry| Options {
        target_features: kernel.ptx_feature().map(str::to_string).into_iter().collect(),
        ..Options::default()
    };
    let add = |builder: CudaBuilder, kernel| builder.entry_with(entry(kernel), options(&kernel));
    let modules = entries().fold(builder, add).build()?;
    let cubins = target_dir().join("cubins");
    fs::create_dir_all(&cubins)?;
    let measured = entries().zip(modules).map(|(kernel, module)| {
        let cubin = cubins.join(format!("{}.cubin", kernel.name));
        let resources = tools.assemble(&module.ptx, kernel.arch.target(), &cubin)?;
        // Kernels that only combine multiply no matrices.
        let body = MainLoop::find(&tools.disassemble(&cubin)?).unwrap_or_default();
        let summary = Summary::of(&module.ptx);
        let expected = Expected {
            entry: kernel.name,
            arch: kernel.arch.target(),
            barriers: kernel.barriers,
            version: kernel.ptx_feature().map(|_| "8.4"),
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
        let share = match body.matrix() {
            0 => 0.0,
            _ => body.tensor_share_without_overlap(Part::GeForce).ok_or("an unknown matrix instruction")?,
        };
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
            tensor_percent: (100.0 * share).round() as usize,
        };
        Ok(Measured { kernel, stats, deviations: wrong })
    });
    measured.collect()
}

/// A line per kernel.
pub fn table(measured: &[Measured]) -> String {
    let mut text = format!(
        "{:28} {:>5} {:>11} {:>8} {:>8} {:>6} {:>8} {:>10} {:>9} {:>8}\n",
        "kernel", "regs", "spills", "shared", "barriers", "mma", "ldmatrix", "loop", "loop mma", "tensor"
    );
    for Measured { kernel, stats: s, deviations } in measured {
        let spills = format!("{}+{}", s.spill_stores, s.spill_loads);
        let _ = writeln!(
            text,
            "{:28} {:>5} {:>11} {:>8} {:>8} {:>6} {:>8} {:>10} {:>9} {:>7}%",
            kernel.name,
            s.registers,
            spills,
            s.shared_bytes,
            s.barriers,
            s.mma,
            s.ldmatrix,
            s.loop_instructions,
            s.loop_mma,
            s.tensor_percent
        );
        for deviation in deviations {
            let _ = writeln!(text, "    wrong: {deviation}");
        }
    }
    text.push_str(
        "spills: bytes stored + loaded. loop: instructions of the main loop, rare branches included. tensor: clocks of \
         matrix instructions over those and all other issue slots, at 512 operations per multiprocessor and clock.\n",
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
