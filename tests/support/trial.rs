//! A case on a backend: its inputs, its call, and what holds whatever numbers it computes in: inputs and surroundings
//! untouched, and the same bits on a second run.

use ffpa::{
    Arch, Dropout, Element, Engine, ForwardOptions, Lse, OutputFor, Precision, Scales, TensorMut,
    ffpa_forward,
};

use super::cases::{Case, LayoutKind};
use super::dropout::kept;
use super::inputs::Normal;
use super::layout::{Inputs, Placed, TestElement};
use super::mask::MaskData;
use super::quantized::Given;
use super::reference::{Answer, Call};

const DROPOUT_SEED: u64 = 0x0123_4567_89AB_CDEF;

/// The backends that `FFPA_TEST_BACKENDS` names, by default `cpu,emulator`. One that is named and missing is a failure.
pub fn backends() -> Vec<Engine> {
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

/// What shares a scale, of tensors in eight bits.
#[derive(Clone, Copy, Debug)]
pub enum Sharing {
    Tensor,
    Head,
    /// So many rows.
    Block(usize),
}

/// The scales of a tensor, `[batch, heads, blocks]`, and what shares them.
struct TestScales {
    sharing: Sharing,
    data: Vec<f32>,
    rows: usize,
    blocks: usize,
}

impl TestScales {
    /// Random ones, of a size that brings most of a tensor's numbers into e4m3.
    fn new(sharing: Sharing, [batch, heads, length, _]: [usize; 4], normal: &mut Normal) -> Self {
        let rows = if let Sharing::Block(rows) = sharing { rows } else { length.max(1) };
        let blocks = length.div_ceil(rows);
        let count = if let Sharing::Tensor = sharing { 1 } else { batch * heads * blocks };
        let data = normal.vec(count, 1.0).into_iter().map(|x| 0.01 * 2.0_f32.powf(x as f32)).collect();
        TestScales { sharing, data, rows, blocks }
    }

    /// That of each row, `[batch, heads, length]`.
    fn of_rows(&self, [batch, heads, length, _]: [usize; 4]) -> Vec<f64> {
        let scale = |row: usize| match self.sharing {
            Sharing::Tensor => 0,
            _ => row / length * self.blocks + row % length / self.rows,
        };
        (0..batch * heads * length).map(|row| f64::from(self.data[scale(row)])).collect()
    }

    fn view(&self) -> Scales<'_> {
        match self.sharing {
            Sharing::Tensor => Scales::per_tensor(&self.data[0]),
            Sharing::Head => Scales::per_head(&self.data),
            Sharing::Block(rows) => Scales::per_block(&self.data, rows),
        }
    }
}

/// Computes a case twice: what a reference needs, and the answer.
///
/// # Errors
/// What is wrong besides the numbers.
pub fn answer<T: TestElement + Element>(
    engine: &Engine,
    case: &Case,
    precision: Precision,
) -> Result<(Call, Answer), String> {
    answer_in::<T, T>(engine, case, precision, [None; 3]).map(|(call, _, answer)| (call, answer))
}

/// As [`answer`], of inputs that may have scales and an output of another type; also the scales of all rows.
///
/// # Errors
/// What is wrong besides the numbers.
pub fn answer_in<T: TestElement, O: TestElement + Element>(
    engine: &Engine,
    case: &Case,
    precision: Precision,
    sharing: [Option<Sharing>; 3],
) -> Result<(Call, Given, Answer), String>
where
    for<'a> (TensorMut<'a, O>, Lse<'a>): OutputFor<T>,
{
    let (batch, q_heads, kv_heads, d) = (case.batch, case.heads, case.kv_heads(), case.d);
    let q_shape = [batch, q_heads, case.q_len, d];
    let kv_shape = [batch, kv_heads, case.kv_len(), d];
    let mut normal = Normal::new(case.seed);
    let mut sample = |shape: [usize; 4], spread: f64, offset: f64| -> Vec<f64> {
        let values = normal.vec(shape.iter().product(), spread);
        values.into_iter().map(|x| x + offset).collect()
    };
    let mut q = sample(q_shape, case.spread, 0.0);
    let mut k = sample(kv_shape, case.spread, 0.0);
    for values in [&mut q, &mut k] {
        values.iter_mut().skip(5).step_by(d).for_each(|x| *x += case.outlier * x.signum());
    }
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

    // What numbers in memory are, and what they stand for.
    let mut scaled = |shape: [usize; 4], sharing: Option<Sharing>, values: Vec<f64>| {
        let scales = sharing.map(|sharing| TestScales::new(sharing, shape, &mut normal));
        let count = shape[..3].iter().product();
        let rows = scales.as_ref().map_or(vec![1.0; count], |scales| scales.of_rows(shape));
        let stored = values.iter().enumerate().map(|(i, x)| T::from_f64(x / rows[i / d]).to_f64());
        let stored: Vec<f64> = stored.collect();
        let meant: Vec<f64> = stored.iter().enumerate().map(|(i, x)| x * rows[i / d]).collect();
        (stored, meant, scales, rows)
    };
    let (q_stored, q, q_scales, q_rows) = scaled(q_shape, sharing[0], q);
    let (k_stored, k, k_scales, k_rows) = scaled(kv_shape, sharing[1], k);
    let (v_stored, v, v_scales, v_rows) = scaled(kv_shape, sharing[2], v);
    let (scales, rows) = ([q_scales, k_scales, v_scales], [q_rows, k_rows, v_rows]);
    let inputs =
        Inputs::<T>::new(case.layout, [q_shape, kv_shape, kv_shape], [&q_stored, &k_stored, &v_stored]);
    let scores = [batch, q_heads, case.q_len, case.kv_len()];
    let mask = case.mask.as_ref().map(|mask| MaskData::new(scores, mask, case.seed));
    let first = run::<T, O>(engine, case, precision, (&inputs, &scales), mask.as_ref(), q_shape)?;
    let second = run::<T, O>(engine, case, precision, (&inputs, &scales), mask.as_ref(), q_shape)?;
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
    Ok((call, rows, first.answer))
}

struct Run {
    answer: Answer,
    /// Everything the call wrote, bit by bit.
    bits: (Vec<u16>, Vec<u32>),
}

fn run<T: TestElement, O: TestElement + Element>(
    engine: &Engine,
    case: &Case,
    precision: Precision,
    (inputs, scales): (&Inputs<T>, &[Option<TestScales>; 3]),
    mask: Option<&MaskData>,
    q_shape: [usize; 4],
) -> Result<Run, String>
where
    for<'a> (TensorMut<'a, O>, Lse<'a>): OutputFor<T>,
{
    let rows: usize = q_shape[..3].iter().product();
    let kind = match case.layout {
        LayoutKind::BroadcastKv | LayoutKind::BroadcastBatch => LayoutKind::Bhnd,
        kind => kind,
    };
    let mut output = Placed::<O>::new(kind, q_shape);
    // Guards around the log-sum-exp too.
    let guard = f32::from_bits(0x7FC0_1234);
    let mut lse = vec![guard; 16 + rows + 16];
    let before: Vec<_> = inputs.tensors().map(|tensor| tensor.bits()).into();
    let output_before = output.bits();

    let options = ForwardOptions::new().with_causal(case.causal).with_precision(precision);
    let mut options = case.scale.map_or(options.clone(), |scale| options.with_scale(scale));
    options.mask = mask.map(|mask| mask.view()).transpose().map_err(|e| e.to_string())?;
    options.dropout = case.dropout.map(|rate| Dropout { rate, seed: DROPOUT_SEED, offset: case.seed as u32 });
    let view = |i: usize| {
        let scales = scales[i].as_ref().map(TestScales::view);
        T::view(inputs.tensors()[i], scales).map_err(|e| e.to_string())
    };
    let [q, k, v] = [0, 1, 2].map(view);
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
