//! Compiles device crates to PTX with upstream rustc's `nvptx64-nvidia-cuda` backend.
//!
//! Shaped like rust-cuda's builder, over another compiler: a nightly with `rust-src` is all it needs, no CUDA.
//!
//! ```no_run
//! use cuda_builder::{CudaBuilder, Entry};
//!
//! let modules = CudaBuilder::new("my_kernels", "kernels")
//!     .dependency("cuda_std", "cuda-std")
//!     .entry(Entry { name: "saxpy".into(), arch: "sm_89".into(), threads: 256, min_blocks: 1 })
//!     .cache_dir("target/ptx-cache")
//!     .build()?;
//! # Ok::<(), cuda_builder::BuildError>(())
//! ```
//!
//! One entry makes one module: the device crate compiles its entry `NAME` only under `--cfg NAME`. `core` is compiled once
//! per architecture, the dependencies once per architecture, and the entries side by side on all cores; what is built is
//! kept in a cache by content. Then the PTX is edited ([`stamp`]) and checked ([`check`]); with [`ptxas`] at hand, its
//! registers, spills and machine code can be looked at ([`sass`]).

pub mod cache;
pub mod check;
mod compile;
pub mod cuda_root;
mod error;
pub mod ptx;
pub mod ptxas;
pub mod sass;
pub mod stamp;
mod toolchain;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cache::Cache;
use compile::{Compiler, DeviceCrate};
pub use error::{BuildError, Unfitness};
use toolchain::Toolchain;

/// A kernel to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its function's name.
    pub name: String,
    /// What it is compiled for: `sm_89`, `sm_90a`, `sm_120f`.
    pub arch: String,
    /// Threads of a CTA.
    pub threads: usize,
    /// CTAs that must fit on a multiprocessor: bounds the registers of a thread.
    pub min_blocks: usize,
}

/// What a kernel needs beyond an [`Entry`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Most registers of a thread (`.maxnreg`), beside the bound that `min_blocks` implies. Not for kernels whose warps trade
    /// registers (`setmaxnreg`).
    pub max_registers: Option<u32>,
    /// The version of PTX, such as `8.4`, if it is to be newer than the oldest that has the architecture.
    pub ptx_version: Option<String>,
}

/// A built kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// What it was built from.
    pub entry: Entry,
    /// The PTX.
    pub ptx: String,
}

/// Collects what to build, then builds it.
#[derive(Clone, Debug)]
pub struct CudaBuilder {
    device: DeviceCrate,
    dependencies: Vec<DeviceCrate>,
    entries: Vec<(Entry, Options)>,
    cache_dir: PathBuf,
}

impl CudaBuilder {
    /// Builds the crate `name`, whose `src/lib.rs` lies in `dir`.
    pub fn new(name: &str, dir: impl AsRef<Path>) -> Self {
        CudaBuilder {
            device: DeviceCrate::new(name, dir.as_ref()),
            dependencies: Vec::new(),
            entries: Vec::new(),
            cache_dir: PathBuf::from("target/ptx-cache"),
        }
    }

    /// A crate that the device crate, or a later dependency, uses.
    #[must_use]
    pub fn dependency(mut self, name: &str, dir: impl AsRef<Path>) -> Self {
        self.dependencies.push(DeviceCrate::new(name, dir.as_ref()));
        self
    }

    /// A kernel to build.
    #[must_use]
    pub fn entry(self, entry: Entry) -> Self {
        self.entry_with(entry, Options::default())
    }

    /// A kernel to build that needs more than usual.
    #[must_use]
    pub fn entry_with(mut self, entry: Entry, options: Options) -> Self {
        self.entries.push((entry, options));
        self
    }

    /// Where built modules are kept from build to build. Builds may share one.
    #[must_use]
    pub fn cache_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.cache_dir = dir.as_ref().to_path_buf();
        self
    }

    /// Builds all entries, in the order in which they were given.
    ///
    /// # Errors
    /// [`BuildError::ToolchainMissing`] names the command that mends it; [`BuildError::Compile`] carries the compiler's
    /// words; [`BuildError::Unfit`] names what in the PTX would make a kernel slow or wrong, [`BuildError::RegisterLimit`] an
    /// option that would make it hang.
    pub fn build(&self) -> Result<Vec<Module>, BuildError> {
        let toolchain = Toolchain::find()?;
        let cache = Cache::open(&self.cache_dir)?;
        let compiler = Compiler::new(&toolchain, &cache, &self.device, &self.dependencies)?;
        let keys: Vec<String> =
            self.entries.iter().map(|(entry, options)| compiler.key(entry, options)).collect();
        let missing: Vec<usize> = (0..keys.len()).filter(|&i| cache.get(&keys[i]).is_none()).collect();
        let mut archs: Vec<&str> = missing.iter().map(|&i| self.entries[i].0.arch.as_str()).collect();
        archs.sort_unstable();
        archs.dedup();
        in_parallel(&archs, |arch| compiler.prepare(arch))?;
        in_parallel(&missing, |&i| {
            let (entry, options) = &self.entries[i];
            let ptx = stamp::stamp(&compiler.entry(entry, options)?, entry, options)?;
            check::local_memory_and_calls(&ptx, &entry.name)?;
            cache.put(&keys[i], &ptx)
        })?;
        let module = |((entry, _), key): (&(Entry, Options), &String)| {
            let ptx = cache.get(key).ok_or_else(|| BuildError::CacheLost { key: key.clone() })?;
            Ok(Module { entry: entry.clone(), ptx })
        };
        self.entries.iter().zip(&keys).map(module).collect()
    }
}

/// Runs `work` on every item, on all cores; the first error in the order of items wins.
fn in_parallel<T: Sync>(
    items: &[T],
    work: impl Fn(&T) -> Result<(), BuildError> + Sync,
) -> Result<(), BuildError> {
    let (next, errors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(items.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(i) else { return };
                    if let Err(error) = work(item) {
                        errors.lock().expect("no thread panics while it holds the lock").push((i, error));
                    }
                }
            });
        }
    });
    let mut errors = errors.into_inner().expect("no thread panics while it holds the lock");
    errors.sort_by_key(|(i, _)| *i);
    errors.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}
