//! One call, its report, and its check.

use std::fmt::Write;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ffpa::{
    Arch, BuildInfo, Dropout, Dtype, Element, Engine, ForwardOptions, Lse, Precision, Problem, Report,
    TensorMut, TensorRef, bf16, f16, ffpa_forward, plan,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::Failure;
use crate::arguments::{Arguments, BackendArgument, LayoutArgument};
use crate::compare::{check_lse, check_output, difference};
use crate::dropout::kept;
use crate::file::{self, Inputs, MaskInput, SAMPLE, SAMPLE_PREFIX};
use crate::quantized::Recipe;
use crate::reference::{Answer, Call};

/// What is printed, and what is wrong with the result if a check failed.
pub struct Outcome {
    pub text: String,
    pub wrong: Option<String>,
}

/// Does what the command line asks.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    if let Some((name, families)) = arguments.misplaced() {
        return Err(format!("{name} needs --family {families}").into());
    }
    let engine = engine(arguments)?;
    let bytes = match &arguments.input {
        Some(path) => fs::read(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?,
        None => SAMPLE.to_vec(),
    };
    let default = if arguments.input.is_none() { SAMPLE_PREFIX } else { "" };
    let prefix = arguments.prefix.as_deref().unwrap_or(default);
    let inputs = Inputs::read(&bytes, prefix, arguments.layout)?;
    let mask = arguments.mask_key.as_deref().map(|name| MaskInput::read(&bytes, name)).transpose()?;
    match arguments.dtype.unwrap_or(inputs.dtype()) {
        Dtype::F16 => forward::<f16>(arguments, &engine, &inputs, mask.as_ref()),
        Dtype::Bf16 => forward::<bf16>(arguments, &engine, &inputs, mask.as_ref()),
    }
}

fn engine(arguments: &Arguments) -> Result<Engine, Failure> {
    if let (Some(arch), false) = (arguments.arch, arguments.backend == BackendArgument::Emulator) {
        return Err(format!("--arch {} needs --backend emulator", arch.target()).into());
    }
    Ok(match arguments.backend {
        BackendArgument::Auto => Engine::auto(),
        BackendArgument::Cpu => Engine::cpu(),
        BackendArgument::Emulator => Engine::emulator(arguments.arch.unwrap_or(Arch::Sm89)),
        BackendArgument::Cuda => Engine::cuda(0)?,
    })
}

fn forward<T: Element>(
    arguments: &Arguments,
    engine: &Engine,
    inputs: &Inputs<'_>,
    mask: Option<&MaskInput>,
) -> Result<Outcome, Failure> {
    let [q, k, v] = [&inputs.q, &inputs.k, &inputs.v].map(|input| input.elements::<T>());
    let mut o = vec![T::zeroed(); q.len()];
    let shape = inputs.q.shape;
    let mut lse = vec![0.0; shape[..3].iter().product()];

    let bar = progress_bar();
    let tick = bar.clone();
    let mut options = ForwardOptions::new()
        .with_causal(arguments.causal)
        .with_precision(arguments.precision())
        .with_progress(Arc::new(move |done, total| advance(&tick, done, total)));
    options.scale = arguments.scale;
    options.mask = mask.map(MaskInput::view).transpose()?;
    options.dropout = arguments.dropout.map(|rate| Dropout { rate, seed: arguments.seed, offset: 0 });

    let tensor = |data, shape| match arguments.layout {
        LayoutArgument::Bhnd => TensorRef::bhnd(data, shape),
        LayoutArgument::Bnhd => TensorRef::bnhd(data, shape),
    };
    let out = match arguments.layout {
        LayoutArgument::Bhnd => TensorMut::bhnd(&mut o, shape)?,
        LayoutArgument::Bnhd => TensorMut::bnhd(&mut o, shape)?,
    };
    let (q_view, k_view, v_view) =
        (tensor(&q, shape)?, tensor(&k, inputs.k.shape)?, tensor(&v, inputs.v.shape)?);
    let start = Instant::now();
    let report = ffpa_forward::<T>(engine, q_view, k_view, v_view, &mut (out, Lse::host(&mut lse)), &options);
    let elapsed = start.elapsed();
    bar.finish_and_clear();
    let report = report?;

    let mut text = describe::<T>(inputs, arguments, &report, report.elapsed.unwrap_or(elapsed));
    if let Some(path) = &arguments.out {
        file::write(path, &o, &lse, shape, arguments.layout)?;
        writeln!(text, "output   {}", path.display())?;
    }
    let wrong = match arguments.check {
        true => check(arguments, engine, inputs, [&q, &k, &v], mask, (&o, &lse), &mut text)?,
        false => None,
    };
    Ok(Outcome { text, wrong })
}

fn describe<T: Element>(
    inputs: &Inputs<'_>,
    arguments: &Arguments,
    report: &Report,
    time: Duration,
) -> String {
    let ([b, hq, nq, d], [_, hkv, nkv, _]) = (inputs.q.shape, inputs.k.shape);
    let mut changes = String::new();
    if arguments.causal {
        changes += ", causal";
    }
    if let Some(name) = &arguments.mask_key {
        changes += &format!(", masked by {name}");
    }
    if let Some(rate) = arguments.dropout {
        changes += &format!(", dropout {rate} of seed {}", arguments.seed);
    }
    let early = report.early_kernel.map_or(String::new(), |kernel| format!(", after {kernel}"));
    let seconds = time.as_secs_f64();
    format!(
        "shape    batch {b}, heads {hq}/{hkv}, length {nq}/{nkv}, head dim {d}, {}{changes}\n\
         backend  {} ({})\n\
         kernel   {}{early}\n\
         time     {:.3} ms, {:.4} TFLOP/s\n",
        T::DTYPE.name(),
        report.backend,
        report.device,
        report.kernel,
        seconds * 1e3,
        report.flops / seconds / 1e12,
    )
}

/// Compares with f64 attention by the tests' rule; says what is wrong, if anything.
fn check<T: Element>(
    arguments: &Arguments,
    engine: &Engine,
    inputs: &Inputs<'_>,
    [q, k, v]: [&[T]; 3],
    mask: Option<&MaskInput>,
    (o, lse): (&[T], &[f32]),
    text: &mut String,
) -> Result<Option<String>, Failure> {
    let ([batch, q_heads, q_len, head_dim], [_, kv_heads, kv_len, _]) = (inputs.q.shape, inputs.k.shape);
    let scores = [batch, q_heads, q_len, kv_len];
    let wide = |data, shape| by_heads(data, shape, arguments.layout);
    let call = Call {
        batch,
        q_heads,
        kv_heads,
        q_len,
        kv_len,
        head_dim,
        causal: arguments.causal,
        scale: arguments.scale.unwrap_or(1.0 / (head_dim as f32).sqrt()),
        q: wide(q, inputs.q.shape),
        k: wide(k, inputs.k.shape),
        v: wide(v, inputs.v.shape),
        terms: mask.map_or(vec![], |mask| mask.terms(scores)),
        kept: arguments.dropout.map_or(vec![], |rate| kept(scores, rate, arguments.seed, 0)),
        kept_share: 1.0 - f64::from(arguments.dropout.unwrap_or(0.0)),
    };
    let (exact, fair) = (call.exact(), call.same_precision(round::<T>));
    let (o, lse) = (wide(o, inputs.q.shape), lse.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
    let bits = match T::DTYPE {
        Dtype::F16 => 11,
        Dtype::Bf16 => 8,
    };
    let lse_error = difference(&lse, &exact.lse).map_or(f64::NAN, |difference| difference.max);
    if let Ok(difference) = difference(&o, &exact.o) {
        let (max, relative) = (difference.max, difference.relative);
        writeln!(
            text,
            "check    max error {max:.3e}, relative {relative:.3e}, lse {lse_error:.3e} against f64"
        )?;
    }
    let native = |got: &Answer, exact: &Answer, fair: &Answer| {
        let output = check_output(&got.o, &exact.o, &fair.o, bits);
        output.and_then(|_| check_lse(&got.lse, &exact.lse, call.largest_score())).err()
    };
    let got = Answer { o, lse };
    let precision = arguments.precision();
    if precision != Precision::Native {
        let sizes = [batch, q_heads, kv_heads, q_len, kv_len, head_dim];
        let recipe = recipe(engine, precision, Problem::contiguous(T::DTYPE, sizes), arguments.causal)?;
        let early = |answer: &Answer| answer.rows(&call, 0..recipe.native_rows);
        let wrong = native(&early(&got), &early(&exact), &early(&fair));
        return Ok(wrong.or(check_quantized(&call, &recipe, &got, &exact, text)));
    }
    Ok(native(&got, &exact, &fair))
}

/// What a call in eight or four bits does, kernel, parts and accumulators included.
fn recipe(
    engine: &Engine,
    precision: Precision,
    mut problem: Problem,
    causal: bool,
) -> Result<Recipe, Failure> {
    (problem.precision, problem.causal, problem.lse) = (precision, causal, true);
    let plan = plan(&problem, engine.device(), &BuildInfo::current())?;
    Ok(Recipe::of(&problem, &plan, engine.device()))
}

/// Compares the rows that are quantised with a simulation of the recipe: errors against f64 may be 1.15 times its own.
fn check_quantized(
    call: &Call,
    recipe: &Recipe,
    got: &Answer,
    exact: &Answer,
    text: &mut String,
) -> Option<String> {
    let total = |x: &[f64]| x.iter().map(|x| x.abs()).sum::<f64>();
    let differences: Vec<f64> = got.o.iter().zip(&exact.o).map(|(o, exact)| o - exact).collect();
    let _ = writeln!(text, "         relative L1 {:.2} %", 100.0 * total(&differences) / total(&exact.o));
    let late = |answer: &Answer| answer.rows(call, recipe.native_rows..call.q_len);
    let [got, exact, simulated] = [got, exact, &call.quantized(recipe)].map(late);
    let (o, fair) = (difference(&got.o, &exact.o), difference(&simulated.o, &exact.o));
    let (lse, fair_lse) = (difference(&got.lse, &exact.lse), difference(&simulated.lse, &exact.lse));
    for (what, got, fair) in [("relative error", o, fair), ("lse error", lse, fair_lse)] {
        match (got, fair) {
            (Ok(got), Ok(fair)) => {
                let (got, fair) = match what {
                    "lse error" => (got.max, fair.max),
                    _ => (got.relative, fair.relative),
                };
                // Without scores there is nothing to be wrong about.
                if got > 1.15 * fair + 1e-5 {
                    return Some(format!("{what} {got:.3e}, the recipe's own is {fair:.3e}"));
                }
            }
            (got, fair) => return got.and(fair).err(),
        }
    }
    None
}

fn round<T: Element>(x: f32) -> f32 {
    let (mut rounded, mut wide) = ([T::zeroed()], [0.0]);
    T::round(&[x], &mut rounded);
    T::widen(&rounded, &mut wide);
    wide[0]
}

/// Elements as f64, in the order batch, head, row, column.
fn by_heads<T: Element>(data: &[T], [b, h, n, d]: [usize; 4], layout: LayoutArgument) -> Vec<f64> {
    let mut wide = vec![0.0; data.len()];
    T::widen(data, &mut wide);
    let row = |batch: usize, head: usize, row: usize| match layout {
        LayoutArgument::Bhnd => ((batch * h + head) * n + row) * d,
        LayoutArgument::Bnhd => ((batch * n + row) * h + head) * d,
    };
    let rows = (0..b).flat_map(|batch| (0..h).flat_map(move |head| (0..n).map(move |n| (batch, head, n))));
    rows.flat_map(|(batch, head, n)| wide[row(batch, head, n)..][..d].iter().map(|&x| f64::from(x))).collect()
}

/// A bar that shows itself once a run turns out to be long.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} tiles, {eta} left");
    ProgressBar::hidden().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn advance(bar: &ProgressBar, done: usize, total: usize) {
    const PATIENCE: Duration = Duration::from_secs(1);
    if bar.is_hidden() && bar.elapsed() > PATIENCE {
        bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
    }
    bar.set_length(total as u64);
    bar.set_position(done as u64);
}
