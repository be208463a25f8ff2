//! The developer's commands, as functions: `cargo xtask --help` lists them.

pub mod bundle;
pub mod results;
pub mod stats;

use std::path::{Path, PathBuf};

/// What a command says when it fails.
pub type Failure = Box<dyn std::error::Error>;

/// The workspace's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Where builds put things.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
