//! Kernels in eight bits, by the same cases as the others and on every backend that applies.
//!
//! A result is held to a simulation of the recipe that shares no code with the library, and its error against exact attention
//! to the simulation's own.

mod support;

use ffpa::{
    Arch, BackendKind, BuildInfo, DeviceInfo, Engine, ForwardOptions, Fp8, Lse, Precision, Problem,
    ScoreNumbers, TensorMut, TensorRef, ValueScales, bf16, f16, ffpa_forward, plan,
};
use support::cases::{Case, LayoutKind, load};
use support::compare::difference;
use support::inputs::Normal;
use support::layout::{Inputs, Placed, TestElement};
use support::quantized::Recipe;
use support::reference::{Answer, Call};

/// The largest head dim of the default window.
const WINDOW: usize = 224;

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
    many_heads,
}

fn backends() -> Vec<Engine> {
    let names = std::env::var("FFPA_TEST_BACKENDS").unwrap_or_else(|_| "cpu,emulator".into());
    let engines = |name| match name {
        "cpu" => vec![Engine::cpu()],
        "emulator" => vec![
            Engine::emulator(Arch::Sm89),
            Engine::emulator_with_seed(Arch::Sm90a, 3),
            Engine::emulator_with_seed(Arch::Sm120f, 7),
        ],
        "cuda" => vec![Engine::cuda(0).unwrap_or_else(|error| panic!("{error}"))],
        _ => panic!("FFPA_TEST_BACKENDS names {name:?}: cpu, emulator and cuda are known"),
    };
    names.split(',').flat_map(engines).collect()
}

/// Recipes that together have every choice, with every other.
fn recipes() -> [Fp8; 4] {
    let fp8 = Fp8::default();
    [
        fp8,
        fp8.with_scores(ScoreNumbers::Int8).with_smooth_v(true),
        fp8.with_value_scales(ValueScales::Block).with_smooth_k(false),
        fp8.with_scores(ScoreNumbers::Int8).with_value_scales(ValueScales::Block),
    ]
}

fn run(file: &str) {
    let (mut runs, mut left_out, mut failures, mut worst) = (0, 0, Vec::new(), 0.0_f64);
    for engine in backends() {
        for (number, case) in load(file).into_iter().enumerate() {
            let masked = case.mask.is_some() || case.dropout.is_some();
            if engine.backend() == BackendKind::Emulator && !case.emulate || case.d > WINDOW || masked {
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
    assert!(runs > 0 || left_out > 0);
}

fn check<T: TestElement>(engine: &Engine, case: &Case, fp8: Fp8) -> Result<f64, String> {
    let (batch, q_heads, kv_heads, d) = (case.batch, case.heads, case.kv_heads(), case.d);
    let q_shape = [batch, q_heads, case.q_len, d];
    let kv_shape = [batch, kv_heads, case.kv_len(), d];
    let mut normal = Normal::new(case.seed);
    let mut sample = |shape: [usize; 4], spread: f64, offset: f64| -> Vec<f64> {
        let values = normal.vec(shape.iter().product(), spread);
        values.into_iter().map(|x| T::from_f64(x + offset).to_f64()).collect()
    };
    let q = sample(q_shape, case.spread, 0.0);
    let mut k = sample(kv_shape, case.spread, 0.0);
    let mut v = sample(kv_shape, 1.0, case.v_offset);
    if case.layout == LayoutKind::BroadcastKv {
        for values in [&mut k, &mut v] {
            for batch in values.chunks_mut(kv_heads * case.kv_len() * d) {
                let (first, others) = batch.split_at_mut(case.kv_len() * d);
                others.chunks_mut(first.len()).for_each(|head| head.copy_from_slice(first));
            }
        }
    }
    let inputs = Inputs::<T>::new(case.layout, [q_shape, kv_shape, kv_shape], [&q, &k, &v]);
    let first = call(engine, case, &inputs, q_shape, fp8)?;
    let second = call(engine, case, &inputs, q_shape, fp8)?;
    if first.bits != second.bits {
        return Err("a second run gave other bits".into());
    }
    let mut problem = Problem::contiguous(T::DTYPE, [batch, q_heads, kv_heads, case.q_len, case.kv_len(), d]);
    (problem.precision, problem.causal) = (Precision::Fp8(fp8), case.causal);
    let plan = plan(&problem, engine.device(), &BuildInfo::current()).map_err(|e| e.to_string())?;
    let call = Call {
        batch,
        q_heads,
        kv_heads,
        q_len: case.q_len,
        kv_len: case.kv_len(),
        head_dim: d,
        causal: case.causal,
        scale: case.scale(),
        q,
        k,
        v,
        terms: vec![],
        kept: vec![],
        kept_share: 1.0,
    };
    let ada = engine.device().compute_capability == DeviceInfo::of_arch(Arch::Sm89).compute_capability;
    let recipe = Recipe {
        int8: fp8.scores == ScoreNumbers::Int8,
        smooth_k: fp8.smooth_k,
        by_channel: fp8.value_scales == ValueScales::Channel,
        smooth_v: fp8.smooth_v && fp8.value_scales == ValueScales::Channel,
        tile: plan.kernel.keys,
        part: plan.params.parts.keys as usize,
        fraction: if ada { 13 } else { 23 },
    };
    let mut simulated = call.quantized(&recipe);
    simulated.o.iter_mut().for_each(|o| *o = T::from_f64(*o).to_f64());
    compare(&first.answer, &simulated, &call, engine.backend(), recipe.int8)
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

struct Run {
    answer: Answer,
    /// Everything the call wrote, bit by bit.
    bits: (Vec<u16>, Vec<u32>),
}

fn call<T: TestElement>(
    engine: &Engine,
    case: &Case,
    inputs: &Inputs<T>,
    q_shape: [usize; 4],
    fp8: Fp8,
) -> Result<Run, String> {
    let rows: usize = q_shape[..3].iter().product();
    let kind = if case.layout == LayoutKind::BroadcastKv { LayoutKind::Bhnd } else { case.layout };
    let mut output = Placed::<T>::new(kind, q_shape);
    let mut lse = vec![f32::NAN; rows];
    let before: Vec<_> = inputs.tensors().map(|tensor| tensor.bits()).into();
    let output_before = output.bits();
    let mut options = ForwardOptions::new().with_causal(case.causal).with_precision(Precision::Fp8(fp8));
    options.scale = case.scale;
    let views =
        inputs.tensors().map(|tensor| TensorRef::strided(tensor.slice(), tensor.shape, tensor.strides));
    let [q, k, v] = views.map(|view| view.map_err(|e| e.to_string()));
    let (shape, strides) = (output.shape, output.strides);
    let out = TensorMut::strided(output.slice_mut(), shape, strides).map_err(|e| e.to_string())?;
    let mut results = (out, Lse::host(&mut lse));
    ffpa_forward::<T>(engine, q?, k?, v?, &mut results, &options).map_err(|e| e.to_string())?;
    if inputs.tensors().iter().zip(&before).any(|(tensor, before)| tensor.bits() != *before) {
        return Err("an input was written to".into());
    }
    if output.outside_changes(&output_before) > 0 {
        return Err("elements around the output were written to".into());
    }
    let bits = (output.bits(), lse.iter().map(|x| x.to_bits()).collect());
    let lse = lse.iter().map(|&x| f64::from(x)).collect();
    Ok(Run { answer: Answer { o: output.values(), lse }, bits })
}
