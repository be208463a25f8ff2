//! The algorithm: FlashAttention-2's forward pass (Dao 2023, algorithm 1), one file per way of holding the head dimension.

mod persist_d;
mod split_d;

pub use persist_d::persist_d;
pub use split_d::split_d;
