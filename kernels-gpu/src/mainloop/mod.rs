//! The algorithm: FlashAttention-2's forward pass (Dao 2023, algorithm 1), one file per way of holding the tiles.

mod persist_d;

pub use persist_d::persist_d;
