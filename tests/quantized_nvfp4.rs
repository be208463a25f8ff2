//! Kernels in NVFP4, by the same cases as the others and on every backend that applies: held to a simulation of the recipe, as
//! those in eight bits are.

mod support;

use ffpa::{Element, Engine, Family, NvFp4, Precision, bf16, f16};
use support::cases::Case;
use support::eight_bits::{compare, leaves_out, recipe, report};
use support::layout::TestElement;
use support::suite::{run_file, suite};
use support::trial::answer;

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
fn recipes() -> [NvFp4; 3] {
    let nvfp4 = NvFp4::default();
    [nvfp4, nvfp4.with_smooth_v(true), nvfp4.with_smooth_k(false)]
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

fn run_with(file: &str, change: impl Fn(NvFp4, &Case) -> NvFp4) {
    let left_out = |engine: &Engine, case: &Case| leaves_out(Family::NvFp4, engine, case);
    let tally = run_file(file, left_out, |engine, number, case| {
        let case = &Case { seed: case.seed + SEED, ..case.clone() };
        let recipe = change(recipes()[number % 3], case);
        let result = match number / 3 % 2 {
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
