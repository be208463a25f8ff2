//! What the kernels do, counted by the emulator: no bank conflicts, no more matrix instructions and no more bytes than the
//! algorithm has.

use ffpa::emulator::Counters;
use ffpa::{
    Arch, BuildInfo, Copies, DeviceInfo, Dtype, Engine, Family, ForwardOptions, Fp8, Kernel, Lse, NvFp4,
    Precision, Problem, ScoreNumbers, TensorMut, TensorRef, bf16, ffpa_forward, plan,
};
use rstest::rstest;

const N: usize = 256;

fn run(arch: Arch, d: usize, causal: bool) -> Counters {
    run_in(Precision::Native, arch, d, causal)
}

fn run_in(precision: Precision, arch: Arch, d: usize, causal: bool) -> Counters {
    let shape = [1, 1, N, d];
    let x: Vec<bf16> = (0..N * d).map(|i| bf16::from_f32((i % 17) as f32 / 17.0)).collect();
    let (mut o, mut lse) = (vec![bf16::ZERO; N * d], vec![0.0; N]);
    let input = TensorRef::bhnd(&x, shape).expect("it fits");
    let mut out = (TensorMut::bhnd(&mut o, shape).expect("it fits"), Lse::host(&mut lse));
    let options = ForwardOptions::new().with_causal(causal).with_precision(precision);
    let report = ffpa_forward::<bf16>(&Engine::emulator(arch), input, input, input, &mut out, &options);
    report.expect("it runs").counters.expect("the emulator counts")
}

/// The kernel that it runs on.
fn kernel(arch: Arch, d: usize) -> &'static Kernel {
    let problem = Problem::contiguous(Dtype::Bf16, [1, 1, 1, N, N, d]);
    plan(&problem, &DeviceInfo::of_arch(arch), &BuildInfo::current()).expect("there is one").kernel
}

#[rstest]
fn shared_memory_never_conflicts(
    #[values(Arch::Sm89, Arch::Sm90a, Arch::Sm120f)] arch: Arch,
    #[values(8, 64, 72, 128, 160, 200, 256, 320, 512, 640, 1024)] d: usize,
    #[values(false, true)] causal: bool,
) {
    let counters = run(arch, d, causal);
    assert_eq!(counters.bank_conflicts, 0);
    assert!(counters.matrix_loads > 0 && counters.copies + counters.bulk_copies > 0);
}

#[rstest]
fn eight_bits_cost_half_and_the_sums(
    #[values(Arch::Sm89, Arch::Sm90a, Arch::Sm120f)] arch: Arch,
    #[values(ScoreNumbers::E4m3, ScoreNumbers::Int8)] scores: ScoreNumbers,
) {
    let precision = Precision::Fp8(Fp8::default().with_scores(scores));
    let build = BuildInfo::current();
    let compiled =
        |d: usize| build.kernels.iter().any(|k| k.arithmetic.family() == Family::Fp8 && k.head_dim >= d);
    let head_dims = [8, 64, 96, 128, 160, 192, 224, 256, 320, 512, 640, 768, 1000];
    for d in head_dims.into_iter().filter(|&d| compiled(d)) {
        let counters = run_in(precision, arch, d, false);
        let mut problem = Problem::contiguous(Dtype::Bf16, [1, 1, 1, N, N, d]);
        problem.precision = precision;
        let kernel = plan(&problem, &DeviceInfo::of_arch(arch), &build).expect("there is one").kernel;
        assert_eq!(counters.bank_conflicts, 0, "{}", kernel.name);
        // Each m16n8k32 does 16 * 8 * 32 multiply-adds. Beside two products of rows * N * head dim there is one by a column of
        // ones.
        let want = (2 * kernel.head_dim + 8) * N.next_multiple_of(kernel.rows) * N / (16 * 8 * 32);
        assert_eq!(counters.mma, want as u64, "{}", kernel.name);
    }
}

/// Block-scaled ones do 16 * 8 * 64 multiply-adds each, those on decoded numbers a quarter.
#[rstest]
fn four_bits_cost_a_quarter_and_the_sums(
    #[values(Arch::Sm89, Arch::Sm90a, Arch::Sm120f)] arch: Arch,
    #[values(8, 64, 72, 128, 160, 192, 256)] d: usize,
) {
    let precision = Precision::NvFp4(NvFp4::default());
    let counters = run_in(precision, arch, d, false);
    let mut problem = Problem::contiguous(Dtype::Bf16, [1, 1, 1, N, N, d]);
    problem.precision = precision;
    let kernel =
        plan(&problem, &DeviceInfo::of_arch(arch), &BuildInfo::current()).expect("there is one").kernel;
    assert_eq!(counters.bank_conflicts, 0, "{}", kernel.name);
    assert_eq!(kernel.block_scaled, arch == Arch::Sm120f);
    let each = if kernel.block_scaled { 16 * 8 * 64 } else { 16 * 8 * 16 };
    assert_eq!(counters.mma, ((2 * kernel.head_dim + 8) * N * N / each) as u64, "{}", kernel.name);
}

#[test]
fn matrix_instructions_are_those_of_two_products() {
    for arch in Arch::ALL {
        for d in [64, 128, 192, 256, 320, 512, 768, 1024] {
            // Each m16n8k16 does 16 * 8 * 16 multiply-adds, and there are two products of N * N * d.
            let want = 2 * N * N * d / (16 * 8 * 16);
            let counters = run(arch, d, false);
            assert_eq!(counters.mma, want as u64);
            assert_eq!(counters.mma_flops, (4 * N * N * d) as u64);
        }
    }
}

#[test]
fn causal_tiles_beyond_the_diagonal_are_not_computed() {
    for arch in Arch::ALL {
        for d in [64, 128, 256, 320, 1024] {
            let &Kernel { rows, keys, .. } = kernel(arch, d);
            let tiles: usize = (0..N / rows).map(|block| ((block + 1) * rows).div_ceil(keys)).sum();
            let want = 2 * tiles * rows * keys * d / (16 * 8 * 16);
            assert_eq!(run(arch, d, true).mma, want as u64);
        }
    }
}

#[test]
fn global_memory_is_read_once_per_query_tile_and_written_once() {
    for arch in Arch::ALL {
        for d in [40, 64, 128, 192, 256, 320, 1000] {
            let kernel = kernel(arch, d);
            let counters = run(arch, d, false);
            let (row, blocks) = (2 * d, N.div_ceil(kernel.rows));
            // Q once, K and V once for each query tile; head dims in between read only what is valid.
            assert_eq!(counters.global_bytes_read, (N * row + blocks * 2 * N * row) as u64);
            assert_eq!(counters.global_bytes_written, (N * row + 4 * N) as u64);
            // A box is 64 columns of a tile.
            let panels = kernel.head_dim / 64;
            let boxes = match kernel.copies {
                Copies::Async => 0,
                Copies::Bulk => blocks * panels * (1 + 2 * N.div_ceil(kernel.keys)),
            };
            assert_eq!(counters.bulk_copies, boxes as u64);
        }
    }
}

#[test]
fn warps_meet_twice_a_tile_or_never() {
    for d in [64, 128, 256] {
        // Two barriers a tile of keys, and one at the end.
        let &Kernel { rows, keys, .. } = kernel(Arch::Sm89, d);
        assert_eq!(run(Arch::Sm89, d, false).barriers, (N / rows * (2 * N / keys + 1)) as u64);
        // One, when the mbarriers have been made.
        let tensor = kernel(Arch::Sm120f, d);
        assert_eq!(tensor.copies, Copies::Bulk);
        assert_eq!(run(Arch::Sm120f, d, false).barriers, (N / tensor.rows) as u64);
    }
}

#[test]
fn heads_of_a_group_read_their_keys_once() {
    let (heads, kv_heads, d) = (8, 2, 128);
    let (q_shape, kv_shape) = ([1, heads, 1, d], [1, kv_heads, N, d]);
    let x = vec![bf16::ONE; kv_heads * N * d];
    let mut o = vec![bf16::ZERO; heads * d];
    let (q, kv) =
        (TensorRef::bhnd(&x, q_shape).expect("it fits"), TensorRef::bhnd(&x, kv_shape).expect("it fits"));
    let mut out = TensorMut::bhnd(&mut o, q_shape).expect("it fits");
    let engine = Engine::emulator(Arch::Sm89);
    let report =
        ffpa_forward::<bf16>(&engine, q, kv, kv, &mut out, &ForwardOptions::causal()).expect("it runs");
    let counters = report.counters.expect("the emulator counts");
    assert_eq!(counters.global_bytes_read, (2 * d * (heads + 2 * kv_heads * N)) as u64);
}
