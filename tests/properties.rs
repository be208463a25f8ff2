//! Random shapes, strides, masks and scales: the backends agree with the f64 reference by the same rule as the cases.

mod support;

use std::sync::LazyLock;

use ffpa::{
    Arch, Dropout, Element, Engine, ForwardOptions, Lse, TensorMut, TensorRef, bf16, f16, ffpa_forward,
};
use proptest::prelude::*;
use support::cases::{MaskCase, MaskElementKind, MaskPattern};
use support::compare::{check_lse, check_output};
use support::dropout::kept;
use support::inputs::Normal;
use support::layout::TestElement;
use support::mask::MaskData;
use support::reference::Call;

#[derive(Clone, Debug)]
struct Shape {
    batch: usize,
    kv_heads: usize,
    group: usize,
    q_len: usize,
    kv_len: usize,
    d: usize,
    causal: bool,
    scale: Option<f32>,
    mask: Option<MaskCase>,
    dropout: Option<f32>,
    /// Elements beyond each row, head and batch entry, in steps of 8.
    gaps: [usize; 3],
    /// Whether rows come before heads in memory.
    rows_first: bool,
    seed: u64,
}

fn shapes(longest: usize) -> impl Strategy<Value = Shape> {
    // Mostly the small ones that engines have, now and then one of those up to 1024.
    let head_dims = prop_oneof![3 => 1..=32_usize, 1 => 33..=128_usize];
    let sizes = (1..=2_usize, 1..=2_usize, 1..=4_usize, 0..=longest, 0..=longest, head_dims);
    let scale = prop_oneof![3 => Just(None), 1 => (-2.0_f32..2.0).prop_map(Some), 1 => Just(Some(0.0))];
    let dropout = prop_oneof![3 => Just(None), 1 => (0.0_f32..0.9).prop_map(Some)];
    let rest =
        (any::<bool>(), scale, masks(), dropout, [0..3_usize, 0..3, 0..3], any::<bool>(), any::<u64>());
    (sizes, rest).prop_map(|((batch, kv_heads, group, q_len, kv_len, d8), rest)| {
        let (causal, scale, mask, dropout, gaps, rows_first, seed) = rest;
        let d = 8 * d8;
        Shape {
            batch,
            kv_heads,
            group,
            q_len,
            kv_len,
            d,
            causal,
            scale,
            mask,
            dropout,
            gaps,
            rows_first,
            seed,
        }
    })
}

/// No mask, or one of any element that has all of some dimensions and repeats along the others.
fn masks() -> impl Strategy<Value = Option<MaskCase>> {
    use MaskElementKind::{Bf16, Bool, F16, F32};
    let element = prop_oneof![Just(Bool), Just(F16), Just(Bf16), Just(F32)];
    let mask = (element, "[1n]{2,4}").prop_map(|(element, dimensions)| {
        Some(MaskCase { element, dimensions, pattern: MaskPattern::Random })
    });
    prop_oneof![2 => Just(None), 1 => mask]
}

impl Shape {
    fn strides(&self, heads: usize, rows: usize) -> [usize; 3] {
        let [row_gap, head_gap, batch_gap] = self.gaps.map(|gap| 8 * gap);
        let inner = self.d + row_gap;
        let (head, row) = match self.rows_first {
            true => (inner, heads * inner + head_gap),
            false => (rows * inner + head_gap, inner),
        };
        [head.max(row) * heads.max(rows).max(1) + batch_gap, head, row]
    }
}

/// Elements of `[batch, heads, rows, d]`, and the same placed in memory among NaN.
fn tensor<T: TestElement + Element>(
    shape: &Shape,
    normal: &mut Normal,
    heads: usize,
    rows: usize,
) -> (Vec<f64>, Vec<T>) {
    let values: Vec<f64> = normal.vec(shape.batch * heads * rows * shape.d, 1.0);
    let values: Vec<f64> = values.into_iter().map(|x| T::from_f64(x).to_f64()).collect();
    let strides = shape.strides(heads, rows);
    let mut memory = vec![T::from_f64(f64::NAN); shape.batch * strides[0] + 8];
    for (i, value) in values.iter().enumerate() {
        let (row, column) = (i / shape.d, i % shape.d);
        let (head, n) = (row / rows, row % rows);
        memory[head / heads * strides[0] + head % heads * strides[1] + n * strides[2] + column] =
            T::from_f64(*value);
    }
    (values, memory)
}

fn check<T: TestElement + Element>(engine: &Engine, shape: &Shape) -> Result<(), String> {
    let (heads, mut normal) = (shape.kv_heads * shape.group, Normal::new(shape.seed));
    let (q, q_memory) = tensor::<T>(shape, &mut normal, heads, shape.q_len);
    let (k, k_memory) = tensor::<T>(shape, &mut normal, shape.kv_heads, shape.kv_len);
    let (v, v_memory) = tensor::<T>(shape, &mut normal, shape.kv_heads, shape.kv_len);
    let q_shape = [shape.batch, heads, shape.q_len, shape.d];
    let kv_shape = [shape.batch, shape.kv_heads, shape.kv_len, shape.d];
    let view = |memory, tensor_shape: [usize; 4]| {
        TensorRef::strided(memory, tensor_shape, shape.strides(tensor_shape[1], tensor_shape[2]))
            .map_err(|e| e.to_string())
    };
    let mut o = vec![T::from_f64(f64::NAN); q.len()];
    let mut lse = vec![f32::NAN; shape.batch * heads * shape.q_len];
    let mut options = ForwardOptions::new().with_causal(shape.causal);
    options.scale = shape.scale;
    let scores = [shape.batch, heads, shape.q_len, shape.kv_len];
    let mask = shape.mask.as_ref().map(|mask| MaskData::new(scores, mask, shape.seed));
    options.mask = mask.as_ref().map(|mask| mask.view()).transpose().map_err(|e| e.to_string())?;
    let offset = shape.seed as u32;
    options.dropout = shape.dropout.map(|rate| Dropout { rate, seed: shape.seed, offset });
    let mut out = (TensorMut::bhnd(&mut o, q_shape).map_err(|e| e.to_string())?, Lse::host(&mut lse));
    let (q_view, k_view, v_view) =
        (view(&q_memory, q_shape)?, view(&k_memory, kv_shape)?, view(&v_memory, kv_shape)?);
    ffpa_forward::<T>(engine, q_view, k_view, v_view, &mut out, &options).map_err(|e| e.to_string())?;

    let scale = shape.scale.unwrap_or(1.0 / (shape.d as f32).sqrt());
    let Shape { batch, kv_heads, q_len, kv_len, d: head_dim, causal, .. } = *shape;
    let call = Call {
        batch,
        q_heads: heads,
        kv_heads,
        q_len,
        kv_len,
        head_dim,
        causal,
        scale,
        q,
        k,
        v,
        terms: mask.as_ref().map_or(vec![], |mask| mask.terms.clone()),
        kept: shape.dropout.map_or(vec![], |rate| kept(scores, rate, shape.seed, offset)),
        kept_share: 1.0 - f64::from(shape.dropout.unwrap_or(0.0)),
    };
    let (exact, fair) = (call.exact(), call.same_precision(|x| T::from_f64(f64::from(x)).to_f64() as f32));
    let o: Vec<f64> = o.iter().map(|x| x.to_f64()).collect();
    let lse: Vec<f64> = lse.iter().map(|&x| f64::from(x)).collect();
    check_output(&o, &exact.o, &fair.o, T::BITS)?;
    check_lse(&lse, &exact.lse, call.largest_score())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_cpu_agrees(shape in shapes(150)) {
        check::<f16>(&Engine::cpu(), &shape).map_err(TestCaseError::fail)?;
        check::<bf16>(&Engine::cpu(), &shape).map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_emulator_agrees(shape in shapes(150), seed in any::<u64>()) {
        let engine = Engine::emulator_with_seed(Arch::Sm89, seed);
        check::<f16>(&engine, &shape).map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "needs a CUDA device: the device bundle runs it"]
    fn a_device_agrees(shape in shapes(700)) {
        static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::cuda(0).unwrap_or_else(|error| panic!("{error}")));
        check::<f16>(&ENGINE, &shape).map_err(TestCaseError::fail)?;
        check::<bf16>(&ENGINE, &shape).map_err(TestCaseError::fail)?;
    }
}
