//! Attention in eight or four bits as the recipe has it, in f64 but for the roundings that are part of it. Computes by no code of
//! the library: e4m3 and e2m1 are the `microfloat` crate's.
//!
//! Keys are visited in tiles, since probabilities are rounded relative to the largest score so far. Sums of products of
//! e4m3 numbers keep as many bits as the device's accumulators.

use ffpa::{
    Arch, DeviceInfo, Fp8, InputType, NvFp4, Plan, Precision, Problem, ScoreNumbers, ValueScales, f16,
};
use microfloat::{f4e2m1fn, f8e4m3fn};
use rayon::prelude::*;

use super::reference::{Answer, Call};

/// What Q and K become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    E4m3,
    Int8,
    /// As are V and P then.
    NvFp4,
}

/// What is done.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Rows of each head, the first ones, that are not in eight bits at all: of these an answer says what it would be if they
    /// were.
    pub native_rows: usize,
    pub numbers: Numbers,
    pub smooth_k: bool,
    pub smooth_q: bool,
    pub rotation: bool,
    pub by_channel: bool,
    pub smooth_v: bool,
    /// Keys of a tile, and of a part of the keys that a CTA has; results of parts are brought together exactly.
    pub tile: usize,
    pub part: usize,
    /// Bits of the fraction that accumulators keep, 13 or 23.
    pub fraction: i32,
    /// Whether those of products with V are f16.
    pub f16_sums: bool,
}

impl Recipe {
    /// What is done about a problem in eight bits by its plan's kernel, parts and accumulators.
    pub fn of(problem: &Problem, plan: &Plan, device: &DeviceInfo) -> Self {
        let given = problem.input == InputType::F8E4M3;
        let smooth_q = matches!(problem.precision, Precision::NvFp4(NvFp4 { smooth_q: true, .. }));
        let fp8 = match problem.precision {
            Precision::Fp8(fp8) => fp8,
            Precision::NvFp4(NvFp4 { smooth_k, smooth_v, native_rows, .. }) => {
                let values = ValueScales::Channel { smooth: smooth_v };
                let like = Fp8::default().with_smooth_k(smooth_k).with_value_scales(values);
                native_rows.map_or(like, |rows| like.with_native_rows(rows))
            }
            _ if given => Fp8::default().with_smooth_k(false).with_value_scales(ValueScales::Block),
            _ => panic!("the problem is not one in eight bits"),
        };
        let few_keys =
            (0..problem.q_len).filter(|row| row + 1 + problem.kv_len <= 256 + problem.q_len).count();
        let native_rows = fp8.native_rows.unwrap_or(if problem.causal && !given { few_keys } else { 0 });
        let numbers = match (problem.precision, fp8.scores) {
            (Precision::NvFp4(_), _) => Numbers::NvFp4,
            (_, ScoreNumbers::Int8) => Numbers::Int8,
            (_, ScoreNumbers::E4m3) => Numbers::E4m3,
        };
        // Ada's tensor cores keep 13 bits of a sum of e4m3 products.
        let ada = numbers != Numbers::NvFp4
            && device.compute_capability == DeviceInfo::of_arch(Arch::Sm89).compute_capability;
        Recipe {
            native_rows: native_rows.min(problem.q_len),
            numbers,
            smooth_k: fp8.smooth_k,
            smooth_q: smooth_q && problem.q_len - native_rows.min(problem.q_len) >= 64,
            rotation: fp8.rotation,
            by_channel: fp8.value_scales != ValueScales::Block,
            smooth_v: fp8.value_scales == ValueScales::Channel { smooth: true },
            tile: plan.kernel.keys,
            part: plan.params.parts.keys as usize,
            fraction: if ada { 13 } else { 23 },
            f16_sums: fp8.f16_sums,
        }
    }

    /// What accumulators keep of a sum of e4m3 products.
    fn keep(&self, x: f64) -> f64 {
        truncate(x, self.fraction)
    }

    /// What they keep of one of products with V.
    fn keep_of_values(&self, x: f64) -> f64 {
        if self.f16_sums { f16::from_f64(x).to_f64() } else { self.keep(x) }
    }

    /// The largest number that V becomes. In f16 no sum of 64 keys may exceed 65504.
    fn v_largest(&self) -> f32 {
        match self.numbers {
            Numbers::NvFp4 => 2688.0,
            _ if self.f16_sums => 2.25,
            _ => 448.0,
        }
    }

    /// What a probability of 1 becomes.
    fn one(&self) -> f64 {
        if self.numbers == Numbers::NvFp4 { 2688.0 } else { 448.0 }
    }

    /// Some rows of Q or K, rounded; see [`quantize`].
    fn scores(&self, x: &[f32], d: usize, count: usize, share: impl Fn(usize) -> usize) -> Codes {
        match self.numbers {
            Numbers::E4m3 => quantize(x, d, count, share, 448.0, each(e4m3)),
            Numbers::Int8 => quantize(x, d, count, share, 127.0, each(int8)),
            Numbers::NvFp4 => {
                quantize(x, d, count, share, 2688.0, |row| row.chunks(16).flat_map(nvfp4).collect())
            }
        }
    }

    /// A row along keys, of V or P, rounded.
    fn along_keys(&self, x: &[f32]) -> Vec<f64> {
        if self.numbers != Numbers::NvFp4 {
            return each(e4m3)(x);
        }
        // Of 32 keys, those whose numbers modulo 8 are below 4 share a scale, and the others.
        let shared = |key: usize| (key / 32, key % 8 / 4);
        let of = |key: usize| (0..x.len()).filter(move |&other| shared(other) == shared(key));
        let mut rounded = vec![0.0; x.len()];
        for key in (0..x.len()).filter(|&key| of(key).next() == Some(key)) {
            let block: Vec<f32> = of(key).map(|other| x[other]).collect();
            of(key).zip(nvfp4(&block)).for_each(|(other, number)| rounded[other] = number);
        }
        rounded
    }
}

const BLOCK: usize = 64;

/// The e4m3 number nearest to a float.
fn e4m3(x: f32) -> f64 {
    f64::from(f8e4m3fn::from_f32(x.clamp(-448.0, 448.0)).to_f32())
}

/// Numbers that share a scale of NVFP4.
fn nvfp4(block: &[f32]) -> Vec<f64> {
    let largest = block.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
    let scale = e4m3(largest / 6.0);
    let number = |x: f32| f64::from(f4e2m1fn::from_f32((x / scale as f32).clamp(-6.0, 6.0)).to_f32()) * scale;
    block.iter().map(|&x| if scale == 0.0 { 0.0 } else { number(x) }).collect()
}

/// A rounding of numbers by themselves.
fn each(round: fn(f32) -> f64) -> impl Fn(&[f32]) -> Vec<f64> {
    move |row| row.iter().map(|&x| round(x)).collect()
}

fn int8(x: f32) -> f64 {
    f64::from(x.round_ties_even().clamp(-128.0, 127.0))
}

/// Toward zero to so many bits of fraction.
fn truncate(x: f64, fraction: i32) -> f64 {
    if fraction >= 23 || x == 0.0 || !x.is_finite() {
        return x;
    }
    let unit = 2.0_f64.powi(x.abs().log2().floor() as i32 - fraction);
    (x / unit).trunc() * unit
}

/// A sum of products, of which `keep` says what is kept after each 32.
fn sum(a: impl Iterator<Item = f64>, keep: impl Fn(f64) -> f64) -> f64 {
    let mut total = 0.0;
    let mut step = 0.0;
    for (i, product) in a.enumerate() {
        step += product;
        if i % 32 == 31 {
            total = keep(total + step);
            step = 0.0;
        }
    }
    keep(total + step)
}

/// Rows of codes, and what they are multiplied with.
struct Codes {
    codes: Vec<f64>,
    scales: Vec<f64>,
}

/// Scales of each row of Q, K and V that came in e4m3 numbers, `[batch, heads, length]`.
pub type Given = [Vec<f64>; 3];

/// Numbers that came in e4m3, by rows of `d` columns and their scales.
fn given(x: &[f64], d: usize, rows: &[f64], scales: Vec<f64>) -> Codes {
    // Exact but for the rounding of a product and a quotient.
    let codes = x.chunks(d).zip(rows).flat_map(|(x, scale)| x.iter().map(move |x| e4m3((x / scale) as f32)));
    Codes { codes: codes.collect(), scales }
}

/// Of some rows of `d` columns, each rounded by `round`; `share` says which scale a row has, of `count`.
fn quantize(
    x: &[f32],
    d: usize,
    count: usize,
    share: impl Fn(usize) -> usize,
    largest: f32,
    round: impl Fn(&[f32]) -> Vec<f64>,
) -> Codes {
    let mut magnitudes = vec![0.0_f32; count];
    for (row, x) in x.chunks(d).enumerate() {
        let magnitude = &mut magnitudes[share(row)];
        *magnitude = x.iter().fold(*magnitude, |m, x| m.max(x.abs()));
    }
    // What is as small as this is taken for zero.
    magnitudes.iter_mut().filter(|m| **m <= 2.0_f32.powi(-100)).for_each(|m| *m = 0.0);
    let factor = |row: usize| match magnitudes[share(row)] {
        magnitude if magnitude > 0.0 => largest / magnitude,
        _ => 0.0,
    };
    let scaled = |(row, x): (usize, &[f32])| x.iter().map(|x| x * factor(row)).collect::<Vec<_>>();
    let codes = x.chunks(d).enumerate().flat_map(|row| round(&scaled(row))).collect();
    Codes { codes, scales: magnitudes.iter().map(|m| f64::from(m * (1.0 / largest))).collect() }
}

fn narrow(x: &[f64]) -> Vec<f32> {
    x.iter().map(|&x| x as f32).collect()
}

fn means(x: &[f32], d: usize) -> Vec<f32> {
    let rows = (x.len() / d).max(1);
    let column = |c: usize| x.iter().skip(c).step_by(d).map(|&x| f64::from(x)).sum::<f64>();
    (0..d).map(|c| (column(c) / rows as f64) as f32).collect()
}

fn less(x: &[f32], mean: &[f32]) -> Vec<f32> {
    x.chunks(mean.len()).flat_map(|row| row.iter().zip(mean).map(|(x, m)| x - m)).collect()
}

/// Rows of `d` columns, of which as many neighbours as the largest power of two that divides `d` are multiplied with Sylvester's
/// Hadamard matrix over the root of their number. Which sums are rounded is part of a recipe, like the order of a mean: numbers
/// of eight bits tell the last bit of what they came from where that lies halfway.
fn rotated(x: &[f32], d: usize) -> Vec<f32> {
    let size = 1_usize << d.trailing_zeros();
    let root = (1.0 / (size as f64).sqrt()) as f32;
    x.par_chunks(size).flat_map_iter(|x| hadamard(x).into_iter().map(move |x| x * root)).collect()
}

/// The product with Sylvester's matrix by its definition, `H(2n) = [[H(n), H(n)], [H(n), -H(n)]]`.
fn hadamard(x: &[f32]) -> Vec<f32> {
    if let [x] = x {
        return vec![*x];
    }
    let (first, second) = x.split_at(x.len() / 2);
    let (first, second) = (hadamard(first), hadamard(second));
    let pairs = || first.iter().zip(&second);
    pairs().map(|(a, b)| a + b).chain(pairs().map(|(a, b)| a - b)).collect()
}

#[test]
fn rotation_is_a_product_with_the_signs_of_common_bits() {
    let x: Vec<f32> = (0..2 * 24).map(|i| (i as f32 * 1.7).sin() + 0.3).collect();
    for (index, y) in rotated(&x, 24).into_iter().enumerate() {
        let (block, i) = (&x[index / 8 * 8..][..8], index % 8);
        let sign = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
        let exact: f64 =
            block.iter().enumerate().map(|(j, x)| sign(j) * f64::from(*x)).sum::<f64>() / 8_f64.sqrt();
        assert!((f64::from(y) - exact).abs() < 1e-6, "{index}: {y} for {exact}");
    }
}

/// One key/value head.
struct Head {
    /// Without their mean, not rounded.
    keys: Vec<f32>,
    k: Codes,
    k_mean: Vec<f32>,
    v: Codes,
    v_mean: Vec<f32>,
}

impl Head {
    fn new(call: &Call, recipe: &Recipe, given_scales: Option<&Given>, index: usize) -> Self {
        let d = call.head_dim;
        let range = index * call.kv_len * d..(index + 1) * call.kv_len * d;
        if let Some([_, k, v]) = given_scales {
            let [k_rows, v_rows] = [k, v].map(|rows| &rows[index * call.kv_len..][..call.kv_len]);
            // Blocks are whole ones.
            let of_blocks = |rows: &[f64], each: usize| {
                rows.chunks(BLOCK).flat_map(|block| vec![block[0]; each]).collect::<Vec<_>>()
            };
            let k = given(&call.k[range.clone()], d, k_rows, of_blocks(k_rows, 4));
            let v = given(&call.v[range], d, v_rows, of_blocks(v_rows, 1));
            return Head { keys: vec![], k, k_mean: vec![0.0; d], v, v_mean: vec![0.0; d] };
        }
        let (k, v) = (narrow(&call.k[range.clone()]), narrow(&call.v[range]));
        let blocks = call.kv_len.div_ceil(BLOCK);
        let k_mean = if recipe.smooth_k { means(&k, d) } else { vec![0.0; d] };
        let v_mean = if recipe.smooth_v { means(&v, d) } else { vec![0.0; d] };
        let (k, v) = (less(&k, &k_mean), less(&v, &v_mean));
        let keys = k.clone();
        let k = if recipe.rotation { rotated(&k, d) } else { k };
        let group = |row: usize| row / BLOCK * 4 + row % 8 / 2;
        let k = recipe.scores(&k, d, 4 * blocks, group);
        let v = if recipe.by_channel {
            // The same, column by column.
            let turned: Vec<f32> = (0..d).flat_map(|c| v.iter().skip(c).step_by(d).copied()).collect();
            let Codes { codes, scales } = quantize(
                &turned,
                call.kv_len.max(1),
                d,
                |column| column,
                recipe.v_largest(),
                |column| column.chunks(128).flat_map(|tile| recipe.along_keys(tile)).collect(),
            );
            let back = (0..call.kv_len)
                .flat_map(|key| codes.iter().skip(key).step_by(call.kv_len).copied())
                .collect();
            Codes { codes: back, scales }
        } else {
            quantize(&v, d, blocks, |row| row / BLOCK, recipe.v_largest(), each(e4m3))
        };
        Head { keys, k, k_mean, v, v_mean }
    }
}

impl Call {
    /// The answer of a recipe.
    pub fn quantized(&self, recipe: &Recipe) -> Answer {
        self.simulated(recipe, None)
    }

    /// The answer of a recipe, of tensors that came in e4m3 numbers if they have `given` scales.
    pub fn simulated(&self, recipe: &Recipe, given: Option<&Given>) -> Answer {
        let d = self.head_dim;
        let heads: Vec<Head> = (0..self.batch * self.kv_heads)
            .into_par_iter()
            .map(|index| Head::new(self, recipe, given, index))
            .collect();
        let group = self.q_heads.checked_div(self.kv_heads).unwrap_or(1);
        let rows: Vec<_> = (0..self.batch * self.q_heads * self.q_len)
            .into_par_iter()
            .map(|index| {
                let (head, row) = (index / self.q_len, index % self.q_len);
                let (batch, head) = (head / self.q_heads, head % self.q_heads);
                let q = &self.q[index * d..(index + 1) * d];
                let scale = given.map(|[q, ..]| q[index]);
                let mean = self.mean_query(recipe, index);
                self.row(
                    recipe,
                    (q, scale),
                    &mean,
                    &heads[batch * self.kv_heads + head / group],
                    self.visible(row),
                )
            })
            .collect();
        let (o, lse): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        Answer { o: o.concat(), lse }
    }

    /// The mean of those queries that are smoothed together with one; zeros if none are.
    fn mean_query(&self, recipe: &Recipe, index: usize) -> Vec<f32> {
        let (d, row) = (self.head_dim, index % self.q_len);
        if !recipe.smooth_q || row < recipe.native_rows {
            return vec![0.0; d];
        }
        let first = row - (row - recipe.native_rows) % 128;
        let rows = index - row + first..index - row + self.q_len.min(first + 128);
        means(&narrow(&self.q[rows.start * d..rows.end * d]), d)
    }

    fn row(
        &self,
        recipe: &Recipe,
        (exact, given_scale): (&[f64], Option<f64>),
        mean: &[f32],
        head: &Head,
        visible: usize,
    ) -> (Vec<f64>, f64) {
        let (d, scale) = (self.head_dim, f64::from(self.scale));
        let q = narrow(exact);
        let shift: f64 = q.iter().zip(&head.k_mean).map(|(q, m)| f64::from(*q) * f64::from(*m)).sum();
        let q = less(&q, mean);
        let q = if recipe.rotation { rotated(&q, d) } else { q };
        let q = match given_scale {
            Some(scale) => given(exact, d, &[scale], vec![scale]),
            None => recipe.scores(&q, d, 1, |_| 0),
        };
        let keep = |x: f64| if recipe.numbers == Numbers::Int8 { x } else { recipe.keep(x) };
        let score = |key: usize| {
            let products = q.codes.iter().zip(&head.k.codes[key * d..][..d]).map(|(a, b)| a * b);
            let lacks: f64 = match recipe.smooth_q {
                true => mean
                    .iter()
                    .zip(&head.keys[key * d..][..d])
                    .map(|(q, k)| f64::from(*q) * f64::from(*k))
                    .sum(),
                false => 0.0,
            };
            let score = sum(products, keep) * q.scales[0] * head.k.scales[key / BLOCK * 4 + key % 8 / 2];
            (score + lacks) * scale
        };
        let parts = (0..visible).step_by(recipe.part).map(|first| {
            let keys = first..visible.min(first.saturating_add(recipe.part));
            self.part(recipe, head, keys, score)
        });
        let parts: Vec<_> = parts.collect();
        let maximum = parts.iter().map(|part| part.0).fold(f64::NEG_INFINITY, f64::max);
        let (mut total, mut o) = (0.0, vec![0.0; d]);
        for (part_maximum, part_total, part) in &parts {
            let factor = if *part_maximum == maximum { 1.0 } else { (part_maximum - maximum).exp() };
            total += part_total * factor;
            o.iter_mut().zip(part).for_each(|(o, part)| *o += part * factor);
        }
        if total == 0.0 {
            return (vec![0.0; d], f64::NEG_INFINITY);
        }
        for (c, o) in o.iter_mut().enumerate() {
            let column = if recipe.by_channel { head.v.scales[c] } else { 1.0 };
            *o = *o / total * column + f64::from(head.v_mean[c]);
        }
        (o, maximum + (total / recipe.one()).ln() + shift * scale)
    }

    /// Largest score, sum and output, not normalised, over some keys.
    fn part(
        &self,
        recipe: &Recipe,
        head: &Head,
        keys: std::ops::Range<usize>,
        score: impl Fn(usize) -> f64,
    ) -> (f64, f64, Vec<f64>) {
        let d = self.head_dim;
        let (mut maximum, mut total, mut o) = (f64::NEG_INFINITY, 0.0, vec![0.0; d]);
        for first in keys.clone().step_by(recipe.tile) {
            let keys: Vec<usize> = (first..keys.end.min(first + recipe.tile)).collect();
            let scores: Vec<f64> = keys.iter().map(|&key| score(key)).collect();
            let new = scores.iter().copied().fold(maximum, f64::max);
            let factor = if maximum == new { 1.0 } else { (maximum - new).exp() };
            maximum = new;
            let p: Vec<f32> = scores.iter().map(|s| (recipe.one() * (s - maximum).exp()) as f32).collect();
            let p = recipe.along_keys(&p);
            let sums = p.chunks(BLOCK).map(|p| sum(p.iter().copied(), |x| recipe.keep(x)));
            total = total * factor + sums.sum::<f64>();
            for (c, o) in o.iter_mut().enumerate() {
                *o *= factor;
                for (p, keys) in p.chunks(BLOCK).zip(keys.chunks(BLOCK)) {
                    let products = p.iter().zip(keys).map(|(p, key)| p * head.v.codes[key * d + c]);
                    let block = if recipe.by_channel { 1.0 } else { head.v.scales[keys[0] / BLOCK] };
                    *o += sum(products, |x| recipe.keep_of_values(x)) * block;
                }
            }
        }
        (maximum, total, o)
    }
}
