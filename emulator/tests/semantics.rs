//! What instructions compute, against definitions written out here.

use cuda_std::Warp;
use cuda_std::fragment::{load_matrix, m16n8k16};
use cuda_std::swizzle::{Cursor, Strides, bank_conflicts};
use ffpa_emulator::{Buffers, Counters, Emu, Lanes, Launch, launch};
use half::f16;

/// Tiles of 128-byte rows.
const LINES: Strides = Strides::of_rows(128);

fn run(warps: usize, seed: u64, kernel: impl Fn(Emu<'_>) + Sync) -> Counters {
    let shape = Launch { grid: 3, warps, shared_bytes: 32 * 1024, seed, progress: None };
    launch(&shape, &Buffers(Vec::new()), kernel).unwrap_or_else(|fault| panic!("{fault}"))
}

/// A small integer that depends on the place, exact in f16 products and sums.
fn value(row: usize, column: usize) -> f32 {
    ((row * 7 + column * 3) % 11) as f32 - 5.0
}

fn halves(low: f32, high: f32) -> u32 {
    u32::from(f16::from_f32(low).to_bits()) | u32::from(f16::from_f32(high).to_bits()) << 16
}

/// Fills a row-major tile of 16 rows x 16 columns of f16 at `base`, rows 128 bytes apart, swizzled.
///
/// # Safety
/// As [`Warp::store_shared`].
unsafe fn fill(warp: Emu<'_>, base: u32) {
    for row in 0..16_u32 {
        for word in 0..8_u32 {
            let chunk = warp.splat(word / 4);
            let place = Cursor::new(base, LINES, warp.splat(row), chunk).at(LINES, 0, 0) + (word % 4) * 4;
            let (row, column) = (row as usize, 2 * word as usize);
            let pair = halves(value(row, column), value(row, column + 1));
            // SAFETY: the caller's.
            unsafe { store_once(warp, place, pair) };
        }
    }
}

/// Stores a word: lane 0 at its place, the others in a corner of shared memory that nobody reads.
///
/// # Safety
/// As [`Warp::store_shared`].
unsafe fn store_once(warp: Emu<'_>, place: Lanes<u32>, pair: u32) {
    let first = warp.less(warp.lane_id(), warp.splat(1));
    let corner = warp.lane_id() * 4 + 16 * 1024;
    warp.sync_warp();
    // SAFETY: the caller's.
    unsafe { warp.store_shared(warp.select(first, place, corner), warp.splat(pair)) };
}

#[test]
fn matrix_loads_and_multiplication_agree_with_the_definition() {
    // C = A B with A and B the same 16x16 tile, B by rows (transposed load) and by columns.
    run(1, 3, |warp| {
        // SAFETY: the emulator checks every access.
        unsafe {
            fill(warp, 0);
            warp.sync_warp();
            let place = |(row, chunk)| Cursor::new(0, LINES, row, chunk).at(LINES, 0, 0);
            let a = warp.load_matrix_x4(place(load_matrix::a(warp.lane_id())));
            let rows = warp.load_matrix_transposed_x4(place(load_matrix::b_by_rows(warp.lane_id())));
            let columns = warp.load_matrix_x4(place(load_matrix::b_by_columns(warp.lane_id())));
            for half in 0..2 {
                for (b, by_rows) in [(rows, true), (columns, false)] {
                    let mut d = [warp.splat_f32(0.5); 4];
                    warp.mma_m16n8k16_f16(&mut d, a, [b[2 * half], b[2 * half + 1]]);
                    for (register, values) in d.iter().enumerate() {
                        for lane in 0..32_u32 {
                            let (row, column) = m16n8k16::accumulator(lane, register as u32);
                            let (row, column) = (row as usize, column as usize + 8 * half);
                            let b = |k| if by_rows { value(k, column) } else { value(column, k) };
                            let want: f32 = (0..16).map(|k| value(row, k) * b(k)).sum::<f32>() + 0.5;
                            assert_eq!(values.0[lane as usize], want, "row {row}, column {column}");
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn results_and_counters_do_not_depend_on_the_seed() {
    let kernel = |warp: Emu<'_>| {
        // SAFETY: the emulator checks every access.
        unsafe {
            warp.store_shared(warp.lane_id() * 4 + warp.warp_id() * 128, warp.lane_id() + warp.warp_id());
            warp.sync_threads();
            let words = warp.load_shared_x4((warp.lane_id() % 8) * 16 + (3 - warp.warp_id()) * 128);
            for (i, word) in words.iter().enumerate() {
                for lane in 0..32 {
                    assert_eq!(word.0[lane], (lane as u32 % 8) * 4 + i as u32 + 3 - warp.warp_id());
                }
            }
            warp.sync_threads();
        }
    };
    let first = run(4, 0, kernel);
    assert_eq!((first.barriers, first.shared_stores, first.shared_loads), (3 * 2, 3 * 4, 3 * 4));
    assert_eq!(first.bank_conflicts, 0);
    for seed in 1..20 {
        assert_eq!(run(4, seed, kernel), first);
    }
}

#[test]
fn bank_conflicts_are_counted() {
    // Eight rows 128 bytes apart at the same chunk: seven wavefronts too many in each of the four phases.
    let kernel = |swizzled: bool| {
        move |warp: Emu<'_>| {
            let lane = warp.lane_id();
            let (row, chunk) = (lane % 8, lane / 8);
            let plain = row * 128 + chunk * 16;
            let place = if swizzled { Cursor::new(0, LINES, row, chunk).at(LINES, 0, 0) } else { plain };
            // SAFETY: the emulator checks every access.
            unsafe {
                for i in 0..8 {
                    warp.store_shared(lane * 4 + i * 128, warp.splat(i));
                }
                warp.sync_warp();
                warp.load_matrix_x4(place);
            }
            let addresses: Vec<u32> = place.0.to_vec();
            assert_eq!(bank_conflicts(&addresses, 16), if swizzled { 0 } else { 28 });
        }
    };
    assert_eq!(run(1, 0, kernel(true)).bank_conflicts, 0);
    assert_eq!(run(1, 0, kernel(false)).bank_conflicts, 3 * 28);
}

#[test]
fn votes_and_shuffles_cross_lanes() {
    run(1, 0, |warp| {
        let lane = warp.lane_id();
        assert!(warp.vote_any(warp.less(lane, warp.splat(1))));
        assert!(!warp.vote_any(warp.less(lane, warp.splat(0))));
        let mut value = warp.splat_f32(0.0);
        for i in 0..32 {
            let here = !warp.less(lane, warp.splat(i)) & warp.less(lane, warp.splat(i + 1));
            value = warp.select_f32(here, warp.splat_f32(i as f32), value);
        }
        for mask in [1, 2, 16] {
            let got = warp.shuffle_xor(value, mask);
            (0..32).for_each(|i| assert_eq!(got.0[i], (i ^ mask as usize) as f32));
        }
    });
}
