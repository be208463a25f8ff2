//! `cargo xtask COMMAND`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use xtask::{Failure, bundle, results, stats};

/// The developer's commands
#[derive(Parser)]
enum Command {
    /// Make a root for linking against libcuda on a machine without CUDA
    CudaRoot {
        /// Where
        #[arg(default_value = "target/cuda-root")]
        dir: PathBuf,
    },
    /// Build kernels and print what they cost: registers, spills, shared memory, instructions
    PtxStats {
        /// Parts of kernels' names: those that have one of them; all kernels if none is given
        patterns: Vec<String>,
    },
    /// Build every kernel and make its cost the one that tests expect
    Bless,
    /// Build what a GPU machine without cargo needs to test and time the kernels
    DeviceBundle {
        /// Where
        #[arg(default_value = "device-bundle")]
        dir: PathBuf,
    },
    /// Write README's table from the newest file of benches/results
    Readme,
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::CudaRoot { dir } => {
            println!("export CUDA_LIBRARY_PATH={}", cuda_builder::cuda_root::make(&dir)?.display());
        }
        Command::PtxStats { patterns } => print!("{}", stats::table(&stats::measure(&patterns)?)),
        Command::Bless => stats::bless(&stats::measure(&[])?)?,
        Command::DeviceBundle { dir } => bundle::make(&dir)?,
        Command::Readme => results::write_readme()?,
    }
    Ok(())
}
