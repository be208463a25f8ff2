//! Tensors that come in eight bits, with the scales of a caller, by the same cases as the others.

mod support;

use ffpa::{BackendKind, BuildInfo, Element, Engine, F8E4M3, InputType, Precision, Problem, bf16, f16, plan};
use support::cases::{Case, LayoutKind, load};
use support::compare::difference;
use support::layout::TestElement;
use support::quantized::Recipe;
use support::trial::{Sharing, answer_in, backends};

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
    let (mut runs, mut left_out, mut failures, mut worst) = (0, 0, Vec::new(), 0.0_f64);
    let build = BuildInfo::current();
    let eight = build.kernels.iter().filter(|kernel| kernel.arithmetic.is_quantized());
    let window = eight.map(|kernel| kernel.head_dim).max().unwrap_or(0);
    for engine in backends() {
        for (number, case) in load(file).into_iter().enumerate() {
            let modified = case.mask.is_some() || case.dropout.is_some();
            let emulated = engine.backend() == BackendKind::Emulator;
            if emulated && !case.emulate || case.d > window || case.d % 16 != 0 || modified {
                left_out += 1;
                continue;
            }
            let mut sharing = SHARINGS[number % 4];
            // Heads and batch entries that are one in memory have one scale.
            if matches!(case.layout, LayoutKind::BroadcastKv | LayoutKind::BroadcastBatch) {
                sharing = SHARINGS[1];
            }
            let result = match number / 2 % 2 {
                0 => check::<f16>(&engine, &case, sharing),
                _ => check::<bf16>(&engine, &case, sharing),
            };
            runs += 1;
            match result {
                Ok(row) => worst = worst.max(row),
                Err(error) => {
                    failures.push(format!("{:?}, {sharing:?}, {case:?}: {error}", engine.device().name))
                }
            }
        }
    }
    println!("{file}: {runs} runs, worst row {worst:.4}; {left_out} cases left out: head dims, masks, tiles");
    assert!(failures.is_empty(), "{} of {runs} runs failed:\n{}", failures.len(), failures.join("\n"));
    assert!(runs > 0);
}

/// The error of the worst row, relative to the simulation.
fn check<O: TestElement + Element>(
    engine: &Engine,
    case: &Case,
    sharing: [Option<Sharing>; 3],
) -> Result<f64, String> {
    let (call, given, got) = answer_in::<F8E4M3, O>(engine, case, Precision::Native, sharing)?;
    let sizes = [case.batch, case.heads, case.kv_heads(), case.q_len, case.kv_len(), case.d];
    let mut problem = Problem::contiguous(O::DTYPE, sizes);
    (problem.input, problem.causal, problem.lse) = (InputType::F8E4M3, case.causal, true);
    let plan = plan(&problem, engine.device(), &BuildInfo::current()).map_err(|e| e.to_string())?;
    let mut simulated = call.simulated(&Recipe::of(&plan, engine.device()), Some(&given));
    simulated.o.iter_mut().for_each(|o| *o = O::from_f64(*o).to_f64());
    let tight = if engine.backend() == BackendKind::Cuda { 1e-2 } else { 2e-3 };
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
