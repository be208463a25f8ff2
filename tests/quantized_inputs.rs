//! Tensors that come in eight bits, with the scales of a caller, by the same cases as the others.

mod support;

use ffpa::{Element, Engine, F8E4M3, Family, InputType, Precision, bf16, f16};
use support::cases::{Case, LayoutKind};
use support::eight_bits::{compare, leaves_out, recipe, report};
use support::layout::TestElement;
use support::suite::{run_file, suite};
use support::trial::{Sharing, answer_in};

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
    nan_beyond_the_valid_length,
    decoding,
    divided_keys,
    large_logits,
    lse_against_f64,
}

/// What shares a scale of Q, K and V: together, every way of each.
const SHARINGS: [[Option<Sharing>; 3]; 4] = [
    [Some(Sharing::Head), Some(Sharing::Head), Some(Sharing::Block(64))],
    [Some(Sharing::Tensor); 3],
    [Some(Sharing::Head), Some(Sharing::Block(64)), Some(Sharing::Head)],
    [Some(Sharing::Block(3)), Some(Sharing::Head), Some(Sharing::Block(128))],
];

fn run(file: &str) {
    let left_out =
        |engine: &Engine, case: &Case| leaves_out(Family::Fp8, engine, case) || !case.d.is_multiple_of(16);
    let tally = run_file(file, left_out, |engine, number, case| {
        let sharing = match case.layout {
            // Heads and batch entries that are one in memory have one scale.
            LayoutKind::BroadcastKv | LayoutKind::BroadcastBatch => [Some(Sharing::Tensor); 3],
            _ => SHARINGS[number % 4],
        };
        let result = match number / 2 % 2 {
            0 => check::<f16>(engine, case, sharing),
            _ => check::<bf16>(engine, case, sharing),
        };
        vec![result.map_err(|error| format!("{sharing:?}: {error}"))]
    });
    report(file, tally);
}

fn check<O: TestElement + Element>(
    engine: &Engine,
    case: &Case,
    sharing: [Option<Sharing>; 3],
) -> Result<f64, String> {
    let (call, given, got) = answer_in::<F8E4M3, O>(engine, case, Precision::Native, sharing)?;
    let recipe = recipe(engine, case, O::DTYPE, |problem| problem.input = InputType::F8E4M3)?;
    let mut simulated = call.simulated(&recipe, Some(&given));
    simulated.o.iter_mut().for_each(|o| *o = O::from_f64(*o).to_f64());
    compare::<O>(&got, &simulated, &call, engine.backend(), &recipe).map_err(|e| format!("{}: {e}", O::NAME))
}
