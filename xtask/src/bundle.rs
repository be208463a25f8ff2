//! What a GPU machine without cargo needs: the conformance suite, the example and the benchmark, built with CUDA, and a
//! script that runs them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, root, target_dir};

/// Runs everything on the GPU machine; `OUT` is where results go.
const RUN: &str = r#"#!/usr/bin/env bash
# usage: OUT=folder ./run.sh [correctness|sanitizers|speed ...]   (needs python3 with torch for speed)
set -uo pipefail
cd "$(dirname "$0")"
export FFPA_TEST_CASES=$PWD/cases FFPA_TEST_BACKENDS=cuda
out=${OUT:-.}
failed=0
for step in ${@:-correctness sanitizers speed}; do
  case $step in
    correctness)
      timeout 300 ./conformance || failed=1
      timeout 300 ./quantized || failed=1
      timeout 300 ./quantized_inputs || failed=1
      timeout 300 ./quantized_nvfp4 || failed=1
      timeout 100 ./merge || failed=1
      timeout 300 ./properties --ignored || failed=1
      timeout 100 python3 contract.py ./libffpa_cabi.so || failed=1
      timeout 60 ./forward --backend cuda --check || failed=1
      timeout 60 ./forward --backend cuda --check --causal --dtype bf16 || failed=1 ;;
    sanitizers)
      for tool in memcheck racecheck; do
        timeout 300 compute-sanitizer --tool $tool --error-exitcode 9 ./conformance fully_masked gqa layouts no_keys \
          scales masks divided dropout --test-threads 1 | tail -3 || failed=1
      done ;;
    speed) timeout 500 python3 compare.py ./libffpa_cabi.so "$out/$(date +%F).json" || failed=1 ;;
    *) echo "unknown step $step"; failed=1 ;;
  esac
done
exit $failed
"#;

/// Makes the bundle in `dir`.
///
/// # Errors
/// If a build fails or a file cannot be written.
pub fn make(dir: &Path) -> Result<(), Failure> {
    let cuda_root = match std::env::var_os("CUDA_LIBRARY_PATH") {
        Some(path) => PathBuf::from(path),
        None => cuda_builder::cuda_root::make(&target_dir().join("cuda-root"))?,
    };
    fs::create_dir_all(dir.join("cases"))?;
    let cargo = |arguments: &[&str]| -> Result<Vec<PathBuf>, Failure> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(root()).env("CUDA_LIBRARY_PATH", &cuda_root).args(arguments);
        let output =
            command.args(["--release", "--features", "cuda", "--message-format", "json"]).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(artifacts(&String::from_utf8(output.stdout)?))
    };
    let mut built = cargo(&[
        "test",
        "--no-run",
        "--test",
        "conformance",
        "--test",
        "quantized",
        "--test",
        "quantized_inputs",
        "--test",
        "quantized_nvfp4",
        "--test",
        "properties",
        "--test",
        "merge",
    ])?;
    built.extend(cargo(&["build", "--example", "forward", "--example", "ffpa_cabi"])?);
    for name in [
        "conformance",
        "quantized",
        "quantized_inputs",
        "quantized_nvfp4",
        "properties",
        "merge",
        "forward",
        "libffpa_cabi.so",
    ] {
        let stem = name.trim_end_matches(".so");
        let is_it = |path: &&PathBuf| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file == name || file.strip_prefix(stem).is_some_and(|rest| rest.starts_with('-'))
        };
        let path = built.iter().find(is_it).ok_or_else(|| format!("cargo did not say where {name} is"))?;
        fs::copy(path, dir.join(name))?;
    }
    for entry in fs::read_dir(root().join("tests/cases"))? {
        let path = entry?.path();
        fs::copy(&path, dir.join("cases").join(path.file_name().unwrap_or_default()))?;
    }
    for script in ["ffpa.py", "compare.py", "contract.py"] {
        fs::copy(root().join("benches/compare").join(script), dir.join(script))?;
    }
    let script = dir.join("run.sh");
    fs::write(&script, RUN)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    println!("{}: run ./run.sh there", dir.display());
    Ok(())
}

/// Executables and libraries among cargo's messages.
fn artifacts(messages: &str) -> Vec<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let files = messages.flat_map(|message| {
        let executable = message["executable"].as_str().map(PathBuf::from);
        let files = message["filenames"].as_array().cloned().unwrap_or_default();
        executable.into_iter().chain(files.into_iter().filter_map(|file| file.as_str().map(PathBuf::from)))
    });
    files.collect()
}
