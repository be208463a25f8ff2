//! Matrix instructions on whole warps, built from the fragment maps that kernels use.

use std::sync::LazyLock;

use cuda_std::fragment::m16n8k16::{self, K, M, N};

use crate::lanes::Lanes;

/// Where each lane's elements lie in the operands, worked out once from the maps.
struct Maps {
    /// Index into A (row by row) of `[lane][register][half]`.
    a: [[[usize; 2]; 4]; 32],
    /// Index into B (column by column) of `[lane][register][half]`.
    b: [[[usize; 2]; 2]; 32],
    /// `(row, column)` of `[lane][register]`.
    accumulator: [[(usize, usize); 4]; 32],
}

static MAPS: LazyLock<Maps> = LazyLock::new(|| {
    use std::array::from_fn;
    let a = |lane: usize, register: usize, half: usize| {
        let (row, k) = m16n8k16::a(lane as u32, register as u32, half as u32);
        row as usize * K + k as usize
    };
    let b = |lane: usize, register: usize, half: usize| {
        let (k, column) = m16n8k16::b(lane as u32, register as u32, half as u32);
        column as usize * K + k as usize
    };
    let accumulator = |lane: usize, register: usize| {
        let (row, column) = m16n8k16::accumulator(lane as u32, register as u32);
        (row as usize, column as usize)
    };
    Maps {
        a: from_fn(|lane| from_fn(|register| from_fn(|half| a(lane, register, half)))),
        b: from_fn(|lane| from_fn(|register| from_fn(|half| b(lane, register, half)))),
        accumulator: from_fn(|lane| from_fn(|register| accumulator(lane, register))),
    }
});

/// Floating-point operations of one `mma.m16n8k16`.
pub const MMA_FLOPS: u64 = 2 * (M * N * K) as u64;

/// `d += a b`, 16-bit elements widened by `widen`.
///
/// Products are exact; the sum of sixteen of them and the accumulator is taken in f64 and rounded once. Hardware keeps
/// a few bits fewer, and truncates ("Recovering single precision accuracy from Tensor Cores", Ootomo and Yokota 2022).
pub fn mma(d: &mut [Lanes<f32>; 4], a: [Lanes<u32>; 4], b: [Lanes<u32>; 2], widen: impl Fn(u16) -> f32) {
    let (mut left, mut right) = ([0.0_f64; M * K], [0.0_f64; N * K]);
    let halves = |word: u32| [word as u16, (word >> 16) as u16];
    for lane in 0..32 {
        for (register, places) in MAPS.a[lane].iter().enumerate() {
            for (half, bits) in halves(a[register].0[lane]).into_iter().enumerate() {
                left[places[half]] = f64::from(widen(bits));
            }
        }
        for (register, places) in MAPS.b[lane].iter().enumerate() {
            for (half, bits) in halves(b[register].0[lane]).into_iter().enumerate() {
                right[places[half]] = f64::from(widen(bits));
            }
        }
    }
    for lane in 0..32 {
        for (register, &(row, column)) in MAPS.accumulator[lane].iter().enumerate() {
            let (a, b) = (&left[row * K..(row + 1) * K], &right[column * K..(column + 1) * K]);
            let sum: f64 = a.iter().zip(b).map(|(x, y)| x * y).sum();
            let element = &mut d[register].0[lane];
            *element = (f64::from(*element) + sum) as f32;
        }
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
