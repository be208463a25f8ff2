//! Kernels in eight bits, by the same cases as the others and on every backend that applies.
//!
//! A result is held to a simulation of the recipe that shares no code with the library, and its error against exact attention
//! to the simulation's own.

mod support;

use ffpa::{
    Element, Engine, ForwardOptions, Fp8, Lse, Precision, ScoreNumbers, TensorMut, TensorRef, ValueScales,
    bf16, f16, ffpa_forward,
};
use support::cases::Case;
use support::eight_bits::{compare, leaves_out, recipe, report};
use support::inputs::Normal;
use support::layout::TestElement;
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

/// All rows in eight bits, whatever the default.
fn run(file: &str) {
    run_with(file, |recipe, _| recipe.with_native_rows(0));
}

/// The first rows in 16 bits: as many as the case says, or as recipes have by default.
#[test]
fn early_rows() {
    run_with("early_rows", |recipe, case| case.native_rows.map_or(recipe, |n| recipe.with_native_rows(n)));
}

/// Q and K rotated before they are rounded.
#[test]
fn rotation() {
    run_with("rotation", |recipe, _| recipe.with_native_rows(0).with_rotation(true));
}

fn run_with(file: &str, change: impl Fn(Fp8, &Case) -> Fp8) {
    let tally = run_file(file, leaves_out, |engine, number, case| {
        // Two of the recipes for each case, in one type or the other: all take turns.
        let both = [number % 4, (number + 1) % 4].map(|which| {
            let recipe = change(recipes()[which], case);
            let result = match number / 2 % 2 {
                0 => check::<f16>(engine, case, recipe),
                _ => check::<bf16>(engine, case, recipe),
            };
            result.map_err(|error| format!("{recipe:?}: {error}"))
        });
        both.into()
    });
    report(file, tally);
}

fn check<T: TestElement + Element>(engine: &Engine, case: &Case, fp8: Fp8) -> Result<f64, String> {
    let precision = Precision::Fp8(fp8);
    let (call, answer) = answer::<T>(engine, case, precision)?;
    let recipe = recipe(engine, case, T::DTYPE, |problem| problem.precision = precision)?;
    let mut simulated = call.quantized(&recipe);
    simulated.o.iter_mut().for_each(|o| *o = T::from_f64(*o).to_f64());
    compare::<T>(&answer, &simulated, &call, engine.backend(), &recipe)
        .map_err(|e| format!("{}: {e}", T::NAME))
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
    let fp8 = Fp8::default().with_native_rows(100);
    for engine in backends() {
        let mut lse = vec![0.0; 600];
        let with = run(&engine, Precision::Fp8(fp8), Some(&mut lse));
        assert_eq!(with, run(&engine, Precision::Fp8(fp8), None));
        let exact = run(&engine, Precision::Native, None);
        let error = |o: &[f16]| -> f64 {
            let pairs = o.iter().zip(&exact).map(|(a, b)| (a.to_f64(), b.to_f64()));
            let (errors, norm) = pairs.fold((0.0, 0.0), |(e, n), (a, b)| (e + (a - b) * (a - b), n + b * b));
            (errors / norm).sqrt()
        };
        let rough = run(&engine, Precision::Fp8(fp8.with_smooth_k(false)), None);
        assert!(error(&with) < 0.7 * error(&rough), "{} {}", error(&with), error(&rough));
    }
}
