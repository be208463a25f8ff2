//! Matrix instructions on whole warps, built from the fragment maps that kernels use.

use std::sync::LazyLock;

use cuda_std::fragment::m16n8k16::{M, N, accumulator};
use cuda_std::fragment::{m16n8k16, m16n8k32, m16n8k64};
use half::f16;

use crate::lanes::Lanes;
use crate::{e2m1, e4m3};

/// Where each lane's elements lie in the operands, `E` to a register, worked out once from the maps.
struct Maps<const E: usize> {
    /// `(row, k)` in A of `[lane][register][element]`.
    a: [[[(usize, usize); E]; 4]; 32],
    /// `(k, column)` in B of `[lane][register][element]`.
    b: [[[(usize, usize); E]; 2]; 32],
    /// `(row, column)` of `[lane][register]`.
    accumulator: [[(usize, usize); 4]; 32],
}

/// A fragment map of an operand: lane, register, element.
type Map = fn(u32, u32, u32) -> (u32, u32);

impl<const E: usize> Maps<E> {
    fn new(a: Map, b: Map) -> Self {
        use std::array::from_fn;
        let place = |(i, j): (u32, u32)| (i as usize, j as usize);
        let operand = |map: Map, lane: usize, register: usize| {
            from_fn(|element| place(map(lane as u32, register as u32, element as u32)))
        };
        Maps {
            a: from_fn(|lane| from_fn(|register| operand(a, lane, register))),
            b: from_fn(|lane| from_fn(|register| operand(b, lane, register))),
            accumulator: from_fn(|lane| from_fn(|register| place(accumulator(lane as u32, register as u32)))),
        }
    }
}

static M16N8K16: LazyLock<Maps<2>> = LazyLock::new(|| Maps::new(m16n8k16::a, m16n8k16::b));
static M16N8K32: LazyLock<Maps<4>> = LazyLock::new(|| Maps::new(m16n8k32::a, m16n8k32::b));
static M16N8K64: LazyLock<Maps<8>> = LazyLock::new(|| Maps::new(m16n8k64::a, m16n8k64::b));

/// The rows of A and the columns of B. `element` reads an element from the low bits of a word.
fn matrices<const E: usize, const K: usize, T: Copy + Default>(
    maps: &Maps<E>,
    a: [Lanes<u32>; 4],
    b: [Lanes<u32>; 2],
    element: impl Fn(u32) -> T,
) -> ([[T; K]; M], [[T; K]; N]) {
    let (mut rows, mut columns) = ([[T::default(); K]; M], [[T::default(); K]; N]);
    for lane in 0..32 {
        for (register, places) in maps.a[lane].iter().enumerate() {
            for (i, &(row, k)) in places.iter().enumerate() {
                rows[row][k] = element(a[register].0[lane] >> (32 / E * i));
            }
        }
        for (register, places) in maps.b[lane].iter().enumerate() {
            for (i, &(k, column)) in places.iter().enumerate() {
                columns[column][k] = element(b[register].0[lane] >> (32 / E * i));
            }
        }
    }
    (rows, columns)
}

/// Every accumulator becomes `sum` of itself, its row of A and its column of B.
fn accumulate<const E: usize, const K: usize, T, D: Copy>(
    maps: &Maps<E>,
    d: &mut [Lanes<D>; 4],
    (rows, columns): ([[T; K]; M], [[T; K]; N]),
    sum: impl Fn(D, &[T; K], &[T; K]) -> D,
) {
    for lane in 0..32 {
        for (register, &(row, column)) in maps.accumulator[lane].iter().enumerate() {
            let element = &mut d[register].0[lane];
            *element = sum(*element, &rows[row], &columns[column]);
        }
    }
}

/// The sum of the products of two vectors.
fn dot<const K: usize>(a: &[f64; K], b: &[f64; K]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// `mma.m16n8k16`, 16-bit elements widened by `widen`.
///
/// Products are exact; the sum of sixteen of them and the accumulator is taken in f64 and rounded once. Hardware keeps
/// a few bits fewer, and truncates ("Recovering single precision accuracy from Tensor Cores", Ootomo and Yokota 2022).
pub fn mma_m16n8k16(
    d: &mut [Lanes<f32>; 4],
    a: [Lanes<u32>; 4],
    b: [Lanes<u32>; 2],
    widen: impl Fn(u16) -> f32,
) {
    let matrices = matrices::<_, { m16n8k16::K }, _>(&M16N8K16, a, b, |bits| f64::from(widen(bits as u16)));
    accumulate(&M16N8K16, d, matrices, |d, a, b| (f64::from(d) + dot(a, b)) as f32);
}

/// `mma.m16n8k32` on e4m3. The sum of 32 products and the accumulator is exact, and rounded once as the accumulators have it.
pub fn mma_m16n8k32_e4m3(
    d: &mut [Lanes<f32>; 4],
    a: [Lanes<u32>; 4],
    b: [Lanes<u32>; 2],
    accumulators: Accumulators,
) {
    // The sum of the products is exact in f64: each is a multiple of 2^-18, and all together are below 2^23.
    let element = |bits| f64::from(e4m3::decode(bits as u8));
    let matrices = matrices::<_, { m16n8k32::K }, _>(&M16N8K32, a, b, element);
    accumulate(&M16N8K32, d, matrices, |d, a, b| accumulators.add(d, dot(a, b)));
}

/// `mma.m16n8k64` on e2m1 with scales in ue4m3, those of thread ids `ids` (of A, of B). The sum of 64 products and the
/// accumulator is exact, and rounded once.
pub fn mma_m16n8k64_nvf4(
    d: &mut [Lanes<f32>; 4],
    a: [Lanes<u32>; 4],
    b: [Lanes<u32>; 2],
    scales: [Lanes<u32>; 2],
    ids: [u32; 2],
) {
    let element = |bits: u32| f64::from(e2m1::decode(bits as u8));
    let (mut rows, mut columns) = matrices::<_, { m16n8k64::K }, _>(&M16N8K64, a, b, element);
    scale(&mut rows, scales[0], ids[0], m16n8k64::scale_a);
    scale(&mut columns, scales[1], ids[1], m16n8k64::scale_b);
    // The sum of the products is exact in f64: each is a multiple of 2^-20, and all together are below 2^29.
    accumulate(&M16N8K64, d, (rows, columns), |d, a, b| Accumulators::Full.add(d, dot(a, b)));
}

/// Multiplies each block of the vectors by its scale, which `place` finds in a lane that holds scales of thread id `id`.
fn scale(vectors: &mut [[f64; m16n8k64::K]], scales: Lanes<u32>, id: u32, place: fn(u32) -> (u32, u32)) {
    for (lane, word) in scales.0.into_iter().enumerate() {
        let (vector, of) = place(lane as u32);
        if of != id {
            continue;
        }
        let blocks = vectors[vector as usize].chunks_mut(m16n8k64::BLOCK);
        for (block, code) in blocks.zip(word.to_le_bytes()) {
            let scale = f64::from(unsigned_e4m3(code));
            block.iter_mut().for_each(|x| *x *= scale);
        }
    }
}

/// The float of a code of ue4m3. The bit where e4m3 has its sign must be zero; what another means is not said, so it is NaN here.
fn unsigned_e4m3(code: u8) -> f32 {
    if code < 0x80 { e4m3::decode(code) } else { f32::NAN }
}

/// `mma.m16n8k32` on e4m3 with f16 accumulators, two to a register. The sum is exact, and rounded once to nearest even.
pub fn mma_m16n8k32_e4m3_f16(d: &mut [Lanes<u32>; 2], a: [Lanes<u32>; 4], b: [Lanes<u32>; 2]) {
    let half = |register: usize| {
        let word = d[register / 2];
        Lanes::from_fn(|lane| (word.0[lane] >> (16 * (register % 2))) as u16)
    };
    let mut sums: [Lanes<u16>; 4] = std::array::from_fn(half);
    let element = |bits| f64::from(e4m3::decode(bits as u8));
    let matrices = matrices::<_, { m16n8k32::K }, _>(&M16N8K32, a, b, element);
    // Exact in f64, as above: an f16 is a multiple of 2^-24, and below 2^16.
    let add = |d, products| f16::from_f64(f16::from_bits(d).to_f64() + products).to_bits();
    accumulate(&M16N8K32, &mut sums, matrices, |d, a, b| add(d, dot(a, b)));
    for (register, word) in d.iter_mut().enumerate() {
        let [low, high] = [sums[2 * register], sums[2 * register + 1]];
        *word = Lanes::from_fn(|lane| u32::from(low.0[lane]) | u32::from(high.0[lane]) << 16);
    }
}

/// `mma.m16n8k32` on signed bytes. Without `.satfinite`, sums wrap around (PTX ISA, "mma").
pub fn mma_m16n8k32_s8(d: &mut [Lanes<u32>; 4], a: [Lanes<u32>; 4], b: [Lanes<u32>; 2]) {
    let matrices = matrices::<_, { m16n8k32::K }, _>(&M16N8K32, a, b, |bits| i32::from(bits as i8));
    accumulate(&M16N8K32, d, matrices, |d, a, b| {
        let products: i32 = a.iter().zip(b).map(|(x, y)| x * y).sum();
        d.wrapping_add_signed(products)
    });
}

/// What a machine keeps of a sum of products of 8-bit floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accumulators {
    /// All of an f32: rounded to nearest even.
    #[default]
    Full,
    /// An f32 with 13 bits of fraction, the others cut off, as was found on sm_89 ("SageAttention2", Zhang et al. 2024).
    Truncated13,
}

impl Accumulators {
    /// `accumulator + products`, rounded once.
    fn add(self, accumulator: f32, products: f64) -> f32 {
        let sum = add_to_odd(accumulator.into(), products);
        let nearest = sum as f32;
        match self {
            Accumulators::Full => nearest,
            Accumulators::Truncated13 => {
                let away = f64::from(nearest.abs()) > sum.abs();
                let toward_zero = nearest.to_bits() - u32::from(away);
                f32::from_bits(toward_zero & !0x3FF)
            }
        }
    }
}

/// `a + b` rounded to odd: the neighbour with an odd last bit, unless the sum is exact. To round that again, to fewer bits, is
/// to round the exact sum once ("Emulation of a FMA and correctly rounded sums", Boldo and Melquiond 2008).
fn add_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // What the addition lost, exactly (Knuth's TwoSum).
    let b_part = sum - a;
    let lost = (a - (sum - b_part)) + (b - b_part);
    if !sum.is_finite() || lost == 0.0 || sum.to_bits() % 2 == 1 {
        return sum;
    }
    if (lost > 0.0) == (sum > 0.0) {
        f64::from_bits(sum.to_bits() + 1)
    } else {
        f64::from_bits(sum.to_bits() - 1)
    }
}

/// What `ldmatrix.x4` gives to the lanes, from the 32 rows that they pointed at. Each row is eight 16-bit elements.
pub fn distribute(rows: &[[u8; 16]; 32], transposed: bool) -> [Lanes<u32>; 4] {
    let element = |matrix: usize, row: usize, column: usize| {
        let bytes = &rows[8 * matrix + row][2 * column..2 * column + 2];
        u32::from(u16::from_le_bytes([bytes[0], bytes[1]]))
    };
    std::array::from_fn(|matrix| {
        Lanes::from_fn(|lane| {
            let (row, column) = (lane / 4, 2 * (lane % 4));
            if transposed {
                element(matrix, column, row) | element(matrix, column + 1, row) << 16
            } else {
                element(matrix, row, column) | element(matrix, row, column + 1) << 16
            }
        })
    })
}
