//! What a call costs the host before anything runs: validation is part of every call, planning is the rest.

use criterion::{Criterion, criterion_group, criterion_main};
use ffpa::{Arch, BuildInfo, DeviceInfo, Dtype, Problem, plan};

fn planning(criterion: &mut Criterion) {
    let problem = Problem::contiguous(Dtype::Bf16, [8, 32, 8, 4096, 4096, 128]);
    let (device, build) = (DeviceInfo::of_arch(Arch::Sm89), BuildInfo::current());
    criterion.bench_function("plan", |bencher| {
        bencher.iter(|| plan(&problem, &device, &build).expect("a kernel"))
    });
}

criterion_group!(benches, planning);
criterion_main!(benches);
