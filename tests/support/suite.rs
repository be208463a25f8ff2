//! Files of cases as tests: one body runs every case of a file on every backend that applies.

use ffpa::Engine;

use super::cases::{Case, load};
use super::trial::backends;

/// A test for each file of cases, by the `run` of the place where it stands.
#[allow(unused_macros, reason = "only suites have files of cases")]
macro_rules! suite {
    ($($file:ident),* $(,)?) => {
        $(#[test] fn $file() { run(stringify!($file)); })*
    };
}

#[allow(unused_imports, reason = "as above")]
pub(crate) use suite;

/// What running a file of cases came to.
pub struct Tally {
    pub runs: usize,
    pub left_out: usize,
    /// The largest of what the runs returned.
    pub worst: f64,
}

/// Runs `check` on every case of a file, given its number, and every backend, but for those that are `left_out`. Panics if a run
/// failed, or if there was none.
pub fn run_file(
    file: &str,
    left_out: impl Fn(&Engine, &Case) -> bool,
    check: impl Fn(&Engine, usize, &Case) -> Vec<Result<f64, String>>,
) -> Tally {
    let mut tally = Tally { runs: 0, left_out: 0, worst: 0.0 };
    let mut failures = Vec::new();
    for engine in backends() {
        for (number, case) in load(file).into_iter().enumerate() {
            if left_out(&engine, &case) {
                tally.left_out += 1;
                continue;
            }
            for result in check(&engine, number, &case) {
                tally.runs += 1;
                match result {
                    Ok(error) => tally.worst = tally.worst.max(error),
                    Err(error) => {
                        let (backend, device) = (engine.backend(), &engine.device().name);
                        failures.push(format!("{backend} ({device}), {case:?}: {error}"));
                    }
                }
            }
        }
    }
    let runs = tally.runs;
    assert!(failures.is_empty(), "{} of {runs} runs failed:\n{}", failures.len(), failures.join("\n"));
    assert!(runs > 0);
    tally
}
