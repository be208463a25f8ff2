//! Why a build failed.

use std::path::{Path, PathBuf};

/// Why a build failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No compiler for the device target.
    #[error(
        "no device toolchain ({reason}); run: rustup toolchain install {toolchain} --component rust-src \
         (or name another nightly in FFPA_NIGHTLY)"
    )]
    ToolchainMissing {
        /// The toolchain looked for.
        toolchain: String,
        /// What is missing.
        reason: String,
    },
    /// The compiler refused.
    #[error("{what} does not compile:\n{stderr}")]
    Compile {
        /// What was compiled.
        what: String,
        /// The compiler's words.
        stderr: String,
    },
    /// The PTX is not what was expected.
    #[error("PTX of {entry}: {problem}")]
    Ptx {
        /// The kernel.
        entry: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The PTX would be slow or wrong.
    #[error("kernel {entry} is unfit: {} at line {line} of its PTX: {text}", why.as_str())]
    Unfit {
        /// The kernel.
        entry: String,
        /// What makes it so.
        why: Unfitness,
        /// Line of the PTX.
        line: usize,
        /// That line.
        text: String,
    },
    /// A limit on the registers of a thread, for a kernel whose warps trade registers.
    #[error(
        "kernel {entry} moves registers between its warps (setmaxnreg), which at most {max_registers} a thread leave too \
         few of: it would wait for ever; leave max_registers out and let min_blocks bound them"
    )]
    RegisterLimit {
        /// The kernel.
        entry: String,
        /// The limit.
        max_registers: u32,
    },
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        error: std::io::Error,
    },
    /// An entry of the cache went away while it was in use.
    #[error("the PTX cache lost {key} during the build; build again")]
    CacheLost {
        /// The entry.
        key: String,
    },
    /// The host cannot have a link root.
    #[error("a link root for libcuda needs x86-64 Linux, this is {target}; use a CUDA toolkit's stubs there")]
    NoLinkRoot {
        /// The host.
        target: String,
    },
}

/// What makes a kernel unfit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfitness {
    /// Local memory: a register array that was not fully unrolled.
    LocalMemory,
    /// A call: a function that was not inlined, or a panic.
    Call,
}

impl Unfitness {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Unfitness::LocalMemory => {
                "it uses local memory (an array indexed at run time, or a loop not unrolled)"
            }
            Unfitness::Call => "it calls a function (something not inlined, or a panic path)",
        }
    }
}

impl BuildError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> BuildError + use<> {
        let path = path.to_path_buf();
        move |error| BuildError::Io { path, error }
    }
}
