//! The machine as a kernel sees it: one warp of 32 lanes that move in step.
//!
//! **Uniform and lane-varying values have different types.** A plain Rust integer is the same in all lanes; a
//! [`Warp::U32`], [`Warp::F32`] or [`Warp::Bool`] may differ from lane to lane. There is no way from a lane-varying
//! value to a Rust `bool` except a vote, so a lane-dependent branch around a collective does not compile: choosing
//! between lane-varying values is [`Warp::select`].
//!
//! All memory methods are `#[track_caller]`, as every helper above them should be: an implementation that checks
//! accesses can then name the line of the algorithm that made one.

use core::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

/// A lane-varying `u32`. The right-hand side of an operator is lane-varying or uniform.
pub trait LaneU32:
    Copy
    + Add<Output = Self>
    + Add<u32, Output = Self>
    + Sub<Output = Self>
    + Mul<u32, Output = Self>
    + Div<u32, Output = Self>
    + Rem<u32, Output = Self>
    + BitXor<Output = Self>
    + BitXor<u32, Output = Self>
    + BitOr<Output = Self>
    + BitAnd<u32, Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
{
    /// The lower and the upper 32 bits of the 64-bit product (`mul.lo.u32`, `mul.hi.u32`).
    fn multiply_wide(self, other: u32) -> [Self; 2];
}

/// A lane-varying `u64`: a global address or a byte offset from one.
pub trait LaneU64: Copy + Add<Output = Self> + Add<u64, Output = Self> + Shl<u32, Output = Self> {}

/// A lane-varying `f32`. Operators round to nearest even, as IEEE 754 has it.
pub trait LaneF32:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Mul<f32, Output = Self>
    + Neg<Output = Self>
{
}

/// A lane-varying predicate. It converts to nothing: see [`Warp::select`] and [`Warp::vote_any`].
pub trait LaneBool: Copy + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self> {}

impl LaneU32 for u32 {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn multiply_wide(self, other: u32) -> [u32; 2] {
        let product = self as u64 * other as u64;
        [product as u32, (product >> 32) as u32]
    }
}
impl LaneU64 for u64 {}
impl LaneF32 for f32 {}
impl LaneBool for bool {}

/// One warp of a running kernel. A value of this type is a handle: it holds no data.
///
/// A cooperative thread array (CTA) is a set of warps that share memory and barriers. Shared memory is addressed in
/// bytes from the CTA's dynamic shared memory, by 32-bit addresses that start at [`Warp::shared_base`].
pub trait Warp: Copy {
    /// Lane-varying unsigned integers, shared-memory addresses, packed pairs of 16-bit floats, packed fours of bytes and
    /// packed eights of nibbles.
    type U32: LaneU32;
    /// Lane-varying global addresses.
    type U64: LaneU64;
    /// Lane-varying single-precision floats.
    type F32: LaneF32;
    /// Lane-varying predicates.
    type Bool: LaneBool;

    // ---- Where am I ---------------------------------------------------------------------------------------------

    /// The CTA's index in a one-dimensional grid (`%ctaid.x`).
    fn block_idx_x(self) -> u32;
    /// The warp's index in its CTA: `threadIdx.x / 32`.
    fn warp_id(self) -> u32;
    /// The lane's index in its warp, 0 to 31.
    fn lane_id(self) -> Self::U32;

    // ---- Arithmetic that is not an operator ---------------------------------------------------------------------

    /// The same integer in every lane.
    fn splat(self, value: u32) -> Self::U32;
    /// The same float in every lane.
    fn splat_f32(self, value: f32) -> Self::F32;
    /// `a * b` in 64 bits (`mul.wide.u32`).
    fn mul_wide(self, a: Self::U32, b: u32) -> Self::U64;
    /// `a < b`.
    fn less(self, a: Self::U32, b: Self::U32) -> Self::Bool;
    /// `a < b`; false if either is NaN.
    fn less_f32(self, a: Self::F32, b: Self::F32) -> Self::Bool;
    /// `mask ? a : b`, lane by lane, without a branch (`selp`).
    fn select(self, mask: Self::Bool, a: Self::U32, b: Self::U32) -> Self::U32;
    /// `mask ? a : b`, lane by lane, without a branch (`selp`).
    fn select_f32(self, mask: Self::Bool, a: Self::F32, b: Self::F32) -> Self::F32;
    /// The larger of two floats; the other one if either is NaN (`max.f32`).
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// The larger of two floats; NaN if either is (`max.NaN.f32`, IEEE 754-2019's maximum).
    fn maximum(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once (`fma.rn.f32`).
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// 2 to the power of `x`, subnormals flushed to zero (`ex2.approx.ftz.f32`: relative error at most 2^-22).
    fn exp2(self, x: Self::F32) -> Self::F32;
    /// The base-2 logarithm, subnormals flushed to zero (`lg2.approx.ftz.f32`: absolute error at most 2^-22 near 1).
    fn log2(self, x: Self::F32) -> Self::F32;
    /// `1 / x`, subnormals flushed to zero (`rcp.approx.ftz.f32`: at most 1 ulp).
    fn reciprocal(self, x: Self::F32) -> Self::F32;
    /// `a / b`, rounded once (`div.rn.f32`). Slower than [`Warp::reciprocal`] and a product, but the same number everywhere.
    fn divide(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// The absolute value (`abs.f32`).
    fn abs(self, x: Self::F32) -> Self::F32;
    /// Two floats rounded to nearest even f16, `low` in bits 0..16 (`cvt.rn.f16x2.f32`).
    fn pack_f16(self, low: Self::F32, high: Self::F32) -> Self::U32;
    /// Two floats rounded to nearest even bf16, `low` in bits 0..16 (`cvt.rn.bf16x2.f32`).
    fn pack_bf16(self, low: Self::F32, high: Self::F32) -> Self::U32;
    /// Four floats rounded to nearest even e4m3, `values[0]` in bits 0..8. What rounds beyond 448 becomes 448, of either sign;
    /// NaN becomes the positive NaN, 0x7F (`cvt.rn.satfinite.e4m3x2.f32` twice, for sm_89 of PTX ISA 8.1; "cvt").
    fn pack_e4m3(self, values: [Self::F32; 4]) -> Self::U32;
    /// Four floats rounded to nearest even integers, `values[0]` in bits 0..8 as two's complement. What rounds below -128 or
    /// above 127 becomes that; NaN becomes 0 (`cvt.rni.s32.f32` four times, `cvt.pack.sat.s8.s32.b32` twice; PTX ISA "cvt",
    /// "cvt.pack").
    fn pack_s8(self, values: [Self::F32; 4]) -> Self::U32;

    /// Eight floats rounded to nearest even e2m1, `values[0]` in bits 0..4. What rounds beyond 6 becomes 6, of either sign; NaN,
    /// which e2m1 has not, becomes the positive 6, 0x7 (`cvt.rn.satfinite.e2m1x2.f32` four times, of PTX ISA 8.6, sm_100a, sm_120a
    /// and their families only; "cvt").
    fn pack_e2m1(self, values: [Self::F32; 8]) -> Self::U32;

    /// The four e4m3 of a word as two pairs of f16, which have all of these numbers; NaN becomes the canonical one
    /// (`cvt.rn.f16x2.e4m3x2` twice, for sm_89 of PTX ISA 8.1; "cvt").
    fn unpack_e4m3(self, word: Self::U32) -> [Self::U32; 2];
    /// The products of two pairs of f16, rounded to nearest even, without flushing subnormals (`mul.rn.f16x2`).
    fn mul_f16x2(self, a: Self::U32, b: Self::U32) -> Self::U32;

    /// Four of the eight bytes of `a`, which are numbers 0 to 3, and `b`: nibble `i` of `selector`, 0 to 7, is the number of byte
    /// `i` (`prmt.b32`).
    fn permute_bytes(self, a: Self::U32, b: Self::U32, selector: u32) -> Self::U32;

    /// The f16 in bits 0..16, widened (`cvt.f32.f16`).
    fn unpack_f16(self, word: Self::U32) -> Self::F32;
    /// The float of these bits (`mov.b32`).
    fn float_from_bits(self, bits: Self::U32) -> Self::F32;
    /// The bits of this float (`mov.b32`).
    fn bits_from_float(self, x: Self::F32) -> Self::U32;
    /// The signed integer of these bits (two's complement) as a float, rounded to nearest even (`cvt.rn.f32.s32`).
    fn float_from_signed(self, bits: Self::U32) -> Self::F32;

    // ---- Across the warp ----------------------------------------------------------------------------------------

    /// Each lane receives the value of the lane whose index differs by `mask` (`shfl.sync.bfly.b32`).
    fn shuffle_xor(self, value: Self::F32, mask: u32) -> Self::F32;
    /// Whether the predicate holds in any lane (`vote.sync.any`). The answer is uniform.
    fn vote_any(self, predicate: Self::Bool) -> bool;
    /// Orders the shared-memory accesses of this warp's lanes (`bar.warp.sync`).
    #[track_caller]
    fn sync_warp(self);

    // ---- Across the CTA -----------------------------------------------------------------------------------------

    /// Waits for all threads of the CTA and orders their shared-memory accesses (`bar.sync 0`).
    #[track_caller]
    fn sync_threads(self);

    /// As [`Warp::sync_threads`]; says whether the predicate holds in any thread of the CTA (`bar.red.or.pred`). The answer
    /// is uniform over the CTA.
    #[track_caller]
    fn sync_threads_or(self, predicate: Self::Bool) -> bool;

    // ---- Shared memory ------------------------------------------------------------------------------------------

    /// The address of the first byte of the CTA's dynamic shared memory, a multiple of 1024: the period of the 128-byte swizzle.
    fn shared_base(self) -> u32;

    /// Four 32-bit words from a 16-byte aligned shared address (`ld.shared.v4.b32`).
    ///
    /// # Safety
    /// The 16 bytes lie in the CTA's shared memory.
    #[track_caller]
    unsafe fn load_shared_x4(self, address: Self::U32) -> [Self::U32; 4];

    /// A float from a 4-byte aligned shared address (`ld.shared.f32`).
    ///
    /// # Safety
    /// The 4 bytes lie in the CTA's shared memory.
    #[track_caller]
    unsafe fn load_shared_f32(self, address: Self::U32) -> Self::F32;

    /// A float to a 4-byte aligned shared address, in the lanes where `mask` holds (`@p st.shared.f32`).
    ///
    /// # Safety
    /// Where `mask` holds, the 4 bytes lie in the CTA's shared memory.
    #[track_caller]
    unsafe fn store_shared_f32(self, address: Self::U32, value: Self::F32, mask: Self::Bool);

    /// One 32-bit word to a 4-byte aligned shared address (`st.shared.b32`).
    ///
    /// # Safety
    /// The 4 bytes lie in the CTA's shared memory.
    #[track_caller]
    unsafe fn store_shared(self, address: Self::U32, value: Self::U32);

    /// Four 8x8 matrices of 16-bit elements (`ldmatrix.sync.aligned.m8n8.x4.shared.b16`; PTX ISA "Warp-level matrix
    /// load instruction: ldmatrix"). Lane `8 i + r` gives the 16-byte aligned address of row `r` of matrix `i`;
    /// lane `l` receives in word `i` the elements `(l / 4, 2 (l % 4))` and the next one of matrix `i`.
    ///
    /// # Safety
    /// Each lane's 16 bytes lie in the CTA's shared memory.
    #[track_caller]
    unsafe fn load_matrix_x4(self, address: Self::U32) -> [Self::U32; 4];

    /// As [`Warp::load_matrix_x4`], each matrix transposed (`.trans`).
    ///
    /// # Safety
    /// Each lane's 16 bytes lie in the CTA's shared memory.
    #[track_caller]
    unsafe fn load_matrix_transposed_x4(self, address: Self::U32) -> [Self::U32; 4];

    // ---- Global memory ------------------------------------------------------------------------------------------

    /// `BYTES` (1, 2 or 4) bytes from a global address that is a multiple of as many, zero-extended, in the lanes where `mask`
    /// holds; 0 in the others (`@p ld.global.u8`, `.u16`, `.u32`).
    ///
    /// # Safety
    /// Where `mask` holds, the bytes lie in a live buffer that nothing writes to.
    #[track_caller]
    unsafe fn load_global<const BYTES: usize>(self, address: Self::U64, mask: Self::Bool) -> Self::U32;

    /// Four 32-bit words from a 16-byte aligned global address, in the lanes where `mask` holds; 0 in the others
    /// (`@p ld.global.v4.u32`).
    ///
    /// # Safety
    /// Where `mask` holds, the 16 bytes lie in a live buffer that nothing writes to.
    #[track_caller]
    unsafe fn load_global_x4(self, address: Self::U64, mask: Self::Bool) -> [Self::U32; 4];

    /// Two 32-bit words from an 8-byte aligned global address, in the lanes where `mask` holds; 0 in the others
    /// (`@p ld.global.v2.u32`).
    ///
    /// # Safety
    /// Where `mask` holds, the 8 bytes lie in a live buffer that nothing writes to.
    #[track_caller]
    unsafe fn load_global_x2(self, address: Self::U64, mask: Self::Bool) -> [Self::U32; 2];

    /// Stores four 32-bit words to a 16-byte aligned global address, in the lanes where `mask` holds
    /// (`@p st.global.v4.b32`).
    ///
    /// # Safety
    /// Where `mask` holds, the 16 bytes lie in a live buffer that nothing else accesses.
    #[track_caller]
    unsafe fn store_global_x4(self, address: Self::U64, value: [Self::U32; 4], mask: Self::Bool);

    /// Stores two 32-bit words to an 8-byte aligned global address, in the lanes where `mask` holds (`@p st.global.v2.b32`).
    ///
    /// # Safety
    /// Where `mask` holds, the 8 bytes lie in a live buffer that nothing else accesses.
    #[track_caller]
    unsafe fn store_global_x2(self, address: Self::U64, value: [Self::U32; 2], mask: Self::Bool);

    /// Stores a float to a 4-byte aligned global address, in the lanes where `mask` holds (`@p st.global.f32`).
    ///
    /// # Safety
    /// Where `mask` holds, the 4 bytes lie in a live buffer that nothing else accesses.
    #[track_caller]
    unsafe fn store_global_f32(self, address: Self::U64, value: Self::F32, mask: Self::Bool);

    /// Stores two floats to an 8-byte aligned global address, in the lanes where `mask` holds (`@p st.global.v2.f32`).
    ///
    /// # Safety
    /// Where `mask` holds, the 8 bytes lie in a live buffer that nothing else accesses.
    #[track_caller]
    unsafe fn store_global_f32x2(self, address: Self::U64, value: [Self::F32; 2], mask: Self::Bool);

    // ---- Asynchronous copies ------------------------------------------------------------------------------------

    /// Starts a copy of 16 bytes from global to shared memory, both 16-byte aligned. The first `bytes` (0 or 16) come
    /// from `source`, the rest are zeros; with 0 the source is not read (`cp.async.cg.shared.global [..], [..], 16, n`;
    /// PTX ISA "cp.async"). The bytes are this thread's to read after [`Warp::cp_async_wait_group`], and other
    /// threads' after a barrier that follows it.
    ///
    /// # Safety
    /// The destination lies in the CTA's shared memory, and the `bytes` of the source in a live buffer.
    #[track_caller]
    unsafe fn cp_async(self, destination: Self::U32, source: Self::U64, bytes: Self::U32);

    /// Closes the group of copies started since the last one (`cp.async.commit_group`).
    fn cp_async_commit_group(self);

    /// Waits until at most `PENDING` of the latest groups are still in flight (`cp.async.wait_group`).
    fn cp_async_wait_group<const PENDING: usize>(self);

    // ---- Bulk tensor copies and the barriers that await them ----------------------------------------------------

    /// Makes the 8-byte aligned shared word at `barrier` an mbarrier whose phases complete after `arrivals` arrivals and all
    /// bytes they announced (`mbarrier.init`, by one lane; PTX ISA "mbarrier"). Other warps may use it after
    /// [`Warp::fence_barrier_init`] and a barrier of the CTA.
    ///
    /// # Safety
    /// The 8 bytes lie in the CTA's shared memory and serve nothing else.
    #[track_caller]
    unsafe fn mbarrier_init(self, barrier: u32, arrivals: u32);

    /// Makes this warp's mbarrier initialisations visible to asynchronous copies (`fence.mbarrier_init.release.cluster`,
    /// `fence.proxy.async.shared::cta`).
    fn fence_barrier_init(self);

    /// Orders this warp's ordinary shared-memory accesses before later asynchronous copies that it knows of
    /// (`fence.proxy.async.shared::cta`).
    fn fence_proxy_async(self);

    /// One arrival of this warp (`mbarrier.arrive`, by one lane).
    ///
    /// # Safety
    /// `barrier` is an mbarrier of the CTA.
    #[track_caller]
    unsafe fn mbarrier_arrive(self, barrier: u32);

    /// One arrival of this warp that announces `bytes` bytes of copies (`mbarrier.arrive.expect_tx`, by one lane).
    ///
    /// # Safety
    /// `barrier` is an mbarrier of the CTA.
    #[track_caller]
    unsafe fn mbarrier_arrive_expect(self, barrier: u32, bytes: u32);

    /// Waits until the mbarrier's phase of this parity (0 or 1) has completed (`mbarrier.try_wait.parity`). The phase before
    /// the first counts as one of parity 1.
    ///
    /// # Safety
    /// `barrier` is an mbarrier of the CTA.
    #[track_caller]
    unsafe fn mbarrier_wait(self, barrier: u32, parity: u32);

    /// Starts the copy of a box of a tensor map from global to shared memory, by one lane
    /// (`cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes`). Elements outside the tensor are
    /// zeros. The box's bytes count towards the mbarrier's current phase; a warp may read them once it has waited for that.
    ///
    /// # Safety
    /// `map` is the address of a tensor map as the host made it, in parameter memory; the box fits at the 128-byte aligned
    /// `destination`; `barrier` is an mbarrier of the CTA.
    #[track_caller]
    unsafe fn copy_tensor(self, destination: u32, map: u64, coordinates: [u32; 4], barrier: u32);

    /// Raises the registers of this warpgroup's threads to `COUNT`, waiting for others to give them up
    /// (`setmaxnreg.inc.sync.aligned.u32`; PTX ISA "setmaxnreg"). All four warps of an aligned group of four must do so,
    /// by the same instruction; `COUNT` is a multiple of 8 from 24 to 256.
    #[track_caller]
    fn increase_registers<const COUNT: u32>(self);

    /// Gives up all registers of this warpgroup's threads above `COUNT` (`setmaxnreg.dec.sync.aligned.u32`), with the same
    /// conditions.
    #[track_caller]
    fn decrease_registers<const COUNT: u32>(self);

    // ---- Matrix multiplication ----------------------------------------------------------------------------------

    /// `d += a b` on a 16x8 tile over 16 values of k: f16 inputs, f32 accumulators
    /// (`mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32`; PTX ISA "Matrix fragments for mma.m16n8k16"). Element
    /// places are [`fragment::m16n8k16`](crate::fragment::m16n8k16).
    fn mma_m16n8k16_f16(self, d: &mut [Self::F32; 4], a: [Self::U32; 4], b: [Self::U32; 2]);

    /// As [`Warp::mma_m16n8k16_f16`] with bf16 inputs.
    fn mma_m16n8k16_bf16(self, d: &mut [Self::F32; 4], a: [Self::U32; 4], b: [Self::U32; 2]);

    /// `d += a b` on a 16x8 tile over 32 values of k: e4m3 inputs, f32 accumulators
    /// (`mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32`, of PTX ISA 8.4; "Matrix fragments for mma.m16n8k32"). Element
    /// places are [`fragment::m16n8k32`](crate::fragment::m16n8k32).
    ///
    /// Accumulators are no wider than the machine makes them. On sm_89 a sum keeps 13 bits of its fraction, the rest is cut
    /// off ("SageAttention2", Zhang et al. 2024): long sums belong in short runs of this instruction, added up by ordinary
    /// additions. sm_90 widens inputs to f16, multiplies them by `mma.m16n8k16`, and adds the result to `d` as f32.
    fn mma_m16n8k32_e4m3(self, d: &mut [Self::F32; 4], a: [Self::U32; 4], b: [Self::U32; 2]);

    /// As [`Warp::mma_m16n8k32_e4m3`] with f16 accumulators, two to a register: `d[0]` holds those of the first two registers of f32
    /// accumulators, the first in its low half, `d[1]` those of the other two
    /// (`mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16`, of PTX ISA 8.7). On GeForce it has twice the rate. Sums beyond 65504
    /// become infinite.
    fn mma_m16n8k32_e4m3_f16(self, d: &mut [Self::U32; 2], a: [Self::U32; 4], b: [Self::U32; 2]);

    /// As [`Warp::mma_m16n8k32_e4m3`] with inputs in blocks of 32 values of k, each block with a scale of its own, all of which
    /// are 1 here (`mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0`, of
    /// PTX ISA 8.7, sm_120a and its family only; "Block scaling for mma.sync"). On GeForce it has twice the rate of the
    /// instruction without scales.
    fn mma_m16n8k32_mxf8(self, d: &mut [Self::F32; 4], a: [Self::U32; 4], b: [Self::U32; 2]);

    /// As [`Warp::mma_m16n8k32_e4m3`] with signed bytes as inputs and 32-bit signed accumulators, which wrap around
    /// (`mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32`).
    fn mma_m16n8k32_s8(self, d: &mut [Self::U32; 4], a: [Self::U32; 4], b: [Self::U32; 2]);

    /// `d += a b` on a 16x8 tile over 64 values of k: e2m1 inputs in blocks of 16 values of k, each block with a scale in ue4m3
    /// (e4m3 without its sign, whose bit is zero), f32 accumulators
    /// (`mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3`, of PTX ISA 8.7,
    /// sm_120a and its family only; "Block scaling for mma.sync"). Element places are
    /// [`fragment::m16n8k64`](crate::fragment::m16n8k64), where `ID_A`, 0 or 1, and `ID_B`, 0 to 3, are the thread ids.
    fn mma_m16n8k64_nvf4<const ID_A: u32, const ID_B: u32>(
        self,
        d: &mut [Self::F32; 4],
        a: [Self::U32; 4],
        b: [Self::U32; 2],
        scale_a: Self::U32,
        scale_b: Self::U32,
    );
}
