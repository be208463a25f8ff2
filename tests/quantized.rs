//! Kernels in eight bits, by the same cases as the others and on every backend that applies.
//!
//! A result is held to a simulation of the recipe that shares no code with the library, and its error against exact attention
//! to the simulation's own.

mod support;

use ffpa::{
    Element, Engine, Family, ForwardOptions, Fp8, Lse, Precision, ScoreNumbers, TensorMut, TensorRef,
    ValueScales, bf16, f16, ffpa_forward,
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
fn recipes() -> [Fp8; 6] {
    let fp8 = Fp8::default();
    [
        fp8,
        fp8.with_scores(ScoreNumbers::Int8).with_value_scales(ValueScales::Channel { smooth: true }),
        fp8.with_value_scales(ValueScales::Block).with_smooth_k(false),
        fp8.with_scores(ScoreNumbers::Int8).with_value_scales(ValueScales::Block),
        fp8.with_f16_sums(true),
        fp8.with_scores(ScoreNumbers::Int8).with_value_scales(ValueScales::Block).with_f16_sums(true),
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
    let left_out = |engine: &Engine, case: &Case| leaves_out(Family::Fp8, engine, case);
    let tally = run_file(file, left_out, |engine, number, case| {
        // Two of the recipes for each case, in one type or the other: all take turns.
        let both = [number % 6, (number + 1) % 6].map(|which| {
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

/// Normally distributed numbers of a shape.
fn tensor(shape: [usize; 4], seed: u64) -> Vec<f64> {
    Normal::new(seed).vec(shape.iter().product(), 1.0)
}

/// Attention of a shape on tensors in f16.
fn output(
    engine: &Engine,
    shape: [usize; 4],
    tensors: [&[f64]; 3],
    options: &ForwardOptions<'_>,
    lse: Option<&mut [f32]>,
) -> Vec<f16> {
    let [q, k, v] = tensors.map(|x| x.iter().map(|&x| f16::from_f64(x)).collect::<Vec<_>>());
    let [q, k, v] = [&q, &k, &v].map(|data| TensorRef::bhnd(data, shape).expect("it fits"));
    let mut o = vec![f16::ZERO; tensors[0].len()];
    let mut out = TensorMut::bhnd(&mut o, shape).expect("it fits");
    let done = match lse {
        Some(lse) => ffpa_forward(engine, q, k, v, &mut (out, Lse::host(lse)), options),
        None => ffpa_forward(engine, q, k, v, &mut out, options),
    };
    done.expect("it runs");
    o
}

/// Relative to what is exact.
fn error(o: &[f16], exact: &[f16]) -> f64 {
    let pairs = o.iter().zip(exact).map(|(a, b)| (a.to_f64(), b.to_f64()));
    let (errors, norm) = pairs.fold((0.0, 0.0), |(e, n), (a, b)| (e + (a - b) * (a - b), n + b * b));
    (errors / norm).sqrt()
}

/// The mean key is subtracted whether or not anybody asks for what it would have added to the log-sum-exp.
#[test]
fn the_output_does_not_depend_on_the_log_sum_exp() {
    let shape = [1, 2, 300, 72];
    let [q, mut k, v] = [5, 6, 7].map(|seed| tensor(shape, seed));
    // Keys with a mean far from zero: what smoothing is for.
    k.iter_mut().for_each(|x| *x += 4.0);
    let run = |engine: &Engine, precision, lse: Option<&mut [f32]>| {
        output(engine, shape, [&q, &k, &v], &ForwardOptions::causal().with_precision(precision), lse)
    };
    let fp8 = Fp8::default().with_native_rows(100);
    for engine in backends() {
        let mut lse = vec![0.0; 600];
        let with = run(&engine, Precision::Fp8(fp8), Some(&mut lse));
        assert_eq!(with, run(&engine, Precision::Fp8(fp8), None));
        let exact = run(&engine, Precision::Native, None);
        let rough = run(&engine, Precision::Fp8(fp8.with_smooth_k(false)), None);
        let (with, rough) = (error(&with, &exact), error(&rough, &exact));
        assert!(with < 0.7 * rough, "{with} {rough}");
    }
}

/// More heads than can be counted, of no rows.
#[test]
fn a_huge_shape_without_rows_is_no_work() {
    let shape = [1 << 62, 4, 0, 64];
    let none: [f16; 0] = [];
    for engine in backends() {
        for precision in [Precision::Native, Precision::Fp8(Fp8::default())] {
            let tensor = TensorRef::bhnd(&none, shape).expect("it spans nothing");
            let mut o = none;
            let mut out = TensorMut::bhnd(&mut o, shape).expect("it spans nothing");
            let options = ForwardOptions::new().with_precision(precision);
            ffpa_forward(&engine, tensor, tensor, tensor, &mut out, &options)
                .expect("there is nothing to do");
        }
    }
}

/// An element that is no finite number makes NaN of what depends on it, and of nothing in another head: integers have no NaN, so
/// it has to be in their scale.
#[test]
fn what_is_no_finite_number_is_not_taken_for_one() {
    const SHAPE: [usize; 4] = [1, 2, 150, 64];
    const HEAD: usize = SHAPE[2] * SHAPE[3];
    const BAD: (usize, usize) = (77, 13);
    let clean = [5, 6, 7].map(|seed| tensor(SHAPE, seed));
    let by_block = Fp8::default().with_smooth_k(false).with_value_scales(ValueScales::Block);
    for engine in backends() {
        for fp8 in [by_block, Fp8::default().with_value_scales(ValueScales::Channel { smooth: true })] {
            for scores in [ScoreNumbers::E4m3, ScoreNumbers::Int8] {
                let options = ForwardOptions::new().with_precision(Precision::Fp8(fp8.with_scores(scores)));
                let run = |[q, k, v]: &[Vec<f64>; 3]| output(&engine, SHAPE, [q, k, v], &options, None);
                let right = run(&clean);
                for (which, bad) in [0, 1, 2].into_iter().flat_map(|i| [(i, f64::NAN), (i, f64::INFINITY)]) {
                    let mut spoilt = clean.clone();
                    spoilt[which][BAD.0 * SHAPE[3] + BAD.1] = bad;
                    let o = run(&spoilt);
                    assert_eq!(o[HEAD..], right[HEAD..], "{bad} in another head");
                    for (i, x) in o[..HEAD].iter().enumerate() {
                        let depends = match which {
                            0 => i / SHAPE[3] == BAD.0,
                            1 => true,
                            _ => i % SHAPE[3] == BAD.1,
                        };
                        assert!(x.is_nan() || !depends, "{scores:?} {which} {bad}: {x} at {i}");
                    }
                }
            }
        }
    }
}

/// Where one column of Q and K sticks out, of either sign, its products are nearly the whole score, and their errors too; rotated,
/// no column is larger than others.
#[test]
fn rotation_lowers_the_error_where_a_column_sticks_out() {
    let shape = [1, 1, 130, 64];
    let [mut q, mut k, v] = [5, 6, 7].map(|seed| tensor(shape, seed));
    for x in q.iter_mut().chain(&mut k).skip(5).step_by(64) {
        *x += 10.0 * x.signum();
    }
    for engine in backends() {
        let run = |precision| {
            let options = ForwardOptions::new().with_precision(precision);
            output(&engine, shape, [&q, &k, &v], &options, None)
        };
        let exact = run(Precision::Native);
        for scores in [ScoreNumbers::E4m3, ScoreNumbers::Int8] {
            let fp8 = Fp8::default().with_scores(scores);
            let [with, without] = [true, false]
                .map(|rotation| error(&run(Precision::Fp8(fp8.with_rotation(rotation))), &exact));
            println!("{scores:?}: {with:.4} rotated, {without:.4} as they are");
            assert!(with < 0.75 * without, "{scores:?}: {with} {without}");
        }
    }
}
