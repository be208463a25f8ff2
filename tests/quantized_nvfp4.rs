//! Kernels in NVFP4, by the same cases as the others and on every backend that applies: held to a simulation of the recipe, as
//! those in eight bits are.

mod support;

use ffpa::{
    Element, Engine, Family, ForwardOptions, NvFp4, Precision, TensorMut, TensorRef, bf16, f16, ffpa_forward,
};
use support::cases::Case;
use support::eight_bits::{compare, leaves_out, recipe, report};
use support::inputs::Normal;
use support::layout::TestElement;
use support::reference::Call;
use support::suite::{run_file, suite};
use support::trial::{answer, backends};

suite! {
    fp8,
    fully_masked_rows,
    more_queries_than_keys_causal,
    no_keys,
    no_queries,
    sequence_lengths,
    gqa_groups,
    layouts,
    head_dims,
    scales,
    cross_attention,
    value_mean,
    nan_beyond_the_valid_length,
    bit_equal_repeats,
    decoding,
    divided_keys,
    large_logits,
    lse_against_f64,
}

/// Cases have inputs of their own here: no element may lie so near halfway between two numbers of four bits that the last bit of a
/// mean, or of an exponential, decides. That is one of some hundred thousand, and then a row is a percent off.
const SEED: u64 = 100;

/// Recipes that together have every choice.
fn recipes() -> [NvFp4; 4] {
    let nvfp4 = NvFp4::default();
    [
        nvfp4,
        nvfp4.with_smooth_v(true).with_smooth_q(false),
        nvfp4.with_smooth_k(false),
        nvfp4.with_smooth_k(false).with_smooth_q(false),
    ]
}

/// All rows in four bits, whatever the default.
fn run(file: &str) {
    run_with(file, |recipe, _| recipe.with_native_rows(0));
}

/// The first rows in 16 bits: as many as the case says, or as recipes have by default.
#[test]
fn early_rows() {
    run_with("early_rows", |recipe, case| case.native_rows.map_or(recipe, |n| recipe.with_native_rows(n)));
}

/// Where no sum is rounded, instructions that take 64 values of k and those that take 16 of decoded ones have the same bits.
#[test]
fn exact_sums_are_the_same_bits_everywhere() {
    const KEYS: usize = 64;
    // Numbers of e2m1 times 0.875, which is what 2688 is to a power of two: so are the scales of columns, and those of blocks are 448.
    let numbers: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0].map(|x| 0.875 * x);
    for d in [64, 72, 128, 192, 256] {
        let (rows, mut random) = (70, Normal::new(d as u64));
        let mut number = || {
            let x = random.sample();
            numbers[(x.abs() * 1000.0) as usize % 8].copysign(x)
        };
        let mut v: Vec<f64> = (0..KEYS * d).map(|_| number()).collect();
        // One in each block.
        for (key, sign) in [(0, 1.0), (4, -1.0), (32, 1.0), (36, -1.0)] {
            v[key * d..][..d].fill(sign * numbers[7]);
        }
        let q = vec![f16::ZERO; rows * d];
        let k: Vec<f16> = (0..KEYS * d).map(|_| f16::from_f64(number())).collect();
        let values: Vec<f16> = v.iter().map(|&x| f16::from_f64(x)).collect();
        let mean = |c: usize| v.iter().skip(c).step_by(d).sum::<f64>() / KEYS as f64;
        for engine in backends() {
            let input = |data, rows| TensorRef::bhnd(data, [1, 1, rows, d]).expect("it fits");
            let mut o = vec![f16::NAN; rows * d];
            let mut out = TensorMut::bhnd(&mut o, [1, 1, rows, d]).expect("it fits");
            let options = ForwardOptions::new().with_precision(Precision::NvFp4(NvFp4::default()));
            ffpa_forward(&engine, input(&q, rows), input(&k, KEYS), input(&values, KEYS), &mut out, &options)
                .expect("it runs");
            for (i, o) in o.into_iter().enumerate() {
                assert_eq!(o, f16::from_f64(mean(i % d)), "{} D {d}: column {}", engine.device().name, i % d);
            }
        }
    }
}

/// Cosine and relative L1 error of a result against what is exact, and the largest relative error of a row.
fn errors(got: &[f64], exact: &[f64], d: usize) -> [f64; 3] {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let norm = |a: &[f64]| dot(a, a).sqrt();
    let less: Vec<f64> = got.iter().zip(exact).map(|(a, b)| a - b).collect();
    let total = |a: &[f64]| a.iter().map(|a| a.abs()).sum::<f64>();
    let rows = less.chunks(d).zip(exact.chunks(d)).map(|(less, exact)| norm(less) / norm(exact));
    [dot(got, exact) / norm(got) / norm(exact), total(&less) / total(exact), rows.fold(0.0, f64::max)]
}

/// On random numbers as exact as the format (cosine 0.982, L1 0.19; SageAttention 3's recipe simulated), and where columns have
/// means as exact as smoothing makes it.
#[test]
fn accuracy_is_the_format_s() {
    const SHAPE: [usize; 4] = [1, 1, 1024, 128];
    let [_, _, n, d] = SHAPE;
    // Standard deviations of the columns' means in Q, K and V; least cosine, largest L1 error.
    for (means, least, largest) in [([0.0, 0.0, 0.0], 0.98, 0.2), ([1.0, 4.0, 1.0], 0.999, 0.06)] {
        let tensors: Vec<Vec<f64>> = (0..3)
            .map(|i| {
                let means = Normal::new(20 + i as u64).vec(d, means[i]);
                let mut x = Normal::new(10 + i as u64).vec(n * d, 1.0);
                x.iter_mut().enumerate().for_each(|(i, x)| *x = f16::from_f64(*x + means[i % d]).to_f64());
                x
            })
            .collect();
        let call = Call {
            batch: 1,
            q_heads: 1,
            kv_heads: 1,
            q_len: n,
            kv_len: n,
            head_dim: d,
            causal: false,
            scale: 1.0 / (d as f32).sqrt(),
            q: tensors[0].clone(),
            k: tensors[1].clone(),
            v: tensors[2].clone(),
            terms: vec![],
            kept: vec![],
            kept_share: 1.0,
        };
        let exact = call.exact();
        for engine in backends() {
            let tensors: Vec<Vec<f16>> =
                tensors.iter().map(|x| x.iter().map(|&x| f16::from_f64(x)).collect()).collect();
            let input = |i: usize| TensorRef::bhnd(&tensors[i], SHAPE).expect("it fits");
            let mut o = vec![f16::ZERO; n * d];
            let mut out = TensorMut::bhnd(&mut o, SHAPE).expect("it fits");
            let options = ForwardOptions::new().with_precision(Precision::NvFp4(NvFp4::default()));
            ffpa_forward(&engine, input(0), input(1), input(2), &mut out, &options).expect("it runs");
            let o: Vec<f64> = o.iter().map(|x| x.to_f64()).collect();
            let [cosine, l1, worst] = errors(&o, &exact.o, d);
            println!(
                "{}, means {means:?}: cosine {cosine:.5}, L1 {l1:.4}, worst row {worst:.3}",
                engine.device().name
            );
            assert!(cosine >= least && l1 <= largest, "{}: {cosine} {l1}", engine.device().name);
        }
    }
}

fn run_with(file: &str, change: impl Fn(NvFp4, &Case) -> NvFp4) {
    let left_out = |engine: &Engine, case: &Case| leaves_out(Family::NvFp4, engine, case);
    let tally = run_file(file, left_out, |engine, number, case| {
        let case = &Case { seed: case.seed + SEED, ..case.clone() };
        let recipe = change(recipes()[number % 4], case);
        let result = match number / 4 % 2 {
            0 => check::<f16>(engine, case, recipe),
            _ => check::<bf16>(engine, case, recipe),
        };
        vec![result.map_err(|error| format!("{recipe:?}: {error}"))]
    });
    report(file, tally);
}

fn check<T: TestElement + Element>(engine: &Engine, case: &Case, nvfp4: NvFp4) -> Result<f64, String> {
    let precision = Precision::NvFp4(nvfp4);
    let (call, answer) = answer::<T>(engine, case, precision)?;
    let recipe = recipe(engine, case, T::DTYPE, |problem| problem.precision = precision)?;
    let mut simulated = call.quantized(&recipe);
    simulated.o.iter_mut().for_each(|o| *o = T::from_f64(*o).to_f64());
    compare::<T>(&answer, &simulated, &call, engine.backend(), &recipe)
        .map_err(|e| format!("{}: {e}", T::NAME))
}
