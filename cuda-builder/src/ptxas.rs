//! The assembler: what a kernel costs, and its machine code.

use std::path::{Path, PathBuf};
use std::process::Command;

/// NVIDIA's binary tools, where they are installed.
#[derive(Clone, Debug)]
pub struct Tools {
    dir: PathBuf,
}

/// What `ptxas -v` reports of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: usize,
    /// Bytes of spill stores.
    pub spill_stores: usize,
    /// Bytes of spill loads.
    pub spill_loads: usize,
    /// Bytes of a thread's stack frame.
    pub stack: usize,
    /// Bytes of shared memory of fixed size; what a launch adds is not among them.
    pub static_shared: usize,
    /// Named barriers, the highest number used plus one.
    pub barriers: usize,
    /// Warnings, and notes on lost performance (as of serialised `wgmma`).
    pub warnings: Vec<String>,
}

/// Why no answer came from a tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The tools are nowhere.
    #[error("no ptxas in {looked}; install the CUDA compiler package, or name its folder in FFPA_CUDA_BIN")]
    Missing {
        /// Where it was looked for.
        looked: String,
    },
    /// A tool refused.
    #[error("{tool} failed: {stderr}")]
    Failed {
        /// The tool.
        tool: &'static str,
        /// Its words.
        stderr: String,
    },
    /// A tool's answer was not understood.
    #[error("{tool} said something unexpected: {output}")]
    Unexpected {
        /// The tool.
        tool: &'static str,
        /// Its words.
        output: String,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Tools {
    /// Looks in `FFPA_CUDA_BIN`, in a Python package's folder (`CUDA_TOOLS`, or the user's cache), in `CUDA_HOME`, in the
    /// usual places, and on the path.
    ///
    /// # Errors
    /// [`ToolError::Missing`].
    pub fn find() -> Result<Self, ToolError> {
        let variable = |name: &str, rest: &str| std::env::var_os(name).map(|dir| Path::new(&dir).join(rest));
        let mut dirs: Vec<PathBuf> = [
            variable("FFPA_CUDA_BIN", ""),
            variable("CUDA_TOOLS", "nvidia/cu13/bin"),
            variable("HOME", ".cache/cuda-tools/nvidia/cu13/bin"),
            variable("CUDA_HOME", "bin"),
            Some("/usr/local/cuda/bin".into()),
        ]
        .into_iter()
        .flatten()
        .collect();
        dirs.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
        match dirs.iter().find(|dir| dir.join("ptxas").is_file()) {
            Some(dir) => Ok(Tools { dir: dir.clone() }),
            None => {
                let looked = dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ");
                Err(ToolError::Missing { looked })
            }
        }
    }

    /// Assembles a module to `cubin`, for an architecture that may be another than the module's target.
    ///
    /// # Errors
    /// If ptxas refuses, or reports in words not understood.
    pub fn assemble(&self, ptx: &str, arch: &str, cubin: &Path) -> Result<Resources, ToolError> {
        let source = cubin.with_extension("ptx");
        std::fs::write(&source, ptx)?;
        let mut command = Command::new(self.dir.join("ptxas"));
        let output =
            command.arg("-v").arg(format!("-arch={arch}")).arg(&source).arg("-o").arg(cubin).output()?;
        let text =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(ToolError::Failed { tool: "ptxas", stderr: text });
        }
        Resources::parse(&text).ok_or(ToolError::Unexpected { tool: "ptxas", output: text })
    }

    /// The machine code of an assembled module, as text.
    ///
    /// # Errors
    /// If cuobjdump refuses.
    pub fn disassemble(&self, cubin: &Path) -> Result<String, ToolError> {
        let output = Command::new(self.dir.join("cuobjdump")).arg("-sass").arg(cubin).output()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(ToolError::Failed { tool: "cuobjdump", stderr });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Resources {
    fn parse(report: &str) -> Option<Self> {
        let before = |unit: &str| -> Option<usize> {
            report[..report.find(unit)?].split_whitespace().next_back()?.parse().ok()
        };
        let warns = |line: &&str| line.starts_with("ptxas warning") || line.contains("Performance Loss");
        Some(Resources {
            registers: before(" registers")?,
            spill_stores: before(" bytes spill stores")?,
            spill_loads: before(" bytes spill loads")?,
            stack: before(" bytes stack frame")?,
            // Left out of the report where there is none.
            static_shared: before(" bytes smem").unwrap_or(0),
            barriers: before(" barriers").unwrap_or(0),
            warnings: report.lines().filter(warns).map(Into::into).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Resources;

    #[test]
    fn reads_the_report() {
        let report = "ptxas info    : Compiling entry function 'f' for 'sm_89'\n\
                      ptxas info    : Function properties for f\n\
                      \x20   8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n\
                      ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async are serialized\n\
                      ptxas info    : Used 254 registers, used 3 barriers, 8 bytes cumulative stack size, 64 bytes smem\n";
        let got = Resources::parse(report).expect("a report");
        assert_eq!((got.registers, got.spill_stores, got.spill_loads, got.stack), (254, 12, 16, 8));
        assert_eq!((got.static_shared, got.barriers, got.warnings.len()), (64, 3, 1));
        let short = "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nUsed 4 registers, 352 bytes cmem[0]\n";
        assert_eq!(Resources::parse(short), Some(Resources { registers: 4, ..Resources::default() }));
        assert_eq!(Resources::parse("ptxas fatal"), None);
    }
}
