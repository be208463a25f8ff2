//! The compiler's part: `core`, the dependencies, and one module per entry.
//!
//! Only `core` goes through cargo. The device crates are compiled by rustc itself: they have no dependencies beyond each
//! other, cargo would serialise entries on its lock, and the same way works from a registry's unpacked sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::{self, Cache};
use crate::error::BuildError;
use crate::toolchain::Toolchain;
use crate::{Entry, Options};

const TARGET: &str = "nvptx64-nvidia-cuda";

/// Part of every key: raise it when what is made from the compiler's output changes.
const FORMAT: &str = "2";

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

    /// All files of the crate, not only Rust's: any of them may be included.
    fn sources(&self) -> Result<Vec<PathBuf>, BuildError> {
        let (mut files, mut folders) = (Vec::new(), vec![self.dir.join("src")]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(BuildError::io(&folder))? {
                let path = entry.map_err(BuildError::io(&folder))?.path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        Ok(files)
    }
}

/// A key for whatever the compiler makes of these crates: their content, the compiler and its flags.
fn fingerprint<'a>(
    toolchain: &Toolchain,
    crates: impl IntoIterator<Item = &'a DeviceCrate>,
) -> Result<String, BuildError> {
    let mut parts: Vec<Vec<u8>> = [FORMAT, toolchain.version()].map(Into::into).into();
    parts.extend(FLAGS.iter().map(|&flag| flag.into()));
    for device in crates {
        for file in device.sources()? {
            let name = file.strip_prefix(&device.dir).unwrap_or(&file);
            parts.push(device.name.clone().into());
            parts.push(name.to_string_lossy().into_owned().into());
            parts.push(fs::read(&file).map_err(BuildError::io(&file))?);
        }
    }
    Ok(cache::key(&parts))
}

/// A compiler, what it compiles, and where it puts that.
pub struct Compiler<'a> {
    toolchain: &'a Toolchain,
    cache: &'a Cache,
    device: &'a DeviceCrate,
    dependencies: &'a [DeviceCrate],
    /// Key of all crates.
    inputs: String,
    /// Key of the dependencies alone: they outlive changes of the device crate.
    dependency_inputs: String,
}

impl<'a> Compiler<'a> {
    pub fn new(
        toolchain: &'a Toolchain,
        cache: &'a Cache,
        device: &'a DeviceCrate,
        dependencies: &'a [DeviceCrate],
    ) -> Result<Self, BuildError> {
        let inputs = fingerprint(toolchain, dependencies.iter().chain([device]))?;
        let dependency_inputs = fingerprint(toolchain, dependencies)?;
        Ok(Compiler { toolchain, cache, device, dependencies, inputs, dependency_inputs })
    }

    /// The key of an entry's module.
    pub fn key(&self, entry: &Entry, options: &Options) -> String {
        cache::key(&[&self.inputs, &format!("{entry:?}"), &format!("{options:?}")])
    }

    /// Where `core` for an architecture lies once it is built.
    fn core_dir(&self, arch: &str) -> PathBuf {
        let version = cache::key(&[self.toolchain.version()]);
        self.cache.path(&format!("core-{arch}-{}", &version[..8]))
    }

    /// Where the dependencies for an architecture lie once they are built.
    fn dependency_dir(&self, arch: &str) -> PathBuf {
        self.cache.path(&format!("deps-{arch}-{}", self.dependency_inputs))
    }

    /// Builds `core` and the dependencies for an architecture.
    pub fn prepare(&self, arch: &str) -> Result<(), BuildError> {
        self.cache.exclusively(arch, || {
            if !self.core_dir(arch).join("done").exists() {
                self.build_core(arch)?;
            }
            let dir = self.dependency_dir(arch);
            fs::create_dir_all(&dir).map_err(BuildError::io(&dir))?;
            for (i, dependency) in self.dependencies.iter().enumerate() {
                let library = dir.join(format!("lib{}.rlib", dependency.name));
                if !library.exists() {
                    let mut rustc = self.rustc(arch, dependency, &self.dependencies[..i])?;
                    let unfinished = library.with_extension("tmp");
                    run(rustc.arg("--emit=link").arg("-o").arg(&unfinished), &dependency.name)?;
                    fs::rename(&unfinished, &library).map_err(BuildError::io(&library))?;
                }
            }
            Ok(())
        })
    }

    fn build_core(&self, arch: &str) -> Result<(), BuildError> {
        let dir = self.core_dir(arch);
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text).map_err(BuildError::io(&path))
        };
        fs::create_dir_all(dir.join("src")).map_err(BuildError::io(&dir))?;
        // A crate with nothing in it, for cargo to build `core` for.
        write("Cargo.toml", "[package]\nname = \"core-only\"\nedition = \"2024\"\n\n[workspace]\n")?;
        write("src/lib.rs", "#![no_std]\n")?;
        let mut cargo = self.toolchain.command("cargo");
        cargo.current_dir(&dir).env("RUSTFLAGS", format!("-Ctarget-cpu={arch}"));
        cargo.args(["build", "--release", "-Zbuild-std=core", "--target", TARGET, "--target-dir", "target"]);
        run(&mut cargo, &format!("core for {arch}"))?;
        write("done", "")
    }

    /// The compiler, set up for one crate.
    fn rustc(
        &self,
        arch: &str,
        device: &DeviceCrate,
        dependencies: &[DeviceCrate],
    ) -> Result<Command, BuildError> {
        let artifacts = self.core_dir(arch).join(format!("target/{TARGET}/release/deps"));
        let is_core = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libcore-"))
                && path.extension().is_some_and(|extension| extension == "rlib")
        };
        let files = fs::read_dir(&artifacts).map_err(BuildError::io(&artifacts))?;
        let core = files.filter_map(|entry| Some(entry.ok()?.path())).find(is_core);
        let core = core.ok_or_else(|| BuildError::CacheLost { key: artifacts.display().to_string() })?;
        let mut command = self.toolchain.command("rustc");
        command.args(FLAGS).arg(format!("-Ctarget-cpu={arch}"));
        command.arg("-L").arg(&artifacts).arg("--extern").arg(format!("core={}", core.display()));
        for dependency in dependencies {
            let library = self.dependency_dir(arch).join(format!("lib{}.rlib", dependency.name));
            command.arg("--extern").arg(format!("{}={}", dependency.name, library.display()));
        }
        command.env("CARGO_MANIFEST_DIR", &device.dir);
        command.arg("--crate-name").arg(&device.name).arg(device.dir.join("src/lib.rs"));
        Ok(command)
    }

    /// Compiles one entry and returns the compiler's PTX.
    ///
    /// The compiler names its intermediate files after the crate and the output, not after the sources, so two builds that
    /// compile one entry in one folder read each other's: each compilation has a folder of its own.
    pub fn entry(&self, entry: &Entry, options: &Options) -> Result<String, BuildError> {
        let mut rustc = self.rustc(&entry.arch, self.device, self.dependencies)?;
        if let Some(version) = &options.ptx_version {
            rustc.arg(format!("-Ctarget-feature=+ptx{}", version.replace('.', "")));
        }
        let folder = self.cache.scratch(&entry.name)?;
        let output = folder.path().join("entry.ptx");
        rustc.args(["-Zno-link", "--emit=asm", "--cfg", &entry.name]).arg("-o").arg(&output);
        run(&mut rustc, &format!("{} for {}", entry.name, entry.arch))?;
        fs::read_to_string(&output).map_err(BuildError::io(&output))
    }
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
