//! The plan table: which kernel each problem gets on each device, as a stored copy. `INSTA_UPDATE=always cargo test`
//! accepts a new one.

use std::collections::BTreeSet;
use std::fmt::Write;

use ffpa::{
    Arch, Arithmetic, BuildInfo, DeviceInfo, Dtype, Fp8, Kernel, NvFp4, Precision, Problem, ScoreNumbers,
    abi, plan,
};
use ffpa_kernels_gpu::catalog::{CATALOG, QUANTIZES};

#[test]
fn the_table_is_the_stored_one() {
    let mut table = String::new();
    for arch in Arch::ALL {
        for (arithmetic, f16_sums) in [
            (Arithmetic::F16, false),
            (Arithmetic::Bf16, false),
            (Arithmetic::E4m3, false),
            (Arithmetic::Int8, false),
            (Arithmetic::E4m3, true),
            (Arithmetic::NvFp4, false),
        ] {
            let (dtype, precision) = asked(arithmetic, f16_sums);
            let sums = if f16_sums { ", f16 sums," } else { "" };
            let head_dims: &[usize] = match precision {
                Precision::Native => &[8, 64, 72, 128, 136, 256, 264, 320, 512, 520, 640, 768, 1024],
                _ => &[8, 64, 72, 128, 136, 192, 200, 224, 232, 256, 264],
            };
            for &d in head_dims {
                let mut problem = Problem::contiguous(dtype, [2, 8, 2, 1000, 3000, d]);
                problem.precision = precision;
                let device = DeviceInfo::of_arch(arch);
                let line = match plan(&problem, &device, &BuildInfo::current()) {
                    Ok(plan) => format!("{} grid {}", plan.kernel.name, plan.grid),
                    Err(error) => error.to_string(),
                };
                let _ = writeln!(table, "{} {}{sums} D {d}: {line}", arch.target(), arithmetic.name());
            }
        }
    }
    insta::assert_snapshot!(table);
}

/// What to ask for to get kernels that compute in some numbers.
fn asked(arithmetic: Arithmetic, f16_sums: bool) -> (Dtype, Precision) {
    let fp8 = Fp8::default().with_f16_sums(f16_sums);
    match arithmetic {
        Arithmetic::F16 => (Dtype::F16, Precision::Native),
        Arithmetic::Int8 => (Dtype::F16, Precision::Fp8(fp8.with_scores(ScoreNumbers::Int8))),
        Arithmetic::E4m3 => (Dtype::Bf16, Precision::Fp8(fp8)),
        Arithmetic::NvFp4 => (Dtype::Bf16, Precision::NvFp4(NvFp4::default())),
        Arithmetic::Bf16 => (Dtype::Bf16, Precision::Native),
    }
}

/// Problems of one head dim for kernels that compute in some numbers, different in what these are chosen by: rows, heads that
/// are packed, masks.
fn problems(arithmetic: Arithmetic, f16_sums: bool, d: usize) -> impl Iterator<Item = Problem> {
    let (dtype, precision) = asked(arithmetic, f16_sums);
    [1, 17, 33, 64, 100, 1000].into_iter().flat_map(move |rows| {
        [2, 8].into_iter().flat_map(move |kv_heads| {
            [false, true].map(|masked| {
                let mut problem = Problem::contiguous(dtype, [2, 8, kv_heads, rows, 3000, d]);
                problem.precision = precision;
                problem.dropout = (masked && precision == Precision::Native).then_some(abi::Dropout::NONE);
                problem
            })
        })
    })
}

#[test]
fn every_kernel_of_the_build_is_some_problem_s() {
    let build = BuildInfo::current();
    let mut unused: BTreeSet<&str> = build.kernels.iter().map(|kernel| kernel.name).collect();
    for arch in Arch::ALL {
        for kernel in &build.kernels {
            for problem in problems(kernel.arithmetic, kernel.f16_sums, kernel.head_dim) {
                let plan = plan(&problem, &DeviceInfo::of_arch(arch), &build).expect("there is a kernel");
                unused.remove(plan.kernel.name);
            }
        }
    }
    assert_eq!(unused, BTreeSet::new());
}

#[test]
fn devices_run_kernels_of_their_own_architecture_where_there_are_some() {
    let build = BuildInfo::current();
    for arch in [Arch::Sm89, Arch::Sm120f] {
        for &d in ffpa::DEFAULT_HEAD_DIMS {
            for problem in problems(Arithmetic::Bf16, false, d) {
                let plan = plan(&problem, &DeviceInfo::of_arch(arch), &build).expect("there is a kernel");
                assert_eq!(plan.kernel.arch, arch, "{}", plan.kernel.name);
            }
        }
    }
}

/// Of kernels that differ in nothing else, those by block-scaled instructions win; without these, the plain ones run.
#[test]
fn block_scaled_instructions_win_where_a_device_has_them() {
    let mut build = BuildInfo::current();
    build.quantizes = QUANTIZES.iter().collect();
    let twins: Vec<&Kernel> =
        CATALOG.iter().filter(|kernel| CATALOG.iter().any(|other| kernel.is_twin_of(other))).collect();
    assert!(!twins.is_empty());
    for kernel in twins {
        let (dtype, precision) = asked(kernel.arithmetic, kernel.f16_sums);
        let mut problem = Problem::contiguous(dtype, [2, 8, 2, 1000, 3000, kernel.head_dim]);
        problem.precision = precision;
        let mut chosen = |from: fn(&&Kernel) -> bool, arch| {
            build.kernels = CATALOG.iter().filter(from).collect();
            plan(&problem, &DeviceInfo::of_arch(arch), &build).expect("there is a kernel").kernel
        };
        let [scaled, plain] = [chosen(|_| true, kernel.arch), chosen(|k| !k.block_scaled, kernel.arch)];
        assert!(scaled.block_scaled && scaled.is_twin_of(plain), "{} {}", scaled.name, plain.name);
        assert!(!chosen(|_| true, Arch::Sm90a).block_scaled && !chosen(|_| true, Arch::Sm89).block_scaled);
    }
}

#[test]
fn a_plan_explains_itself() {
    let mut problem = Problem::contiguous(Dtype::Bf16, [1, 32, 8, 512, 4096, 96]);
    problem.causal = true;
    let plan =
        plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), &BuildInfo::current()).expect("there is a kernel");
    insta::assert_snapshot!(plan);
}

#[test]
fn a_plan_in_two_precisions_explains_both() {
    let mut problem = Problem::contiguous(Dtype::Bf16, [1, 32, 8, 4096, 4096, 96]);
    (problem.causal, problem.precision) = (true, Precision::Fp8(Fp8::default()));
    let plan =
        plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), &BuildInfo::current()).expect("there is a kernel");
    insta::assert_snapshot!(plan);
}

/// What one of them would need is there for the other.
#[test]
fn plans_in_two_precisions_share_a_workspace() {
    let with = |rows, q_len| {
        let mut problem = Problem::contiguous(Dtype::Bf16, [1, 1, 1, q_len, 9000, 64]);
        problem.precision = Precision::Fp8(Fp8::default().with_native_rows(rows));
        plan(&problem, &DeviceInfo::of_arch(Arch::Sm90a), &BuildInfo::current()).expect("there is a kernel")
    };
    let (early, late, both) = (with(600, 600), with(0, 40), with(600, 640));
    assert_eq!(
        (early.problem.precision, &early.quantization, &early.early),
        (Precision::Native, &None, &None)
    );
    assert!(early.workspace_bytes > late.workspace_bytes && late.workspace_bytes > 0);
    assert_eq!(both.workspace_bytes, early.workspace_bytes);
    let (first, params) = (both.early.as_ref().expect("there is one"), both.params);
    assert_eq!(
        (first.kernel, first.grid, both.kernel, both.grid),
        (early.kernel, early.grid, late.kernel, late.grid)
    );
    // Rows 600 to 639 of O and of the log-sum-exp; in Q, what quantises finds them.
    let rows = 600 * 128;
    assert_eq!((params.o.base, params.lse, params.lse_head_stride), (rows, 4 * 600, 640));
    assert_eq!((params.q.base, both.quantization.map(|q| q.params.q.base)), (0, Some(rows)));
    assert_eq!((first.params.lse, first.params.lse_head_stride), (0, 640));
}

#[test]
fn scales_become_a_sign_and_a_positive_factor() {
    let with = |scale| {
        let mut problem = Problem::contiguous(Dtype::F16, [1, 1, 1, 16, 16, 64]);
        problem.scale = scale;
        let plan = plan(&problem, &DeviceInfo::cpu(), &BuildInfo::current()).expect("there is a kernel");
        (plan.params.score_factor, plan.params.scale_log2)
    };
    let log2_e = std::f32::consts::LOG2_E;
    assert_eq!(with(0.5), (1.0, 0.5 * log2_e));
    assert_eq!(with(-0.5), (-1.0, 0.5 * log2_e));
    assert_eq!(with(0.0), (0.0, 1.0));
    assert_eq!(with(-0.0), (0.0, 1.0));
}

#[test]
fn heads_are_interleaved_in_groups_that_divide_them() {
    let with = |heads, causal| {
        let mut problem = Problem::contiguous(Dtype::F16, [3, heads, 1, 128, 16, 64]);
        problem.causal = causal;
        plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), &BuildInfo::current())
            .expect("there is a kernel")
            .params
            .head_interleave
    };
    assert_eq!([with(7, false), with(7, true), with(32, true), with(64, true)], [1, 21, 32, 32]);
}
