//! What a launch did, counted.

/// Instructions and traffic of a launch, summed over its CTAs. Instructions are warp-wide ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Matrix multiplications (`mma.sync`).
    pub mma: u64,
    /// Operations of those: two a product.
    pub mma_flops: u64,
    /// `ldmatrix` instructions.
    pub matrix_loads: u64,
    /// Other shared-memory loads.
    pub shared_loads: u64,
    /// Shared-memory stores.
    pub shared_stores: u64,
    /// `cp.async` instructions.
    pub copies: u64,
    /// Bulk copies of tensors' boxes.
    pub bulk_copies: u64,
    /// CTA barriers, once per CTA.
    pub barriers: u64,
    /// Shared-memory wavefronts beyond the least possible.
    pub bank_conflicts: u64,
    /// Bytes read from global memory.
    pub global_bytes_read: u64,
    /// Bytes written to global memory.
    pub global_bytes_written: u64,
}

impl std::ops::Add for Counters {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Counters {
            mma: self.mma + other.mma,
            mma_flops: self.mma_flops + other.mma_flops,
            matrix_loads: self.matrix_loads + other.matrix_loads,
            shared_loads: self.shared_loads + other.shared_loads,
            shared_stores: self.shared_stores + other.shared_stores,
            copies: self.copies + other.copies,
            bulk_copies: self.bulk_copies + other.bulk_copies,
            barriers: self.barriers + other.barriers,
            bank_conflicts: self.bank_conflicts + other.bank_conflicts,
            global_bytes_read: self.global_bytes_read + other.global_bytes_read,
            global_bytes_written: self.global_bytes_written + other.global_bytes_written,
        }
    }
}
