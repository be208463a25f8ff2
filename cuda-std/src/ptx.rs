//! [`Warp`] on NVIDIA hardware: one instruction per method.
//!
//! Barriers, shuffles and votes are LLVM intrinsics, never `asm!`: LLVM does not treat inline assembly as convergent
//! and may copy it into both arms of a branch, which for a barrier is undefined behaviour (PTX ISA, "bar.sync": all
//! threads of a warp must execute the same one). What stands in `asm!` here is safe because kernels cannot write a
//! lane-dependent branch.

use core::arch::asm;
use core::arch::nvptx;

use crate::Warp;

unsafe extern "C" {
    #[link_name = "llvm.nvvm.shfl.sync.bfly.f32"]
    fn shfl_sync_bfly_f32(members: u32, value: f32, lane_mask: u32, clamp: u32) -> f32;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn vote_any_sync(members: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(members: u32);
    #[link_name = "llvm.nvvm.barrier0.or"]
    fn barrier0_or(predicate: i32) -> i32;
}

/// Lanes that take part in a warp-wide operation: all.
const FULL_WARP: u32 = u32::MAX;

/// Four scales of 1 in UE8M0: powers of two with bias 127 (PTX ISA, "Alternate floating-point data formats").
const SCALES_OF_ONE: u32 = 0x7F7F_7F7F;

/// Declares the kernel's dynamic shared memory, whose size is given at launch. Stands once in a crate with entries:
/// the declaration must be in the same PTX module as they.
#[macro_export]
macro_rules! declare_shared_memory {
    () => {
        core::arch::global_asm!(".extern .shared .align 1024 .b8 dynamic_shared_memory[];");
    };
}

/// The generic address of a kernel's first parameter, passed by value, from the entry's name: bulk copies read tensor maps
/// where the driver put them. A reference taken in Rust would be to a copy in local memory.
#[macro_export]
macro_rules! parameter_address {
    ($entry:ident) => {{
        let address: u64;
        // SAFETY: reads a constant.
        unsafe {
            core::arch::asm!(
                concat!("{{ .reg .b64 t; mov.b64 t, ", stringify!($entry), "_param_0; cvta.param.u64 {0}, t; }}"),
                out(reg64) address, options(pure, nomem, nostack)
            )
        };
        address
    }};
}

/// The calling warp on the device.
#[derive(Clone, Copy)]
pub struct Ptx;

/// The state space that bulk copies go to, this CTA's shared memory, by the widest name that sm_90a's PTX version has and by its
/// own name (PTX ISA 8.6) elsewhere. By the wide one, ptxas 13.0 asks at run time on sm_120f whether the address is this
/// CTA's and makes an external call if not, for which it saves registers around every copy and ignores `setmaxnreg`.
#[cfg(target_feature = "sm_90a")]
macro_rules! own_shared_memory {
    () => {
        "shared::cluster"
    };
}
#[cfg(not(target_feature = "sm_90a"))]
macro_rules! own_shared_memory {
    () => {
        "shared::cta"
    };
}

/// A warp-wide or memory instruction without results.
macro_rules! instruction {
    ($($text:expr),+ ; $($operands:tt)*) => {
        // SAFETY: the instruction does what the calling method's contract says, and nothing else.
        unsafe { asm!($($text),+, $($operands)* options(nostack)) }
    };
}

/// An instruction that only computes: the compiler may move, merge or drop it.
macro_rules! compute {
    ($text:literal, $out:ident: $class:ident $(, $($operands:tt)+)?) => {{
        let $out;
        // SAFETY: the instruction reads and writes registers only.
        unsafe { asm!($text, out($class) $out, $($($operands)+,)? options(pure, nomem, nostack)) }
        $out
    }};
}

/// A matrix instruction: `d += a b`. What follows its four operands is `$tail`.
macro_rules! multiply {
    ($opcode:literal, $d:ident, $a:ident, $b:ident $(, $tail:literal, $($operands:tt)+)?) => {
        // SAFETY: reads and writes registers only.
        unsafe {
            asm!(concat!($opcode, " {{{0},{1},{2},{3}}}, {{{4},{5},{6},{7}}}, {{{8},{9}}}, {{{0},{1},{2},{3}}}", $($tail,)? ";"),
                inout(reg32) $d[0], inout(reg32) $d[1], inout(reg32) $d[2], inout(reg32) $d[3],
                in(reg32) $a[0], in(reg32) $a[1], in(reg32) $a[2], in(reg32) $a[3],
                in(reg32) $b[0], in(reg32) $b[1], $($($operands)+,)? options(pure, nomem, nostack))
        }
    };
}

impl Warp for Ptx {
    type U32 = u32;
    type U64 = u64;
    type F32 = f32;
    type Bool = bool;

    #[inline(always)]
    fn block_idx_x(self) -> u32 {
        // SAFETY: reads a special register.
        unsafe { nvptx::_block_idx_x() as u32 }
    }
    #[inline(always)]
    fn warp_id(self) -> u32 {
        // SAFETY: reads a special register.
        unsafe { nvptx::_thread_idx_x() as u32 >> 5 }
    }
    #[inline(always)]
    fn lane_id(self) -> u32 {
        // SAFETY: reads a special register.
        unsafe { nvptx::_thread_idx_x() as u32 & 31 }
    }

    #[inline(always)]
    fn splat(self, value: u32) -> u32 {
        value
    }
    #[inline(always)]
    fn splat_f32(self, value: f32) -> f32 {
        value
    }
    #[inline(always)]
    fn mul_wide(self, a: u32, b: u32) -> u64 {
        a as u64 * b as u64
    }
    #[inline(always)]
    fn less(self, a: u32, b: u32) -> bool {
        a < b
    }
    #[inline(always)]
    fn less_f32(self, a: f32, b: f32) -> bool {
        a < b
    }
    #[inline(always)]
    fn select(self, mask: bool, a: u32, b: u32) -> u32 {
        if mask { a } else { b }
    }
    #[inline(always)]
    fn select_f32(self, mask: bool, a: f32, b: f32) -> f32 {
        if mask { a } else { b }
    }
    #[inline(always)]
    fn max(self, a: f32, b: f32) -> f32 {
        compute!("max.f32 {0}, {1}, {2};", r: reg32, in(reg32) a, in(reg32) b)
    }
    #[inline(always)]
    fn maximum(self, a: f32, b: f32) -> f32 {
        compute!("max.NaN.f32 {0}, {1}, {2};", r: reg32, in(reg32) a, in(reg32) b)
    }
    #[inline(always)]
    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        compute!("fma.rn.f32 {0}, {1}, {2}, {3};", r: reg32, in(reg32) a, in(reg32) b, in(reg32) c)
    }
    #[inline(always)]
    fn exp2(self, x: f32) -> f32 {
        compute!("ex2.approx.ftz.f32 {0}, {1};", r: reg32, in(reg32) x)
    }
    #[inline(always)]
    fn log2(self, x: f32) -> f32 {
        compute!("lg2.approx.ftz.f32 {0}, {1};", r: reg32, in(reg32) x)
    }
    #[inline(always)]
    fn reciprocal(self, x: f32) -> f32 {
        compute!("rcp.approx.ftz.f32 {0}, {1};", r: reg32, in(reg32) x)
    }
    #[inline(always)]
    fn divide(self, a: f32, b: f32) -> f32 {
        compute!("div.rn.f32 {0}, {1}, {2};", r: reg32, in(reg32) a, in(reg32) b)
    }
    #[inline(always)]
    fn abs(self, x: f32) -> f32 {
        compute!("abs.f32 {0}, {1};", r: reg32, in(reg32) x)
    }
    #[inline(always)]
    fn pack_f16(self, low: f32, high: f32) -> u32 {
        compute!("cvt.rn.f16x2.f32 {0}, {2}, {1};", r: reg32, in(reg32) low, in(reg32) high)
    }
    #[inline(always)]
    fn pack_bf16(self, low: f32, high: f32) -> u32 {
        compute!("cvt.rn.bf16x2.f32 {0}, {2}, {1};", r: reg32, in(reg32) low, in(reg32) high)
    }
    #[inline(always)]
    fn pack_e4m3(self, [a, b, c, d]: [f32; 4]) -> u32 {
        compute!("{{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, {2}, {1}; cvt.rn.satfinite.e4m3x2.f32 high, {4}, {3}; mov.b32 {0}, {{low, high}}; }}",
            r: reg32, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d)
    }
    // cvt.pack shifts the low half of its last operand up and puts its other two in order below, the first above the second.
    #[inline(always)]
    fn pack_s8(self, [a, b, c, d]: [f32; 4]) -> u32 {
        compute!("{{ .reg .b32 i, j, high; cvt.rni.s32.f32 i, {3}; cvt.rni.s32.f32 j, {4}; cvt.pack.sat.s8.s32.b32 high, j, i, 0; cvt.rni.s32.f32 i, {1}; cvt.rni.s32.f32 j, {2}; cvt.pack.sat.s8.s32.b32 {0}, j, i, high; }}",
            r: reg32, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d)
    }

    #[inline(always)]
    fn pack_e2m1(self, [a, b, c, d, e, f, g, h]: [f32; 8]) -> u32 {
        compute!("{{ .reg .b8 i, j, k, l; cvt.rn.satfinite.e2m1x2.f32 i, {2}, {1}; cvt.rn.satfinite.e2m1x2.f32 j, {4}, {3}; cvt.rn.satfinite.e2m1x2.f32 k, {6}, {5}; cvt.rn.satfinite.e2m1x2.f32 l, {8}, {7}; mov.b32 {0}, {{i, j, k, l}}; }}",
            r: reg32, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, in(reg32) e, in(reg32) f, in(reg32) g, in(reg32) h)
    }

    #[inline(always)]
    fn unpack_e4m3(self, word: u32) -> [u32; 2] {
        let (low, high): (u32, u32);
        // SAFETY: reads and writes registers only.
        unsafe {
            asm!("{{ .reg .b16 i, j; mov.b32 {{i, j}}, {2}; cvt.rn.f16x2.e4m3x2 {0}, i; cvt.rn.f16x2.e4m3x2 {1}, j; }}",
                out(reg32) low, out(reg32) high, in(reg32) word, options(pure, nomem, nostack))
        };
        [low, high]
    }
    #[inline(always)]
    fn mul_f16x2(self, a: u32, b: u32) -> u32 {
        compute!("mul.rn.f16x2 {0}, {1}, {2};", r: reg32, in(reg32) a, in(reg32) b)
    }

    #[inline(always)]
    fn permute_bytes(self, a: u32, b: u32, selector: u32) -> u32 {
        compute!("prmt.b32 {0}, {1}, {2}, {3};", r: reg32, in(reg32) a, in(reg32) b, in(reg32) selector)
    }

    #[inline(always)]
    fn unpack_f16(self, word: u32) -> f32 {
        compute!("{{ .reg .b16 low, high; mov.b32 {{low, high}}, {1}; cvt.f32.f16 {0}, low; }}", r: reg32, in(reg32) word)
    }
    #[inline(always)]
    fn float_from_bits(self, bits: u32) -> f32 {
        f32::from_bits(bits)
    }
    #[inline(always)]
    fn bits_from_float(self, x: f32) -> u32 {
        x.to_bits()
    }
    #[inline(always)]
    fn float_from_signed(self, bits: u32) -> f32 {
        compute!("cvt.rn.f32.s32 {0}, {1};", r: reg32, in(reg32) bits)
    }

    #[inline(always)]
    fn shuffle_xor(self, value: f32, mask: u32) -> f32 {
        // SAFETY: all lanes take part, since kernels cannot diverge.
        unsafe { shfl_sync_bfly_f32(FULL_WARP, value, mask, 31) }
    }
    #[inline(always)]
    fn vote_any(self, predicate: bool) -> bool {
        // SAFETY: all lanes take part, since kernels cannot diverge.
        unsafe { vote_any_sync(FULL_WARP, predicate) }
    }
    #[inline(always)]
    fn sync_warp(self) {
        // SAFETY: all lanes take part, since kernels cannot diverge.
        unsafe { bar_warp_sync(FULL_WARP) }
    }

    #[inline(always)]
    fn sync_threads(self) {
        // SAFETY: branches of a kernel are uniform over the CTA wherever they contain a barrier.
        unsafe { nvptx::_syncthreads() }
    }

    #[inline(always)]
    fn sync_threads_or(self, predicate: bool) -> bool {
        // SAFETY: as for sync_threads.
        unsafe { barrier0_or(predicate as i32) != 0 }
    }

    #[inline(always)]
    fn shared_base(self) -> u32 {
        compute!("mov.u32 {0}, dynamic_shared_memory;", r: reg32)
    }
    #[inline(always)]
    unsafe fn load_shared_x4(self, address: u32) -> [u32; 4] {
        let (a, b, c, d): (u32, u32, u32, u32);
        instruction!("ld.shared.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];";
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) address,);
        [a, b, c, d]
    }
    #[inline(always)]
    unsafe fn load_shared_f32(self, address: u32) -> f32 {
        let value: f32;
        instruction!("ld.shared.f32 {0}, [{1}];"; out(reg32) value, in(reg32) address,);
        value
    }
    #[inline(always)]
    unsafe fn store_shared_f32(self, address: u32, value: f32, mask: bool) {
        instruction!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; @p st.shared.f32 [{0}], {1}; }}";
            in(reg32) address, in(reg32) value, in(reg32) mask as u32,);
    }
    #[inline(always)]
    unsafe fn store_shared(self, address: u32, value: u32) {
        instruction!("st.shared.b32 [{0}], {1};"; in(reg32) address, in(reg32) value,);
    }
    #[inline(always)]
    unsafe fn load_matrix_x4(self, address: u32) -> [u32; 4] {
        let (a, b, c, d): (u32, u32, u32, u32);
        instruction!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{0}, {1}, {2}, {3}}}, [{4}];";
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) address,);
        [a, b, c, d]
    }
    #[inline(always)]
    unsafe fn load_matrix_transposed_x4(self, address: u32) -> [u32; 4] {
        let (a, b, c, d): (u32, u32, u32, u32);
        instruction!("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{{0}, {1}, {2}, {3}}}, [{4}];";
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) address,);
        [a, b, c, d]
    }

    // Predicates are made inside the asm: a branch around an access would be a lane-dependent one.
    #[inline(always)]
    unsafe fn load_global<const BYTES: usize>(self, address: u64, mask: bool) -> u32 {
        const { assert!(BYTES == 1 || BYTES == 2 || BYTES == 4) };
        let mut value = 0;
        match BYTES {
            1 => instruction!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; @p ld.global.u8 {0}, [{1}]; }}";
                inout(reg32) value, in(reg64) address, in(reg32) mask as u32,),
            2 => instruction!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; @p ld.global.u16 {0}, [{1}]; }}";
                inout(reg32) value, in(reg64) address, in(reg32) mask as u32,),
            _ => instruction!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; @p ld.global.u32 {0}, [{1}]; }}";
                inout(reg32) value, in(reg64) address, in(reg32) mask as u32,),
        }
        value
    }
    #[inline(always)]
    unsafe fn load_global_x4(self, address: u64, mask: bool) -> [u32; 4] {
        let [mut a, mut b, mut c, mut d] = [0; 4];
        instruction!("{{ .reg .pred p; setp.ne.u32 p, {5}, 0; @p ld.global.v4.u32 {{{0}, {1}, {2}, {3}}}, [{4}]; }}";
            inout(reg32) a, inout(reg32) b, inout(reg32) c, inout(reg32) d, in(reg64) address, in(reg32) mask as u32,);
        [a, b, c, d]
    }
    #[inline(always)]
    unsafe fn load_global_x2(self, address: u64, mask: bool) -> [u32; 2] {
        let [mut a, mut b] = [0; 2];
        instruction!("{{ .reg .pred p; setp.ne.u32 p, {3}, 0; @p ld.global.v2.u32 {{{0}, {1}}}, [{2}]; }}";
            inout(reg32) a, inout(reg32) b, in(reg64) address, in(reg32) mask as u32,);
        [a, b]
    }
    #[inline(always)]
    unsafe fn store_global_x4(self, address: u64, [a, b, c, d]: [u32; 4], mask: bool) {
        instruction!("{{ .reg .pred p; setp.ne.u32 p, {5}, 0; @p st.global.v4.b32 [{0}], {{{1}, {2}, {3}, {4}}}; }}";
            in(reg64) address, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, in(reg32) mask as u32,);
    }
    #[inline(always)]
    unsafe fn store_global_x2(self, address: u64, [a, b]: [u32; 2], mask: bool) {
        instruction!("{{ .reg .pred p; setp.ne.u32 p, {3}, 0; @p st.global.v2.b32 [{0}], {{{1}, {2}}}; }}";
            in(reg64) address, in(reg32) a, in(reg32) b, in(reg32) mask as u32,);
    }
    #[inline(always)]
    unsafe fn store_global_f32(self, address: u64, value: f32, mask: bool) {
        instruction!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; @p st.global.f32 [{0}], {1}; }}";
            in(reg64) address, in(reg32) value, in(reg32) mask as u32,);
    }
    #[inline(always)]
    unsafe fn store_global_f32x2(self, address: u64, [a, b]: [f32; 2], mask: bool) {
        instruction!("{{ .reg .pred p; setp.ne.u32 p, {3}, 0; @p st.global.v2.f32 [{0}], {{{1}, {2}}}; }}";
            in(reg64) address, in(reg32) a, in(reg32) b, in(reg32) mask as u32,);
    }

    #[inline(always)]
    unsafe fn cp_async(self, destination: u32, source: u64, bytes: u32) {
        instruction!("cp.async.cg.shared.global.L2::128B [{0}], [{1}], 16, {2};";
            in(reg32) destination, in(reg64) source, in(reg32) bytes,);
    }
    #[inline(always)]
    fn cp_async_commit_group(self) {
        instruction!("cp.async.commit_group;";);
    }
    #[inline(always)]
    fn cp_async_wait_group<const PENDING: usize>(self) {
        instruction!("cp.async.wait_group {0};"; const PENDING,);
    }

    // One lane does what a warp asks for once; which one is decided inside the asm, where no branch of the kernel is.
    #[inline(always)]
    unsafe fn mbarrier_init(self, barrier: u32, arrivals: u32) {
        instruction!("{{ .reg .pred p; setp.eq.u32 p, {2}, 0; @p mbarrier.init.shared.b64 [{0}], {1}; }}";
            in(reg32) barrier, in(reg32) arrivals, in(reg32) self.lane_id(),);
    }
    #[inline(always)]
    fn fence_barrier_init(self) {
        instruction!("fence.mbarrier_init.release.cluster;", "fence.proxy.async.shared::cta;";);
    }
    #[inline(always)]
    fn fence_proxy_async(self) {
        instruction!("fence.proxy.async.shared::cta;";);
    }
    #[inline(always)]
    unsafe fn mbarrier_arrive(self, barrier: u32) {
        // The lanes' reads before it must not be overtaken by what the arrival lets happen.
        self.sync_warp();
        instruction!("{{ .reg .pred p; setp.eq.u32 p, {1}, 0; @p mbarrier.arrive.shared.b64 _, [{0}]; }}";
            in(reg32) barrier, in(reg32) self.lane_id(),);
    }
    #[inline(always)]
    unsafe fn mbarrier_arrive_expect(self, barrier: u32, bytes: u32) {
        instruction!("{{ .reg .pred p; setp.eq.u32 p, {2}, 0; @p mbarrier.arrive.expect_tx.shared.b64 _, [{0}], {1}; }}";
            in(reg32) barrier, in(reg32) bytes, in(reg32) self.lane_id(),);
    }
    #[inline(always)]
    unsafe fn mbarrier_wait(self, barrier: u32, parity: u32) {
        instruction!("{{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared.b64 p, [{0}], {1}; @!p bra WAIT; }}";
            in(reg32) barrier, in(reg32) parity,);
    }
    #[inline(always)]
    unsafe fn copy_tensor(self, destination: u32, map: u64, [a, b, c, d]: [u32; 4], barrier: u32) {
        instruction!(concat!("{{ .reg .pred p; setp.eq.u32 p, {7}, 0; @p cp.async.bulk.tensor.4d.", own_shared_memory!(),
            ".global.tile.mbarrier::complete_tx::bytes [{0}], [{1}, {{{2}, {3}, {4}, {5}}}], [{6}]; }}");
            in(reg32) destination, in(reg64) map, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d,
            in(reg32) barrier, in(reg32) self.lane_id(),);
    }

    #[inline(always)]
    fn increase_registers<const COUNT: u32>(self) {
        instruction!("setmaxnreg.inc.sync.aligned.u32 {0};"; const COUNT,);
    }
    #[inline(always)]
    fn decrease_registers<const COUNT: u32>(self) {
        instruction!("setmaxnreg.dec.sync.aligned.u32 {0};"; const COUNT,);
    }

    #[inline(always)]
    fn mma_m16n8k16_f16(self, d: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
        multiply!("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", d, a, b);
    }
    #[inline(always)]
    fn mma_m16n8k16_bf16(self, d: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
        multiply!("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", d, a, b);
    }
    #[inline(always)]
    fn mma_m16n8k32_e4m3(self, d: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
        multiply!("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", d, a, b);
    }
    #[inline(always)]
    fn mma_m16n8k32_e4m3_f16(self, d: &mut [u32; 2], a: [u32; 4], b: [u32; 2]) {
        // SAFETY: reads and writes registers only.
        unsafe {
            asm!("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 {{{0},{1}}}, {{{2},{3},{4},{5}}}, {{{6},{7}}}, {{{0},{1}}};",
                inout(reg32) d[0], inout(reg32) d[1], in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3],
                in(reg32) b[0], in(reg32) b[1], options(pure, nomem, nostack))
        }
    }
    #[inline(always)]
    fn mma_m16n8k32_mxf8(self, d: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
        multiply!("mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0", d, a, b, ", {10}, {{0, 0}}, {10}, {{0, 0}}", in(reg32) SCALES_OF_ONE);
    }
    #[inline(always)]
    fn mma_m16n8k32_s8(self, d: &mut [u32; 4], a: [u32; 4], b: [u32; 2]) {
        multiply!("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", d, a, b);
    }
    #[inline(always)]
    fn mma_m16n8k64_nvf4<const ID_A: u32, const ID_B: u32>(
        self,
        d: &mut [f32; 4],
        a: [u32; 4],
        b: [u32; 2],
        scale_a: u32,
        scale_b: u32,
    ) {
        const { assert!(ID_A < 2 && ID_B < 4) };
        multiply!("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3", d, a, b,
            ", {10}, {{0, {12}}}, {11}, {{0, {13}}}", in(reg32) scale_a, in(reg32) scale_b, const ID_A, const ID_B);
    }
}
