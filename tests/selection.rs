//! The plan table: which kernel each problem gets on each device, as a stored copy. `INSTA_UPDATE=always cargo test`
//! accepts a new one.

use std::fmt::Write;

use ffpa::{Arch, BuildInfo, DeviceInfo, Dtype, Problem, plan};

#[test]
fn the_table_is_the_stored_one() {
    let mut table = String::new();
    for arch in Arch::ALL {
        for dtype in [Dtype::F16, Dtype::Bf16] {
            for d in [8, 64, 72, 128, 136, 256, 264, 320, 512, 520, 640, 768, 1024] {
                let problem = Problem::contiguous(dtype, [2, 8, 2, 1000, 3000, d]);
                let device = DeviceInfo::of_arch(arch);
                let line = match plan(&problem, &device, &BuildInfo::current()) {
                    Ok(plan) => format!("{} grid {}", plan.kernel.name, plan.grid),
                    Err(error) => error.to_string(),
                };
                let _ = writeln!(table, "{} {} D {d}: {line}", arch.target(), dtype.name());
            }
        }
    }
    insta::assert_snapshot!(table);
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
