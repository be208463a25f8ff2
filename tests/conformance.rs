//! Every case of `tests/cases` on every backend that applies, by one body.
//!
//! `FFPA_TEST_BACKENDS` names the backends, by default `cpu,emulator`. What a case demands: the output by FlashAttention's
//! rule, the log-sum-exp, inputs and surroundings untouched, and the same bits on a second run.

mod support;

use std::collections::BTreeSet;

use ffpa::{
    Arch, BackendKind, BuildInfo, DeviceInfo, Dtype, Element, Engine, Precision, Problem, bf16, f16, plan,
};
use support::cases::{Case, LayoutKind, load};
use support::compare::{check_lse, check_output};
use support::layout::TestElement;
use support::suite::{run_file, suite};
use support::trial::answer;

/// One test per file of cases, and one that no file is forgotten.
macro_rules! whole_suite {
    ($($file:ident),* $(,)?) => {
        suite! { $($file),* }

        #[test]
        fn every_file_is_run() {
            let mut files: Vec<String> = std::fs::read_dir(support::cases::directory())
                .expect("the directory of cases")
                .map(|entry| entry.expect("an entry").path().file_stem().expect("a name").to_string_lossy().into())
                .collect();
            files.sort();
            let mut run = vec![$(stringify!($file)),*];
            run.sort();
            assert_eq!(files, run);
        }
    };
}

whole_suite! {
    fully_masked_rows,
    more_queries_than_keys_causal,
    no_keys,
    no_queries,
    sequence_lengths,
    gqa_groups,
    layouts,
    head_dims,
    scales,
    large_logits,
    cross_attention,
    flash_attention_grid,
    value_mean,
    nan_beyond_the_valid_length,
    lse_against_f64,
    bit_equal_repeats,
    many_heads,
    large_head_dims,
    decoding,
    masks,
    dropout,
    divided_keys,
    fp8,
    early_rows,
    rotation,
}

/// Of the tensors of a bulk copy only its map knows what repeats and what is not there, so every way of starting bulk copies
/// must meet both: by warps that do nothing else, by one that computes, and through a ring.
#[test]
fn bulk_copies_meet_repeated_heads_and_batch_entries_and_no_keys() {
    let kernels = |file: &str, meets: &dyn Fn(&Case) -> bool| -> BTreeSet<String> {
        let planned = |case: &Case| {
            let sizes = [case.batch, case.heads, case.kv_heads(), case.q_len, case.kv_len(), case.d];
            let mut problem = Problem::contiguous(Dtype::F16, sizes);
            problem.causal = case.causal;
            let plan = plan(&problem, &DeviceInfo::of_arch(Arch::Sm90a), &BuildInfo::current());
            plan.expect("there is a kernel").kernel.name.to_string()
        };
        load(file).iter().filter(|case| meets(case)).map(planned).collect()
    };
    for reached in [
        kernels("layouts", &|case| case.layout == LayoutKind::BroadcastKv && case.kv_heads() > 1),
        kernels("layouts", &|case| case.layout == LayoutKind::BroadcastBatch && case.batch > 1),
        kernels("no_keys", &|_| true),
    ] {
        for kernel in ["persistd_64_tma", "persistd_256_tma", "splitd_320_tma"] {
            assert!(
                reached.contains(&format!("fwd_f16_sm90a_{kernel}")),
                "{kernel} is not among {reached:?}"
            );
        }
    }
}

fn run(file: &str) {
    let left_out = |engine: &Engine, case: &Case| engine.backend() == BackendKind::Emulator && !case.emulate;
    let tally = run_file(file, left_out, |engine, _, case| {
        let both = [check::<f16>(engine, case), check::<bf16>(engine, case)];
        both.map(|result| result.map(|()| 0.0)).into()
    });
    let (runs, left_out) = (tally.runs, tally.left_out);
    println!("{file}: {runs} runs; {left_out} cases left out, with more tiles than the emulator should run");
}

fn check<T: TestElement + Element>(engine: &Engine, case: &Case) -> Result<(), String> {
    let (call, answer) = answer::<T>(engine, case, Precision::Native)?;
    let exact = call.exact();
    let fair = call.same_precision(|x| T::from_f64(f64::from(x)).to_f64() as f32);
    check_output(&answer.o, &exact.o, &fair.o, T::BITS).map_err(|e| format!("{}: {e}", T::NAME))?;
    check_lse(&answer.lse, &exact.lse, call.largest_score()).map_err(|e| format!("{}: {e}", T::NAME))
}
