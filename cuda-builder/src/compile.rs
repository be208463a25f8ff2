//! The compiler's part: `core`, the dependencies, and one module per entry.
//!
//! Only `core` goes through cargo. The device crates are compiled by rustc itself: they have no dependencies beyond each
//! other, cargo would serialise entries on its lock, and the same way works from a registry's unpacked sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Entry;
use crate::cache::{self, Cache};
use crate::error::BuildError;
use crate::toolchain::Toolchain;

const TARGET: &str = "nvptx64-nvidia-cuda";

/// Part of every cache key: raise it when the flags or the editing change.
pub const FLAGS_KEY: &str = "1";

/// Register arrays survive only if every loop over them is fully unrolled: otherwise they go to local memory. Loops whose
/// length is known at run time only must stay loops.
const FLAGS: &[&str] = &[
    "--target=nvptx64-nvidia-cuda",
    "--edition=2024",
    "--crate-type=rlib",
    "--cap-lints=allow",
    "-Cpanic=abort",
    "-Copt-level=3",
    "-Ccodegen-units=1",
    "-Cllvm-args=-unroll-threshold=1000000",
    "-Cllvm-args=-unroll-full-max-count=4096",
    "-Cllvm-args=-unroll-max-percent-threshold-boost=10000",
    "-Cllvm-args=-unroll-runtime=false",
];

/// A crate for the device.
#[derive(Clone, Debug)]
pub struct DeviceCrate {
    name: String,
    dir: PathBuf,
}

impl DeviceCrate {
    pub fn new(name: &str, dir: &Path) -> Self {
        DeviceCrate { name: name.into(), dir: dir.into() }
    }

    fn sources(&self) -> Result<Vec<PathBuf>, BuildError> {
        let (mut files, mut folders) = (Vec::new(), vec![self.dir.join("src")]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(BuildError::io(&folder))? {
                let path = entry.map_err(BuildError::io(&folder))?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    files.push(path);
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

/// A key for the content of all sources.
pub fn fingerprint(crates: &[&DeviceCrate]) -> Result<String, BuildError> {
    let mut parts = Vec::new();
    for device in crates {
        for file in device.sources()? {
            let name = file.strip_prefix(&device.dir).unwrap_or(&file).to_string_lossy().into_owned();
            parts.extend([
                device.name.clone(),
                name,
                fs::read_to_string(&file).map_err(BuildError::io(&file))?,
            ]);
        }
    }
    Ok(cache::key(&parts.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Where `core` for an architecture lies once it is built.
fn core_dir(toolchain: &Toolchain, cache: &Cache, arch: &str) -> PathBuf {
    cache.path(&format!("core-{arch}-{}", &cache::key(&[toolchain.version()])[..8]))
}

fn core_artifacts(core: &Path) -> PathBuf {
    core.join(format!("target/{TARGET}/release/deps"))
}

/// Where the dependencies for an architecture lie once they are built.
fn dependency_dir(cache: &Cache, arch: &str, sources: &str) -> PathBuf {
    cache.path(&format!("deps-{arch}-{sources}"))
}

/// Builds `core` and the dependencies for an architecture.
pub fn prepare(
    toolchain: &Toolchain,
    cache: &Cache,
    arch: &str,
    dependencies: &[DeviceCrate],
    sources: &str,
) -> Result<(), BuildError> {
    cache.exclusively(arch, || {
        let core = core_dir(toolchain, cache, arch);
        if !core.join("done").exists() {
            build_core(toolchain, arch, &core)?;
        }
        let dir = dependency_dir(cache, arch, sources);
        fs::create_dir_all(&dir).map_err(BuildError::io(&dir))?;
        for (i, dependency) in dependencies.iter().enumerate() {
            let library = dir.join(format!("lib{}.rlib", dependency.name));
            if !library.exists() {
                let mut rustc = rustc(toolchain, cache, arch, dependency, &dependencies[..i], sources)?;
                let unfinished = library.with_extension("tmp");
                run(rustc.arg("--emit=link").arg("-o").arg(&unfinished), &dependency.name)?;
                fs::rename(&unfinished, &library).map_err(BuildError::io(&library))?;
            }
        }
        Ok(())
    })
}

fn build_core(toolchain: &Toolchain, arch: &str, dir: &Path) -> Result<(), BuildError> {
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("a file has a folder")).map_err(BuildError::io(dir))?;
        fs::write(&path, text).map_err(BuildError::io(&path))
    };
    // A crate with nothing in it, for cargo to build `core` for.
    write("Cargo.toml", "[package]\nname = \"core-only\"\nedition = \"2024\"\n\n[workspace]\n")?;
    write("src/lib.rs", "#![no_std]\n")?;
    let mut cargo = toolchain.command("cargo");
    cargo.current_dir(dir).env("RUSTFLAGS", format!("-Ctarget-cpu={arch}"));
    cargo.args(["build", "--release", "-Zbuild-std=core", "--target", TARGET, "--target-dir", "target"]);
    run(&mut cargo, &format!("core for {arch}"))?;
    write("done", "")
}

/// The compiler, set up for one crate.
fn rustc(
    toolchain: &Toolchain,
    cache: &Cache,
    arch: &str,
    device: &DeviceCrate,
    dependencies: &[DeviceCrate],
    sources: &str,
) -> Result<Command, BuildError> {
    let artifacts = core_artifacts(&core_dir(toolchain, cache, arch));
    let is_core = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libcore-"))
            && path.extension().is_some_and(|extension| extension == "rlib")
    };
    let files = fs::read_dir(&artifacts).map_err(BuildError::io(&artifacts))?;
    let core = files.filter_map(|entry| Some(entry.ok()?.path())).find(is_core);
    let core = core.ok_or_else(|| BuildError::CacheLost { key: artifacts.display().to_string() })?;
    let mut command = toolchain.command("rustc");
    command.args(FLAGS).arg(format!("-Ctarget-cpu={arch}"));
    command.arg("-L").arg(&artifacts).arg("--extern").arg(format!("core={}", core.display()));
    for dependency in dependencies {
        let library = dependency_dir(cache, arch, sources).join(format!("lib{}.rlib", dependency.name));
        command.arg("--extern").arg(format!("{}={}", dependency.name, library.display()));
    }
    command.env("CARGO_MANIFEST_DIR", &device.dir);
    command.arg("--crate-name").arg(&device.name).arg(device.dir.join("src/lib.rs"));
    Ok(command)
}

/// Compiles one entry and returns the compiler's PTX.
pub fn entry(
    toolchain: &Toolchain,
    cache: &Cache,
    entry: &Entry,
    device: &DeviceCrate,
    dependencies: &[DeviceCrate],
    sources: &str,
) -> Result<String, BuildError> {
    let mut rustc = rustc(toolchain, cache, &entry.arch, device, dependencies, sources)?;
    let output = cache.path(&format!("{}.{}.{}.s", entry.name, entry.arch, std::process::id()));
    rustc.args(["-Zno-link", "--emit=asm", "--cfg", &entry.name]).arg("-o").arg(&output);
    run(&mut rustc, &format!("{} for {}", entry.name, entry.arch))?;
    let ptx = fs::read_to_string(&output).map_err(BuildError::io(&output))?;
    fs::remove_file(&output).map_err(BuildError::io(&output))?;
    Ok(ptx)
}

fn run(command: &mut Command, what: &str) -> Result<(), BuildError> {
    let failed = |stderr: String| BuildError::Compile { what: what.into(), stderr };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}
