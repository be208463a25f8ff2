//! Attention forward kernels, written once and generic over [`cuda_std::Warp`].
//!
//! On the `nvptx64` target each row of the [`catalog`] becomes a PTX entry; on any other this is an ordinary library
//! that the emulator instantiates. The modules stand in the order in which a tile travels:
//!
//! * [`abi`]: what the host passes.
//! * [`catalog`]: the table of kernels; one row makes the entry, the host's descriptor and the emulator's instance.
//! * [`config`]: a kernel's compile-time choices and its shared-memory plan.
//! * [`entry`]: from parameters and block index to one CTA's work.
//! * [`schedule`]: which query tile, which keys, where masking begins.
//! * [`mainloop`]: the algorithm.
//! * [`pipeline`]: tiles on their way into shared memory.
//! * [`matmul`], [`mask`], [`softmax`], [`dropout`], [`epilogue`]: its steps.
//! * [`combine`]: results over parts of the keys, brought together.
//! * [`quantize`]: 16-bit tensors in eight bits.
//! * [`format`]: element types, their matrix instructions and roundings.
//! * [`scales`]: what quantised numbers stand for.
//! * [`tile`]: global, shared and register tiles.
//!
//! On the device everything must be inlined into the entry, since register arrays cannot cross a call. Elsewhere it must
//! not: the emulator's lanes are arrays, and dozens of kernels inlined whole take minutes to compile.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]
// Loops over tiles count row and column tiles, as the formulas do.
#![allow(clippy::needless_range_loop)]

pub mod abi;
pub mod catalog;
pub mod combine;
pub mod config;
pub mod dropout;
pub mod entry;
pub mod epilogue;
pub mod format;
pub mod mainloop;
pub mod mask;
pub mod matmul;
pub mod pipeline;
pub mod quantize;
pub mod scales;
pub mod schedule;
pub mod softmax;
pub mod tile;

/// Where this crate's sources lie, for builds that compile it for a device.
pub const SOURCE_DIR: &str = env!("CARGO_MANIFEST_DIR");
/// Where the sources of [`cuda_std`] lie.
pub const CUDA_STD_SOURCE_DIR: &str = cuda_std::SOURCE_DIR;
