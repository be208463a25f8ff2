//! The nightly that compiles for the device.

use std::process::Command;

use crate::error::BuildError;

/// A nightly toolchain with the sources of `core`.
pub struct Toolchain {
    name: String,
    version: String,
}

/// Variables by which an outer cargo or rustc speaks to its children: to a nested one they are wrong. Those by which the
/// user says where cargo lives and how it reaches a registry stay.
fn belongs_to_outer_build(name: &str) -> bool {
    let kept = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_", "RUSTUP_HOME"];
    let outer = ["CARGO", "RUSTC", "RUSTFLAGS", "RUSTDOC", "RUSTUP_TOOLCHAIN", "MAKEFLAGS", "NUM_JOBS"];
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    begins(&outer) && !begins(&kept)
}

impl Toolchain {
    /// The toolchain that `FFPA_NIGHTLY` names, by default `nightly`.
    pub fn find() -> Result<Self, BuildError> {
        Self::named(std::env::var("FFPA_NIGHTLY").unwrap_or_else(|_| "nightly".into()))
    }

    fn named(name: String) -> Result<Self, BuildError> {
        let mut toolchain = Toolchain { name, version: String::new() };
        toolchain.version = toolchain.output("rustc", &["-vV"])?;
        let sysroot = toolchain.output("rustc", &["--print", "sysroot"])?;
        let core = std::path::Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs");
        if !core.exists() {
            return Err(toolchain.missing("its component rust-src is not installed"));
        }
        Ok(toolchain)
    }

    /// What `rustc -vV` says.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// A tool of the toolchain, in a clean environment.
    pub fn command(&self, tool: &str) -> Command {
        let mut command = Command::new("rustup");
        command.args(["run", &self.name, tool]);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(belongs_to_outer_build) {
                command.env_remove(name);
            }
        }
        command
    }

    fn output(&self, tool: &str, arguments: &[&str]) -> Result<String, BuildError> {
        let output = self.command(tool).args(arguments).output();
        let output = output.map_err(|error| self.missing(&format!("rustup does not start: {error}")))?;
        if !output.status.success() {
            return Err(self.missing(String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn missing(&self, reason: &str) -> BuildError {
        BuildError::ToolchainMissing { toolchain: self.name.clone(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_toolchain_names_the_command_that_mends_it() {
        let error = Toolchain::named("no-such-toolchain".into()).err().expect("it is not installed");
        let said = error.to_string();
        assert!(said.contains("rustup toolchain install no-such-toolchain --component rust-src"), "{said}");
    }

    #[test]
    fn only_the_outer_builds_variables_go() {
        for name in [
            "CARGO",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_MAKEFLAGS",
            "CARGO_TARGET_DIR",
            "RUSTC",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
        ] {
            assert!(belongs_to_outer_build(name), "{name}");
        }
        for name in ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_HTTP_CAINFO", "RUSTUP_HOME", "PATH", "HOME"] {
            assert!(!belongs_to_outer_build(name), "{name}");
        }
    }
}
