//! `cuda-root DIR`: makes a root for linking against libcuda where there is none, and says how to use it.

use std::process::ExitCode;

fn main() -> ExitCode {
    let dir = std::env::args_os().nth(1).unwrap_or_else(|| "target/cuda-root".into());
    match cuda_builder::cuda_root::make(dir.as_ref()) {
        Ok(root) => {
            println!("export CUDA_LIBRARY_PATH={}", root.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cuda-root: {error}");
            ExitCode::FAILURE
        }
    }
}
