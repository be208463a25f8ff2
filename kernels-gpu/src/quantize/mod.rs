//! Q, K and V in eight bits, for kernels that multiply those.
//!
//! Two launches. [`statistics`] walks over K and V and leaves what is wanted of their columns, for some chunks of rows each:
//! K's sums, whose mean is then taken from every key (it adds the same to all scores of a row, and softmax does not see
//! it; SageAttention, "smooth K"), and V's sums and bounds, for a scale and a mean of each column. [`rows`] brings the
//! chunks together, and turns rows into bytes and [`scales`](crate::scales), those of Q and K perhaps rotated (`prepared`). What is computed is IEEE arithmetic in a fixed
//! order: every implementation gets the same bytes.
//!
//! A quantised tensor is `[batch, heads, rows, head_dim rounded up to 16]`.

mod block;
mod columns;
mod numbers;
mod prepared;
pub mod rows;
pub mod statistics;
pub mod terms;
mod transposed;

use cuda_std::Warp;

use crate::abi::{Columns, QuantizeParams};
use crate::format::Element;

/// Columns of a chunk of 16 bytes of the source.
pub const COLUMNS: usize = 8;

/// Rows of Q whose mean is subtracted together ("SageAttention3", section 3.1).
pub const QUERIES: usize = 128;

/// Chunks of rows that statistics are left of, at most.
pub const CHUNKS: u32 = 16;

/// Eight neighbours, widened.
type Eight<W> = [<W as Warp>::F32; COLUMNS];

/// A number for each column of a lane's.
type ByColumn<W, const PIECES: usize> = [Eight<W>; PIECES];

/// A chunk of a source, widened.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn unpack<W: Warp, E: Element>(warp: W, words: [W::U32; 4]) -> Eight<W> {
    let [[a, b], [c, d], [e, f], [g, h]] = words.map(|word| E::unpack(warp, word));
    [a, b, c, d, e, f, g, h]
}

/// Where a head's statistics of one kind begin: f32 `[chunks, head_dim]`.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
fn columns_of(params: &QuantizeParams, which: Columns, head: u64) -> u64 {
    let each = params.chunks as u64 * params.head_dim as u64 * 4;
    params.columns + (head * Columns::COUNT + which as u64) * each
}
