//! Kernels in eight bits, by the same cases as the others and on every backend that applies.
//!
//! A result is held to a simulation of the recipe that shares no code with the library, and its error against exact attention
//! to the simulation's own.

mod support;

use ffpa::{
    BackendKind, BuildInfo, Engine, ForwardOptions, Fp8, Lse, Precision, Problem, ScoreNumbers, TensorMut,
    TensorRef, ValueScales, bf16, f16, ffpa_forward, plan,
};
use support::cases::{Case, load};
use support::compare::difference;
use support::inputs::Normal;
use support::layout::TestElement;
use support::quantized::Recipe;
use support::reference::{Answer, Call};
use support::trial::{answer, backends};

/// The largest head dim of the build's kernels in eight bits.
fn window() -> usize {
    let build = BuildInfo::current();
    let quantized = build.kernels.iter().filter(|kernel| kernel.arithmetic.is_quantized());
    quantized.map(|kernel| kernel.head_dim).max().expect("the build has some")
}

macro_rules! suite {
    ($($file:ident),* $(,)?) => {
        $(#[test] fn $file() { run(stringify!($file)); })*
    };
}

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

/// Recipes that together have every choice, with every other.
fn recipes() -> [Fp8; 4] {
    let fp8 = Fp8::default();
    [
        fp8,
        fp8.with_scores(ScoreNumbers::Int8).with_value_scales(ValueScales::Channel { smooth: true }),
        fp8.with_value_scales(ValueScales::Block).with_smooth_k(false),
        fp8.with_scores(ScoreNumbers::Int8).with_value_scales(ValueScales::Block),
    ]
}

fn run(file: &str) {
    let window = window();
    let (mut runs, mut left_out, mut failures, mut worst) = (0, 0, Vec::new(), 0.0_f64);
    for engine in backends() {
        for (number, case) in load(file).into_iter().enumerate() {
            let masked = case.mask.is_some() || case.dropout.is_some();
            if engine.backend() == BackendKind::Emulator && !case.emulate || case.d > window || masked {
                left_out += 1;
                continue;
            }
            // Two of the recipes for each case, in one type or the other: all take turns.
            for which in [number % 4, (number + 1) % 4] {
                let recipe = recipes()[which];
                let result = match number / 2 % 2 {
                    0 => check::<f16>(&engine, &case, recipe),
                    _ => check::<bf16>(&engine, &case, recipe),
                };
                runs += 1;
                match result {
                    Ok(row) => worst = worst.max(row),
                    Err(error) => {
                        let name = &engine.device().name;
                        failures
                            .push(format!("{} ({name}), {recipe:?}, {case:?}: {error}", engine.backend()));
                    }
                }
            }
        }
    }
    println!("{file}: {runs} runs, worst row {worst:.4}; {left_out} cases left out: head dims, masks, tiles");
    assert!(failures.is_empty(), "{} of {runs} runs failed:\n{}", failures.len(), failures.join("\n"));
    assert!(runs > 0);
}

fn check<T: TestElement>(engine: &Engine, case: &Case, fp8: Fp8) -> Result<f64, String> {
    let precision = Precision::Fp8(fp8);
    let (call, answer) = answer::<T>(engine, case, precision)?;
    let sizes = [case.batch, case.heads, case.kv_heads(), case.q_len, case.kv_len(), case.d];
    let mut problem = Problem::contiguous(T::DTYPE, sizes);
    (problem.precision, problem.causal, problem.lse) = (precision, case.causal, true);
    let plan = plan(&problem, engine.device(), &BuildInfo::current()).map_err(|e| e.to_string())?;
    let recipe = Recipe::of(&plan, engine.device());
    let mut simulated = call.quantized(&recipe);
    simulated.o.iter_mut().for_each(|o| *o = T::from_f64(*o).to_f64());
    compare(&answer, &simulated, &call, engine.backend(), recipe.int8)
        .map_err(|e| format!("{}: {e}", T::NAME))
}

/// The error of the worst row, relative to the simulation.
fn compare(
    got: &Answer,
    simulated: &Answer,
    call: &Call,
    backend: BackendKind,
    int8: bool,
) -> Result<f64, String> {
    let tight = if int8 || backend != BackendKind::Cuda { 2e-3 } else { 1e-2 };
    let close = difference(&got.o, &simulated.o)?;
    if close.relative > tight {
        return Err(format!("{:.2e} from the simulation, allowed {tight:.0e}", close.relative));
    }
    let lse = difference(&got.lse, &simulated.lse).map_err(|e| format!("lse: {e}"))?;
    if lse.relative > 2e-3 {
        return Err(format!("lse: {:.2e} from the simulation", lse.relative));
    }
    let exact = call.exact();
    let (own, fair) = (difference(&got.o, &exact.o)?, difference(&simulated.o, &exact.o)?);
    if own.relative > 1.15 * fair.relative {
        return Err(format!("error {:.3e}, the recipe's own is {:.3e}", own.relative, fair.relative));
    }
    let rows = got.o.chunks(call.head_dim).zip(simulated.o.chunks(call.head_dim));
    let worst = rows.map(|(got, simulated)| difference(got, simulated).map(|d| d.relative));
    worst.collect::<Result<Vec<_>, _>>().map(|rows| rows.into_iter().fold(0.0, f64::max))
}

/// The mean key is subtracted whether or not anybody asks for what it would have added to the log-sum-exp.
#[test]
fn the_output_does_not_depend_on_the_log_sum_exp() {
    let shape = [1, 2, 300, 72];
    let count = shape.iter().product();
    // Keys with a mean far from zero: what smoothing is for.
    let mut normal = Normal::new(5);
    let mut tensor = |offset: f64| -> Vec<f16> {
        normal.vec(count, 1.0).into_iter().map(|x| f16::from_f64(x + offset)).collect()
    };
    let (q, k, v) = (tensor(0.0), tensor(4.0), tensor(0.0));
    let view = |data| TensorRef::bhnd(data, shape).expect("it fits");
    let run = |engine: &Engine, precision, lse: Option<&mut [f32]>| {
        let mut o = vec![f16::ZERO; count];
        let options = ForwardOptions::causal().with_precision(precision);
        let out = TensorMut::bhnd(&mut o, shape).expect("it fits");
        let done = match lse {
            Some(lse) => {
                ffpa_forward(engine, view(&q), view(&k), view(&v), &mut (out, Lse::host(lse)), &options)
            }
            None => ffpa_forward(engine, view(&q), view(&k), view(&v), &mut { out }, &options),
        };
        done.expect("it runs");
        o
    };
    for engine in backends() {
        let mut lse = vec![0.0; 600];
        let with = run(&engine, Precision::Fp8(Fp8::default()), Some(&mut lse));
        assert_eq!(with, run(&engine, Precision::Fp8(Fp8::default()), None));
        let exact = run(&engine, Precision::Native, None);
        let error = |o: &[f16]| -> f64 {
            let pairs = o.iter().zip(&exact).map(|(a, b)| (a.to_f64(), b.to_f64()));
            let (errors, norm) = pairs.fold((0.0, 0.0), |(e, n), (a, b)| (e + (a - b) * (a - b), n + b * b));
            (errors / norm).sqrt()
        };
        let rough = run(&engine, Precision::Fp8(Fp8::default().with_smooth_k(false)), None);
        assert!(error(&with) < 0.7 * error(&rough), "{} {}", error(&with), error(&rough));
    }
}
