//! Merging results over disjoint sets of keys gives the result over all of them.

mod support;

use ffpa::{
    Arch, Element, Engine, Error, ForwardOptions, Lse, LseRef, Partial, Refusal, TensorMut, TensorRef, bf16,
    f16, ffpa_forward, merge_lse,
};
use rstest::rstest;
use support::compare::check_lse;
use support::inputs::Normal;
use support::layout::TestElement;

fn engines() -> Vec<Engine> {
    let names = std::env::var("FFPA_TEST_BACKENDS").unwrap_or_else(|_| "cpu,emulator".into());
    let engine = |name| match name {
        "cpu" => Engine::cpu(),
        "emulator" => Engine::emulator(Arch::Sm90a),
        "cuda" => Engine::cuda(0).unwrap_or_else(|error| panic!("{error}")),
        _ => panic!("FFPA_TEST_BACKENDS names {name:?}: cpu, emulator and cuda are known"),
    };
    names.split(',').map(engine).collect()
}

/// A result over some of the keys, in memory.
struct Part<T> {
    o: Vec<T>,
    lse: Vec<f32>,
}

fn merge<T: TestElement + Element>(
    engine: &Engine,
    shape: [usize; 4],
    parts: &[Part<T>],
) -> Result<Part<T>, Error> {
    let partials: Vec<Partial<'_, T>> = parts
        .iter()
        .map(|part| Partial {
            o: TensorRef::bhnd(&part.o, shape).expect("it fits"),
            lse: LseRef::host(&part.lse),
        })
        .collect();
    let rows = shape[..3].iter().product();
    let mut merged = Part { o: vec![T::from_f64(7.0); rows * shape[3]], lse: vec![7.0; rows] };
    let out = TensorMut::bhnd(&mut merged.o, shape).expect("it fits");
    let report = merge_lse(engine, &partials, &mut (out, Lse::host(&mut merged.lse)))?;
    assert_eq!(report.backend, engine.backend());
    Ok(merged)
}

fn merged_is_the_truth<T: TestElement + Element>(engine: &Engine, shape: [usize; 4], count: usize) {
    let [rows, d] = [shape[..3].iter().product(), shape[3]];
    let mut normal = Normal::new((rows * d + count) as u64);
    let mut part = |i: usize| Part {
        o: normal.vec(rows * d, 1.0).into_iter().map(T::from_f64).collect(),
        // Every third row of a part saw no key; what its output holds does not count.
        lse: normal
            .vec(rows, 3.0)
            .into_iter()
            .enumerate()
            .map(|(row, x)| if (row + i).is_multiple_of(3) { f32::NEG_INFINITY } else { x as f32 })
            .collect(),
    };
    let mut parts: Vec<Part<T>> = (0..count).map(&mut part).collect();
    for part in &mut parts {
        for row in (0..rows).filter(|&row| part.lse[row] == f32::NEG_INFINITY) {
            part.o[row * d..][..d].fill(T::from_f64(f64::NAN));
        }
    }
    let merged = merge(engine, shape, &parts).expect("it runs");
    for row in 0..rows {
        let seen: Vec<_> = parts.iter().filter(|part| part.lse[row] > f32::NEG_INFINITY).collect();
        let largest = seen.iter().map(|part| f64::from(part.lse[row])).fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = seen.iter().map(|part| (f64::from(part.lse[row]) - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let lse = if seen.is_empty() { f64::NEG_INFINITY } else { largest + sum.ln() };
        check_lse(&[merged.lse[row].into()], &[lse], largest.abs().min(1e3)).expect("the log-sum-exp");
        for column in 0..d {
            let at = row * d + column;
            let terms = seen.iter().zip(&weights).map(|(part, w)| w / sum * part.o[at].to_f64());
            let want: f64 = terms.sum();
            let got = merged.o[at].to_f64();
            // A rounding of the output, and errors of f32 weights.
            let allowed = want.abs() * 2.0_f64.powi(-T::BITS) + 4e-6;
            assert!((got - want).abs() <= allowed, "row {row} column {column}: {got}, want {want}");
        }
    }
}

#[rstest]
fn parts_merge_into_the_whole(
    #[values([1, 2, 3, 8], [2, 3, 5, 64], [1, 1, 7, 264], [1, 2, 1, 1024])] shape: [usize; 4],
    #[values(1, 2, 5, 9)] count: usize,
) {
    for engine in engines() {
        merged_is_the_truth::<f16>(&engine, shape, count);
        merged_is_the_truth::<bf16>(&engine, shape, count);
    }
}

#[test]
fn halves_of_the_keys_merge_into_a_forward_call() {
    let (q_shape, d, n) = ([1, 2, 20, 64], 64, 300);
    let mut normal = Normal::new(5);
    let mut sample = |n: usize| -> Vec<bf16> { normal.vec(n, 1.0).into_iter().map(bf16::from_f64).collect() };
    let (q, k, v) = (sample(2 * 20 * d), sample(2 * n * d), sample(2 * n * d));
    for engine in engines() {
        let forward = |from: usize, keys: usize| {
            let mut part = Part { o: vec![bf16::ZERO; 2 * 20 * d], lse: vec![0.0; 2 * 20] };
            let view = |data| TensorRef::strided(data, [1, 2, keys, d], [0, n * d, d]).expect("it fits");
            let (k, v) = (view(&k[from * d..]), view(&v[from * d..]));
            let q = TensorRef::bhnd(&q, q_shape).expect("it fits");
            let out = TensorMut::bhnd(&mut part.o, q_shape).expect("it fits");
            let mut out = (out, Lse::host(&mut part.lse));
            ffpa_forward::<bf16>(&engine, q, k, v, &mut out, &ForwardOptions::new()).expect("it runs");
            part
        };
        let whole = forward(0, n);
        let merged = merge(&engine, q_shape, &[forward(0, 130), forward(130, n - 130)]).expect("it runs");
        for (merged, whole) in merged.o.iter().zip(&whole.o) {
            // Each half was rounded to bf16.
            assert!((merged.to_f64() - whole.to_f64()).abs() < 0.01, "{merged} {whole}");
        }
        for (merged, whole) in merged.lse.iter().zip(&whole.lse) {
            assert!((merged - whole).abs() < 4e-6, "{merged} {whole}");
        }
    }
}

/// Equal scores in all parts: the answer is an average, however large the scores are.
#[test]
fn divided_keys_weigh_alike_at_any_scale() {
    let (d, keys) = (64, 1025);
    let v: Vec<f16> = (0..keys * d).map(|i| f16::from_f64(if i / d >= 640 { 1.0 } else { 0.0 })).collect();
    for engine in engines() {
        for (q, scale) in [(0.5, 1.0), (0.5, 1e5), (0.5, 1e7), (4.0, 1e38), (0.0, 3e38)] {
            let (q, k) = (vec![f16::from_f64(q); d], vec![f16::from_f64(q); keys * d]);
            let mut o = vec![f16::ZERO; d];
            let view = |data, n| TensorRef::bhnd(data, [1, 1, n, d]).expect("it fits");
            let mut out = TensorMut::bhnd(&mut o, [1, 1, 1, d]).expect("it fits");
            let options = ForwardOptions::new().with_scale(scale);
            ffpa_forward::<f16>(&engine, view(&q, 1), view(&k, keys), view(&v, keys), &mut out, &options)
                .expect("it runs");
            let want = 385.0 / 1025.0;
            assert!((o[5].to_f64() - want).abs() < 3e-4, "{} {scale}: {}", engine.backend(), o[5]);
        }
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let shape = [1, 1, 4, 16];
    let refusal = |parts: &[Part<f16>]| match merge(&Engine::cpu(), shape, parts) {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{:?}", other.map(|part| part.lse)),
    };
    assert!(matches!(refusal(&[]), Refusal::Parts { .. }));
    let short = Part { o: vec![f16::ZERO; 64], lse: vec![0.0; 3] };
    assert_eq!(refusal(&[short]), Refusal::LseLength { needed: 4, len: 3 });
}
