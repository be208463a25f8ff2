//! The CPU backend against a plain three-loop attention in f32, and the emulator's speed.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ffpa::{Arch, Engine, ForwardOptions, TensorMut, TensorRef, bf16, ffpa_forward};
use rayon::prelude::*;

/// Numbers between -1 and 1, without a pattern that a cache or a predictor could use.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Attention as one writes it first: scores, softmax, weighted sum, row by row; rows over all cores.
fn naive(q: &[f32], k: &[f32], v: &[f32], o: &mut [f32], n: usize, d: usize) {
    let scale = 1.0 / (d as f32).sqrt();
    o.par_chunks_mut(d).zip(q.par_chunks(d)).for_each(|(o, q)| {
        let mut scores = vec![0.0; n];
        for (score, k) in scores.iter_mut().zip(k.chunks(d)) {
            *score = q.iter().zip(k).map(|(a, b)| a * b).sum::<f32>() * scale;
        }
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        scores.iter_mut().for_each(|s| *s = (*s - max).exp());
        let sum: f32 = scores.iter().sum();
        o.fill(0.0);
        for (p, v) in scores.iter().zip(v.chunks(d)) {
            o.iter_mut().zip(v).for_each(|(o, v)| *o += p / sum * v);
        }
    });
}

fn forward(engine: &Engine, [q, k, v]: [&[bf16]; 3], o: &mut [bf16], shape: [usize; 4]) {
    let input = |data| TensorRef::bhnd(data, shape).expect("it fits");
    let mut out = TensorMut::bhnd(o, shape).expect("it fits");
    ffpa_forward::<bf16>(engine, input(q), input(k), input(v), &mut out, &ForwardOptions::new())
        .expect("it runs");
}

fn cpu(criterion: &mut Criterion) {
    let (n, d) = (2048, 128);
    let [q, k, v] = [1, 2, 3].map(|seed| numbers(n * d, seed));
    let mut group = criterion.benchmark_group(format!("cpu N={n} D={d}"));
    group.sample_size(10).throughput(Throughput::Elements((4 * n * n * d) as u64));
    let mut wide = vec![0.0; n * d];
    group.bench_function("naive f32", |bencher| bencher.iter(|| naive(&q, &k, &v, &mut wide, n, d)));
    let narrow = [q, k, v].map(|x| x.into_iter().map(bf16::from_f32).collect::<Vec<_>>());
    let mut o = vec![bf16::ZERO; n * d];
    let engine = Engine::cpu();
    group.bench_function("ffpa bf16", |bencher| {
        bencher.iter(|| forward(&engine, [&narrow[0], &narrow[1], &narrow[2]], &mut o, [1, 1, n, d]));
    });
    // Both computed the same.
    let worst = wide.iter().zip(&o).map(|(a, b)| (a - b.to_f32()).abs()).fold(0.0, f32::max);
    assert!(worst < 0.02, "{worst}");
    group.finish();
}

fn emulator(criterion: &mut Criterion) {
    let shape = [1, 2, 256, 128];
    let count = shape.iter().product();
    let [q, k, v] =
        [1, 2, 3].map(|seed| numbers(count, seed).into_iter().map(bf16::from_f32).collect::<Vec<_>>());
    let mut o = vec![bf16::ZERO; count];
    let engine = Engine::emulator(Arch::Sm89);
    let mut group = criterion.benchmark_group("emulator B1 H2 N=256 D=128");
    group.sample_size(10);
    group.bench_function("forward", |bencher| bencher.iter(|| forward(&engine, [&q, &k, &v], &mut o, shape)));
    group.finish();
}

criterion_group!(benches, cpu, emulator);
criterion_main!(benches);
