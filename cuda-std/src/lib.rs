//! The one door to the hardware.
//!
//! Kernels are written once, generic over [`Warp`], and run in two worlds: as PTX, through `ptx::Ptx`, and on the
//! CPU, through the emulator crate's implementation. Every instruction of the project is named here and nowhere else.
//!
//! * [`warp`]: the [`Warp`] trait, one method per instruction, and the lane-varying value types.
//! * [`fragment`]: which lane and register of a warp holds which matrix element.
//! * [`swizzle`]: where in shared memory a tile's 16-byte chunks lie, so that no access conflicts on a bank.
//! * `ptx`: the implementation on NVIDIA hardware (only on the `nvptx64` target).
//!
//! Names follow rust-cuda's `cuda_std` where it has the thing. PTX ISA sections are cited by their titles.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, stdarch_nvptx, link_llvm_intrinsics))]

pub mod fragment;
#[cfg(target_arch = "nvptx64")]
pub mod ptx;
pub mod swizzle;
pub mod warp;

pub use warp::{LaneBool, LaneF32, LaneU32, LaneU64, Warp};

/// Where this crate's sources lie, for builds that compile it for a device.
pub const SOURCE_DIR: &str = env!("CARGO_MANIFEST_DIR");
