//! Every case of `tests/cases` on every backend that applies, by one body.
//!
//! `FFPA_TEST_BACKENDS` names the backends, by default `cpu,emulator`. One that is named and missing is a failure. What a
//! case demands: the output by FlashAttention's rule, the log-sum-exp, inputs and surroundings untouched, and the same
//! bits on a second run.

mod support;

use std::collections::BTreeSet;

use ffpa::{
    Arch, BackendKind, BuildInfo, DeviceInfo, Dropout, Dtype, Engine, ForwardOptions, Lse, Problem,
    TensorMut, TensorRef, bf16, f16, ffpa_forward, plan,
};
use support::cases::{Case, LayoutKind, load};
use support::compare::{check_lse, check_output};
use support::dropout::kept;
use support::inputs::Normal;
use support::layout::{Inputs, Placed, TestElement};
use support::mask::MaskData;
use support::reference::{Answer, Call};

const DROPOUT_SEED: u64 = 0x0123_4567_89AB_CDEF;

/// One test per file of cases, and one that no file is forgotten.
macro_rules! suite {
    ($($file:ident),* $(,)?) => {
        $(#[test] fn $file() { run(stringify!($file)); })*

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

suite! {
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

fn run(file: &str) {
    let (mut runs, mut left_out, mut failures) = (0, 0, Vec::new());
    for engine in backends() {
        for case in load(file) {
            if engine.backend() == BackendKind::Emulator && !case.emulate {
                left_out += 1;
                continue;
            }
            for result in [check::<f16>(&engine, &case), check::<bf16>(&engine, &case)] {
                runs += 1;
                if let Err(error) = result {
                    failures.push(format!(
                        "{} ({}), {case:?}: {error}",
                        engine.backend(),
                        engine.device().name
                    ));
                }
            }
        }
    }
    println!("{file}: {runs} runs; {left_out} cases left out, with more tiles than the emulator should run");
    assert!(failures.is_empty(), "{} of {runs} runs failed:\n{}", failures.len(), failures.join("\n"));
    assert!(runs > 0);
}

fn check<T: TestElement>(engine: &Engine, case: &Case) -> Result<(), String> {
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
    // What repeats, and in what.
    let head = case.kv_len() * d;
    let (repeated, in_each) = match case.layout {
        LayoutKind::BroadcastKv => (head, kv_heads * head),
        LayoutKind::BroadcastBatch => (kv_heads * head, batch * kv_heads * head),
        _ => (1, 1),
    };
    for values in [&mut k, &mut v] {
        for all in values.chunks_mut(in_each.max(1)) {
            let (first, others) = all.split_at_mut(repeated);
            others.chunks_mut(repeated).for_each(|other| other.copy_from_slice(first));
        }
    }

    let inputs = Inputs::<T>::new(case.layout, [q_shape, kv_shape, kv_shape], [&q, &k, &v]);
    let scores = [batch, q_heads, case.q_len, case.kv_len()];
    let mask = case.mask.as_ref().map(|mask| MaskData::new(scores, mask, case.seed));
    let first = call(engine, case, &inputs, mask.as_ref(), q_shape)?;
    let second = call(engine, case, &inputs, mask.as_ref(), q_shape)?;
    if first.bits != second.bits {
        return Err("a second run gave other bits".into());
    }

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
        terms: mask.map_or(vec![], |mask| mask.terms),
        kept: case.dropout.map_or(vec![], |rate| kept(scores, rate, DROPOUT_SEED, case.seed as u32)),
        kept_share: 1.0 - f64::from(case.dropout.unwrap_or(0.0)),
    };
    let exact = call.exact();
    let fair = call.same_precision(|x| T::from_f64(f64::from(x)).to_f64() as f32);
    check_output(&first.answer.o, &exact.o, &fair.o, T::BITS).map_err(|e| format!("{}: {e}", T::NAME))?;
    check_lse(&first.answer.lse, &exact.lse, call.largest_score()).map_err(|e| format!("{}: {e}", T::NAME))
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
    mask: Option<&MaskData>,
    q_shape: [usize; 4],
) -> Result<Run, String> {
    let rows: usize = q_shape[..3].iter().product();
    let kind = match case.layout {
        LayoutKind::BroadcastKv | LayoutKind::BroadcastBatch => LayoutKind::Bhnd,
        kind => kind,
    };
    let mut output = Placed::<T>::new(kind, q_shape);
    // Guards around the log-sum-exp too.
    let guard = f32::from_bits(0x7FC0_1234);
    let mut lse = vec![guard; 16 + rows + 16];
    let before: Vec<_> = inputs.tensors().map(|tensor| tensor.bits()).into();
    let output_before = output.bits();

    let options = ForwardOptions::new().with_causal(case.causal);
    let mut options = case.scale.map_or(options.clone(), |scale| options.with_scale(scale));
    options.mask = mask.map(|mask| mask.view()).transpose().map_err(|e| e.to_string())?;
    options.dropout = case.dropout.map(|rate| Dropout { rate, seed: DROPOUT_SEED, offset: case.seed as u32 });
    let views =
        inputs.tensors().map(|tensor| TensorRef::strided(tensor.slice(), tensor.shape, tensor.strides));
    let [q, k, v] = views.map(|view| view.map_err(|e| e.to_string()));
    let (shape, strides) = (output.shape, output.strides);
    let out = TensorMut::strided(output.slice_mut(), shape, strides).map_err(|e| e.to_string())?;
    let mut results = (out, Lse::host(&mut lse[16..16 + rows]));
    ffpa_forward::<T>(engine, q?, k?, v?, &mut results, &options).map_err(|e| e.to_string())?;

    let changed = inputs.tensors().iter().zip(&before).any(|(tensor, before)| tensor.bits() != *before);
    if changed {
        return Err("an input was written to".into());
    }
    let outside = output.outside_changes(&output_before);
    if outside > 0 {
        return Err(format!("{outside} elements around the output were written to"));
    }
    let guards = lse[..16].iter().chain(&lse[16 + rows..]).filter(|x| x.to_bits() != guard.to_bits()).count();
    if guards > 0 {
        return Err(format!("{guards} floats around the log-sum-exp were written to"));
    }
    let bits = (output.bits(), lse.iter().map(|x| x.to_bits()).collect());
    let lse = lse[16..16 + rows].iter().map(|&x| f64::from(x)).collect();
    Ok(Run { answer: Answer { o: output.values(), lse }, bits })
}
