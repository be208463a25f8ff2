//! What instructions compute, against definitions written out here.

use cuda_std::Warp;
use cuda_std::fragment::{load_matrix, m16n8k16, m16n8k32};
use cuda_std::swizzle::{Cursor, Strides, bank_conflicts};
use ffpa_emulator::{Accumulators, Buffer, Buffers, Counters, Emu, Lanes, Launch, launch};
use float8::F8E4M3;
use half::f16;

/// Tiles of 128-byte rows.
const LINES: Strides = Strides::of_rows(128);

fn run(warps: usize, seed: u64, kernel: impl Fn(Emu<'_>) + Sync) -> Counters {
    let shape = Launch { grid: 3, warps, shared_bytes: 32 * 1024, seed, ..Launch::default() };
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

/// Numbers without order (xorshift; Marsaglia 2003).
struct Noise(u64);

impl Noise {
    fn word(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    /// Words of bytes that are no NaN of e4m3.
    fn words<const N: usize>(&mut self) -> [Lanes<u32>; N] {
        let mut byte = || loop {
            let byte = self.word() as u8;
            if byte & 0x7F != 0x7F {
                return byte;
            }
        };
        std::array::from_fn(|_| Lanes::from_fn(|_| u32::from_le_bytes(std::array::from_fn(|_| byte()))))
    }
}

/// The rows of A and the columns of B that the operands of `mma.m16n8k32` hold.
fn matrices(a: [Lanes<u32>; 4], b: [Lanes<u32>; 2]) -> ([[u8; 32]; 16], [[u8; 32]; 8]) {
    let (mut rows, mut columns) = ([[0; 32]; 16], [[0; 32]; 8]);
    for (lane, byte) in (0..32).flat_map(|lane| (0..4).map(move |byte| (lane, byte))) {
        for (register, words) in a.iter().enumerate() {
            let (row, k) = m16n8k32::a(lane, register as u32, byte);
            rows[row as usize][k as usize] = words.0[lane as usize].to_le_bytes()[byte as usize];
        }
        for (register, words) in b.iter().enumerate() {
            let (k, column) = m16n8k32::b(lane, register as u32, byte);
            columns[column as usize][k as usize] = words.0[lane as usize].to_le_bytes()[byte as usize];
        }
    }
    (rows, columns)
}

/// Asserts that every accumulator went from `before` to what `want` makes of it, its row of A and its column of B.
fn assert_accumulators<T: Copy + PartialEq + std::fmt::Debug>(
    before: &[Lanes<T>; 4],
    after: &[Lanes<T>; 4],
    (a, b): ([Lanes<u32>; 4], [Lanes<u32>; 2]),
    want: impl Fn(T, &[u8; 32], &[u8; 32]) -> T,
) {
    let (rows, columns) = matrices(a, b);
    for (register, lane) in (0..4).flat_map(|register| (0..32).map(move |lane| (register, lane))) {
        let (row, column) = m16n8k32::accumulator(lane as u32, register as u32);
        let want = want(before[register].0[lane], &rows[row as usize], &columns[column as usize]);
        assert_eq!(after[register].0[lane], want, "row {row}, column {column}");
    }
}

#[test]
fn sums_of_8_bit_floats_are_rounded_once() {
    // The exact sum in fixed point: products of e4m3 are multiples of 2^-18, accumulators here of 2^-60.
    const UNIT: f32 = f32::from_bits((127 - 60) << 23);
    let sum = |accumulator: f32, a: &[u8; 32], b: &[u8; 32]| {
        let value = |&code: &u8| (F8E4M3::from_bits(code).to_f32() * 512.0) as i128;
        let products: i128 = a.iter().zip(b).map(|(a, b)| value(a) * value(b)).sum();
        (products << 42) + (f64::from(accumulator) * f64::from(UNIT).recip()) as i128
    };
    let full = |d: f32, a: &[u8; 32], b: &[u8; 32]| sum(d, a, b) as f32 * UNIT;
    let truncated = |d: f32, a: &[u8; 32], b: &[u8; 32]| {
        let sum = sum(d, a, b);
        // A leading one and 13 bits.
        let below = (128 - sum.unsigned_abs().leading_zeros()).saturating_sub(14);
        let magnitude = (sum.unsigned_abs() >> below << below) as f32 * UNIT;
        if sum < 0 { -magnitude } else { magnitude }
    };
    let kernel = |of_machine: Accumulators| {
        move |warp: Emu<'_>| {
            let mut noise = Noise(1);
            for _ in 0..200 {
                let (a, b) = (noise.words(), noise.words());
                // Of any sign, from 2^-36 to 2^39.
                let mut accumulator = |_| {
                    let (bits, exponent) = (noise.word(), noise.word() % 76);
                    f32::from_bits(bits & 0x807F_FFFF | (127 - 36 + exponent) << 23)
                };
                let before: [_; 4] = std::array::from_fn(|_| Lanes::from_fn(&mut accumulator));
                let mut after = before;
                warp.mma_m16n8k32_e4m3(&mut after, a, b);
                match of_machine {
                    Accumulators::Full => assert_accumulators(&before, &after, (a, b), full),
                    Accumulators::Truncated13 => assert_accumulators(&before, &after, (a, b), truncated),
                }
                // The sums of block-scaled products are full on every machine.
                let mut after = before;
                warp.mma_m16n8k32_mxf8(&mut after, a, b);
                assert_accumulators(&before, &after, (a, b), full);
            }
        }
    };
    for accumulators in [Accumulators::Full, Accumulators::Truncated13] {
        let shape = Launch { grid: 1, warps: 1, accumulators, ..Launch::default() };
        let counters = launch(&shape, &Buffers(Vec::new()), kernel(accumulators));
        let counters = counters.unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!((counters.mma, counters.mma_flops), (400, 400 * 2 * 16 * 8 * 32));
    }
}

#[test]
fn sums_of_8_bit_floats_in_f16_are_rounded_once() {
    run(1, 0, |warp| {
        let mut noise = Noise(3);
        for _ in 0..200 {
            // Products of numbers below 2: some sums are small, none is infinite.
            let mut small = || Lanes::from_fn(|_| noise.word() & 0xBFBF_BFBF);
            let (a, b) = ([(); 4].map(|()| small()), [(); 2].map(|()| small()));
            let before = [(); 2].map(|()| Lanes::from_fn(|_| noise.word() & 0xD7FF_D7FF));
            let mut after = before;
            warp.mma_m16n8k32_e4m3_f16(&mut after, a, b);
            let (rows, columns) = matrices(a, b);
            for (register, lane) in (0..4).flat_map(|register| (0..32).map(move |lane| (register, lane))) {
                let (row, column) = m16n8k32::accumulator(lane as u32, register as u32);
                let half = |words: &[Lanes<u32>; 2]| {
                    f16::from_bits((words[register / 2].0[lane] >> (16 * (register % 2))) as u16)
                };
                // In fixed point: products are multiples of 2^-18, an f16 is one of 2^-24.
                let value = |code: u8| (F8E4M3::from_bits(code).to_f32() * 512.0) as i64;
                let pairs = rows[row as usize].iter().zip(&columns[column as usize]);
                let products: i64 = pairs.map(|(&a, &b)| value(a) * value(b)).sum();
                let sum = (products << 6) + (half(&before).to_f64() * 2.0_f64.powi(24)) as i64;
                // Below 2^53 units: to f64 and back it is exact.
                let want = f16::from_f64(sum as f64 * 2.0_f64.powi(-24));
                assert_eq!(half(&after).to_bits(), want.to_bits(), "row {row}, column {column}");
            }
        }
    });
}

#[test]
fn narrow_accumulators_lose_what_full_ones_keep() {
    // 1 + 1023 * 2^-14 as so many additions of 2^-14, half of the last of 13 bits: nothing of it, or all.
    for (accumulators, want) in
        [(Accumulators::Full, 1.0 + 1023.0 / 16384.0), (Accumulators::Truncated13, 1.0)]
    {
        let shape = Launch { grid: 1, warps: 1, accumulators, ..Launch::default() };
        let kernel = |warp: Emu<'_>| {
            // In each row of A and column of B one code that is not zero: 2^-7 (0x04, subnormal), at k = 0.
            let first = warp.less(warp.lane_id() & 3, warp.splat(1));
            let word = warp.select(first, warp.splat(0x04), warp.splat(0));
            let zero = warp.splat(0);
            let mut d = [warp.splat_f32(1.0); 4];
            for _ in 0..1023 {
                warp.mma_m16n8k32_e4m3(&mut d, [word, word, zero, zero], [word, zero]);
            }
            assert_eq!(d, [warp.splat_f32(want); 4]);
        };
        launch(&shape, &Buffers(Vec::new()), kernel).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

#[test]
fn products_of_signed_bytes_are_exact_and_wrap_around() {
    let counters = run(1, 0, |warp| {
        let mut noise = Noise(2);
        for _ in 0..200 {
            let (a, b) = (noise.words(), noise.words());
            let before: [_; 4] = std::array::from_fn(|_| Lanes::from_fn(|_| noise.word()));
            let mut after = before;
            warp.mma_m16n8k32_s8(&mut after, a, b);
            assert_accumulators(&before, &after, (a, b), |d, a, b| {
                let products: i64 =
                    a.iter().zip(b).map(|(&a, &b)| i64::from(a as i8) * i64::from(b as i8)).sum();
                (i64::from(d as i32) + products) as u32
            });
        }
        // The largest product of all, beyond the largest accumulator.
        let mut d = [warp.splat(i32::MAX as u32); 4];
        warp.mma_m16n8k32_s8(&mut d, [warp.splat(0x8080_8080); 4], [warp.splat(0x8080_8080); 2]);
        assert_eq!(d, [warp.splat(i32::MIN as u32 + 32 * 128 * 128 - 1); 4]);
    });
    assert_eq!((counters.mma, counters.mma_flops), (3 * 201, 3 * 201 * 2 * 16 * 8 * 32));
}

#[test]
fn scalars_agree_with_their_definitions() {
    run(1, 0, |warp| {
        let lane = warp.lane_id();
        // Lane l has l - 16.
        let signed = Lanes::from_fn(|l| (l as i32 - 16).cast_unsigned());
        let float = warp.float_from_signed(signed);
        assert_eq!(float, Lanes::from_fn(|l| l as f32 - 16.0));
        // 2^24 + 1 lies halfway between its neighbours, 2^24 + 3 too.
        let large = warp.float_from_signed(warp.splat((1 << 24) + 1) + (lane & 1) * 2);
        assert_eq!(large, Lanes::from_fn(|l| if l % 2 == 0 { 16_777_216.0 } else { 16_777_220.0 }));
        assert_eq!(warp.float_from_signed(warp.splat(i32::MIN as u32)), warp.splat_f32(-2_147_483_648.0));

        assert_eq!(warp.bits_from_float(warp.splat_f32(-1.5)), warp.splat(0xBFC0_0000));
        assert_eq!(warp.float_from_bits(warp.bits_from_float(float)), float);
        assert_eq!(warp.abs(float), Lanes::from_fn(|l| l.abs_diff(16) as f32));
        assert_eq!(warp.bits_from_float(warp.abs(warp.splat_f32(-0.0))), warp.splat(0));

        // A third, rounded up; subnormal quotients and divisors are not flushed.
        let third = warp.divide(warp.splat_f32(1.0), warp.splat_f32(3.0));
        assert_eq!(warp.bits_from_float(third), warp.splat(0x3EAA_AAAB));
        let least = f32::from_bits(1);
        let quotient = warp.divide(warp.splat_f32(f32::MIN_POSITIVE), warp.splat_f32(8_388_608.0));
        assert_eq!(quotient, warp.splat_f32(least));
        assert_eq!(warp.divide(warp.splat_f32(3.0 * least), warp.splat_f32(least)), warp.splat_f32(3.0));
        assert_eq!(warp.divide(float, warp.splat_f32(0.0)).0[0], f32::NEG_INFINITY);

        let values = [float, warp.splat_f32(2.0), warp.splat_f32(500.0), warp.splat_f32(-0.5)];
        let codes = |first: u8, others: u32| others | u32::from(first);
        let e4m3 = |l: usize| codes(F8E4M3::from_f32(l as f32 - 16.0).to_bits(), 0xB07E_4000);
        assert_eq!(warp.pack_e4m3(values), Lanes::from_fn(e4m3));
        let s8 = |l: usize| codes((l as i8 - 16) as u8, 0x007F_0200);
        assert_eq!(warp.pack_s8(values), Lanes::from_fn(s8));
    });
}

#[test]
fn pairs_of_words_are_stored_where_the_mask_holds() {
    #[repr(align(8))]
    struct Aligned([u8; 256]);
    let mut out = Aligned([0xEE; 256]);
    let buffers = Buffers(vec![Buffer::read_write("out", &mut out.0)]);
    let base = buffers.0[0].address();
    let shape = Launch { grid: 1, warps: 1, ..Launch::default() };
    let counters = launch(&shape, &buffers, |warp| {
        let lane = warp.lane_id();
        let address = warp.mul_wide(lane, 8) + base;
        let mask = warp.less(lane, warp.splat(20));
        // SAFETY: the emulator checks every access.
        unsafe { warp.store_global_x2(address, [lane, lane + 100], mask) };
    });
    assert_eq!(counters.unwrap_or_else(|fault| panic!("{fault}")).global_bytes_written, 20 * 8);
    drop(buffers);
    for (lane, pair) in out.0.chunks(8).enumerate() {
        let want = if lane < 20 { lane as u64 | (lane as u64 + 100) << 32 } else { 0xEEEE_EEEE_EEEE_EEEE };
        assert_eq!(pair, want.to_le_bytes(), "lane {lane}");
    }
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
