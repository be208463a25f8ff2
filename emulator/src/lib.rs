//! A GPU on the CPU, for kernels that are generic over [`cuda_std::Warp`].
//!
//! The emulator is the second implementation of that trait, not an interpreter and not a second kernel, and it is
//! stricter than hardware. What the machine would let pass by luck is a [`Fault`] here, on every run:
//!
//! * races, found by happens-before and not by timing ([`mod@shared`], `clock`);
//! * reads of shared memory that nobody wrote, or that a copy in flight has yet to write;
//! * accesses out of range, misaligned, or outside the buffers of the launch ([`global`]);
//! * barriers that not all warps reach;
//! * mbarriers that anything but their own operations touches, registers that part of a group of warps trades.
//!
//! Faults name the lines of the algorithm, through every helper that is `#[track_caller]`.
//!
//! A warp's values are arrays over its 32 lanes, so lanes are always in step. The warps of a CTA are coroutines in one
//! thread, in an order drawn from a seed; CTAs spread over all cores ([`grid`]).

mod arithmetic;
mod bulk;
mod clock;
mod copies;
mod counters;
mod cta;
mod e2m1;
mod e4m3;
mod fault;
pub mod global;
pub mod grid;
mod lanes;
mod matrix;
mod random;
mod registers;
pub mod shared;
mod tensor_map;
mod warp;

pub use counters::Counters;
pub use fault::{Access, Fault, Place};
pub use global::{Buffer, Buffers};
pub use grid::{Launch, launch};
pub use lanes::Lanes;
pub use matrix::Accumulators;
pub use tensor_map::TensorMap;
pub use warp::Emu;
