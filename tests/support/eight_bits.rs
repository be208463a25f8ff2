//! What the suites in eight bits share: which cases they leave out, and how a result is held to a simulation of the recipe.

use ffpa::{BackendKind, BuildInfo, Dtype, Engine, Family, Problem, plan};

use super::cases::Case;
use super::compare::{check_lse, check_output, difference};
use super::layout::TestElement;
use super::quantized::{Numbers, Recipe};
use super::reference::{Answer, Call};
use super::suite::Tally;

/// The largest head dim of the build's kernels of a family.
fn window(family: Family) -> usize {
    let build = BuildInfo::current();
    let of_family = build.kernels.iter().filter(|kernel| kernel.arithmetic.family() == family);
    of_family.map(|kernel| kernel.head_dim).max().expect("the build has some")
}

/// Whether kernels of a family do not take a case, or the emulator is not to run it.
pub fn leaves_out(family: Family, engine: &Engine, case: &Case) -> bool {
    let modified = case.mask.is_some() || case.dropout.is_some();
    engine.backend() == BackendKind::Emulator && !case.emulate || case.d > window(family) || modified
}

/// Says what a file of cases came to.
pub fn report(file: &str, Tally { runs, left_out, worst }: Tally) {
    println!("{file}: {runs} runs, worst row {worst:.4}; {left_out} cases left out: head dims, masks, tiles");
}

/// What a case's plan does, with an output of `dtype`; `change` makes a problem in eight bits of a native one.
///
/// # Errors
/// If there is no plan.
pub fn recipe(
    engine: &Engine,
    case: &Case,
    dtype: Dtype,
    change: impl FnOnce(&mut Problem),
) -> Result<Recipe, String> {
    let sizes = [case.batch, case.heads, case.kv_heads(), case.q_len, case.kv_len(), case.d];
    let mut problem = Problem::contiguous(dtype, sizes);
    (problem.causal, problem.lse) = (case.causal, true);
    change(&mut problem);
    let plan = plan(&problem, engine.device(), &BuildInfo::current()).map_err(|e| e.to_string())?;
    Ok(Recipe::of(&problem, &plan, engine.device()))
}

/// Holds the rows of a result in `T` that are in eight bits to a simulation of the recipe, and the others to the rule for 16
/// bits: the error of the worst row in eight bits, relative to the simulation.
///
/// # Errors
/// If the result is further from the simulation, or from exact attention, than it may be.
pub fn compare<T: TestElement>(
    got: &Answer,
    simulated: &Answer,
    call: &Call,
    backend: BackendKind,
    recipe: &Recipe,
) -> Result<f64, String> {
    let exact = call.exact();
    if recipe.native_rows > 0 {
        let fair = call.same_precision(|x| T::from_f64(f64::from(x)).to_f64() as f32);
        let [got, exact, fair] = [got, &exact, &fair].map(|answer| answer.rows(call, 0..recipe.native_rows));
        let early = |e| format!("the first {} rows: {e}", recipe.native_rows);
        check_output(&got.o, &exact.o, &fair.o, T::BITS).map_err(early)?;
        check_lse(&got.lse, &exact.lse, call.largest_score()).map_err(early)?;
    }
    let rows = recipe.native_rows..call.q_len;
    let [got, simulated, exact] = [got, simulated, &exact].map(|answer| answer.rows(call, rows.clone()));
    let tight = if recipe.numbers != Numbers::E4m3 || backend != BackendKind::Cuda { 2e-3 } else { 1e-2 };
    let close = difference(&got.o, &simulated.o)?;
    if close.relative > tight {
        return Err(format!("{:.2e} from the simulation, allowed {tight:.0e}", close.relative));
    }
    let lse = difference(&got.lse, &simulated.lse).map_err(|e| format!("lse: {e}"))?;
    if lse.relative > 2e-3 {
        return Err(format!("lse: {:.2e} from the simulation, relative to it", lse.relative));
    }
    // Over many keys they are large, and so would be what is allowed: but their errors do not grow with them, only with scores.
    let allowed = tight + 1e-5 * call.largest_score();
    if lse.mean > allowed {
        return Err(format!("lse: {:.2e} from the simulation, allowed {allowed:.0e}", lse.mean));
    }
    let (own, fair) = (difference(&got.o, &exact.o)?, difference(&simulated.o, &exact.o)?);
    if own.relative > 1.15 * fair.relative {
        return Err(format!("error {:.3e}, the recipe's own is {:.3e}", own.relative, fair.relative));
    }
    let rows = got.o.chunks(call.head_dim).zip(simulated.o.chunks(call.head_dim));
    let worst = rows.map(|(got, simulated)| difference(got, simulated).map(|d| d.relative));
    worst.collect::<Result<Vec<_>, _>>().map(|rows| rows.into_iter().fold(0.0, f64::max))
}
