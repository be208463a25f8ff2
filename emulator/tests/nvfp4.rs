//! Operations on e2m1 with scales in ue4m3 (NVFP4), against definitions written out here.

use cuda_std::Warp;
use ffpa_emulator::{Buffers, Counters, Emu, Lanes, Launch, launch};
use half::f16;
use microfloat::{f4e2m1fn, f8e4m3fn};

fn run(kernel: impl Fn(Emu<'_>) + Sync) -> Counters {
    let shape = Launch { grid: 1, warps: 1, ..Launch::default() };
    launch(&shape, &Buffers(Vec::new()), kernel).unwrap_or_else(|fault| panic!("{fault}"))
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

    /// Words without order.
    fn words<const N: usize>(&mut self) -> [Lanes<u32>; N] {
        std::array::from_fn(|_| Lanes::from_fn(|_| self.word()))
    }

    /// Words of scales: non-negative, and no NaN.
    fn scales(&mut self) -> Lanes<u32> {
        Lanes::from_fn(|_| u32::from_le_bytes(std::array::from_fn(|_| (self.word() % 0x7F) as u8)))
    }
}

/// The number of an e2m1 code, times two.
fn halves(code: u32) -> i128 {
    i128::from((f4e2m1fn::from_bits(code as u8 & 15).to_f32() * 2.0) as i8)
}

/// The number of an e4m3 code, times 512.
fn scale(word: u32, byte: usize) -> i128 {
    (f8e4m3fn::from_bits(word.to_le_bytes()[byte]).to_f32() * 512.0) as i128
}

/// `d + a b`, element by element, by the tables of the PTX ISA: "Matrix fragments for mma.m16n8k64", "Block scaling for mma.sync".
fn reference(
    d: &[Lanes<f32>; 4],
    a: [Lanes<u32>; 4],
    b: [Lanes<u32>; 2],
    (scale_a, scale_b): (Lanes<u32>, Lanes<u32>),
    (id_a, id_b): (usize, usize),
) -> [Lanes<f32>; 4] {
    // Products are multiples of 2^-20, the accumulators here of 2^-60.
    const UNIT: f32 = f32::from_bits((127 - 60) << 23);
    let element = |row: usize, column: usize| {
        let products: i128 = (0..64)
            .map(|k| {
                let lane = |group: usize| 4 * group + k % 32 / 8;
                let a = a[row / 8 + 2 * (k / 32)].0[lane(row % 8)] >> (4 * (k % 8));
                let b = b[k / 32].0[lane(column)] >> (4 * (k % 8));
                let of_a = scale(scale_a.0[4 * (row % 8) + 2 * id_a + row / 8], k / 16);
                let of_b = scale(scale_b.0[4 * column + id_b], k / 16);
                halves(a) * of_a * halves(b) * of_b
            })
            .sum();
        products << 40
    };
    std::array::from_fn(|register| {
        Lanes::from_fn(|lane| {
            let (row, column) = (lane / 4 + 8 * (register / 2), 2 * (lane % 4) + register % 2);
            let before = (f64::from(d[register].0[lane]) / f64::from(UNIT)) as i128;
            (before + element(row, column)) as f32 * UNIT
        })
    })
}

#[test]
fn block_scaled_sums_are_exact_and_rounded_once() {
    fn check<const ID_A: u32, const ID_B: u32>(warp: Emu<'_>, noise: &mut Noise) {
        let (a, b, scales) = (noise.words(), noise.words(), (noise.scales(), noise.scales()));
        // Of any sign, from 2^-36 to 2^39.
        let mut accumulator = |_| {
            let (bits, exponent) = (noise.word(), noise.word() % 76);
            f32::from_bits(bits & 0x807F_FFFF | (127 - 36 + exponent) << 23)
        };
        let before: [_; 4] = std::array::from_fn(|_| Lanes::from_fn(&mut accumulator));
        let mut after = before;
        warp.mma_m16n8k64_nvf4::<ID_A, ID_B>(&mut after, a, b, scales.0, scales.1);
        let want = reference(&before, a, b, scales, (ID_A as usize, ID_B as usize));
        assert_eq!(after, want, "thread ids {ID_A}, {ID_B}");
    }
    let counters = run(|warp| {
        let mut noise = Noise(4);
        for _ in 0..40 {
            check::<0, 0>(warp, &mut noise);
            check::<0, 1>(warp, &mut noise);
            check::<0, 2>(warp, &mut noise);
            check::<0, 3>(warp, &mut noise);
            check::<1, 0>(warp, &mut noise);
            check::<1, 1>(warp, &mut noise);
            check::<1, 2>(warp, &mut noise);
            check::<1, 3>(warp, &mut noise);
        }
    });
    assert_eq!((counters.mma, counters.mma_flops), (320, 320 * 2 * 16 * 8 * 64));
}

#[test]
fn lanes_that_a_thread_id_leaves_out_do_not_matter() {
    run(|warp| {
        let mut noise = Noise(5);
        let (a, b, scale_a, scale_b) = (noise.words(), noise.words(), noise.scales(), noise.scales());
        let product = |scale_a, scale_b| {
            let mut d = [warp.splat_f32(1.0); 4];
            warp.mma_m16n8k64_nvf4::<1, 2>(&mut d, a, b, scale_a, scale_b);
            d
        };
        // NaN where nothing is read changes nothing; where something is, all of its row or column.
        let spoiled = |scales: Lanes<u32>, at: fn(usize) -> bool| {
            Lanes::from_fn(|lane| if at(lane) { 0x7F7F_7F7F } else { scales.0[lane] })
        };
        let want = product(scale_a, scale_b);
        assert_eq!(product(spoiled(scale_a, |l| l % 4 < 2), spoiled(scale_b, |l| l % 4 != 2)), want);
        let row = product(spoiled(scale_a, |l| l == 4 * 3 + 2 + 1), scale_b);
        for (register, lane) in (0..4).flat_map(|register| (0..32).map(move |lane| (register, lane))) {
            // Row 11 of A.
            let got = row[register].0[lane];
            assert_eq!(got.is_nan(), register / 2 == 1 && lane / 4 == 3, "register {register}, lane {lane}");
        }
        // The bit of the sign is none of a scale's.
        let signed = product(scale_a, scale_b.map(|word| word | 0x80));
        assert!(signed.iter().all(|d| d.0.iter().all(|x| x.is_nan())));
    });
}

#[test]
fn floats_become_e2m1() {
    run(|warp| {
        let mut noise = Noise(6);
        for _ in 0..1000 {
            // Of any sign, from 2^-6 to 2^4, with ties.
            let values: [_; 8] = std::array::from_fn(|_| {
                Lanes::from_fn(|_| {
                    let (bits, exponent) = (noise.word(), noise.word() % 10);
                    let kept = if bits & 1 == 0 { 0x8070_0000 } else { 0x807F_FFFF };
                    f32::from_bits(bits & kept | (127 - 6 + exponent) << 23)
                })
            });
            let got = warp.pack_e2m1(values);
            for lane in 0..32 {
                for (i, value) in values.iter().enumerate() {
                    let x = value.0[lane];
                    let want = u32::from(f4e2m1fn::from_f32(x).to_bits());
                    assert_eq!(got.0[lane] >> (4 * i) & 15, want, "{x}");
                }
            }
        }
        let [nan, infinity, zero] = [f32::NAN, f32::INFINITY, 0.0].map(|x| warp.splat_f32(x));
        let values = [nan, -nan, infinity, -infinity, zero, -zero, infinity, nan];
        assert_eq!(warp.pack_e2m1(values), warp.splat(0x7780_F777));
    });
}

#[test]
fn e4m3_become_f16() {
    run(|warp| {
        for code in 0..=u8::MAX {
            let word = warp.splat(u32::from_le_bytes([code, 0x38, 0x7E, code]));
            let want = match f8e4m3fn::from_bits(code).to_f32() {
                x if x.is_nan() => 0x7FFF,
                x => u32::from(f16::from_f32(x).to_bits()),
            };
            // 1 and 448.
            assert_eq!(
                warp.unpack_e4m3(word),
                [want | 0x3C00 << 16, 0x5F00 | want << 16].map(|x| warp.splat(x))
            );
        }
    });
}

#[test]
fn products_of_pairs_of_f16_are_rounded_once() {
    /// The f16 nearest to a number, by search among all; of two the one with the even code.
    fn nearest(x: f64) -> u16 {
        // Halfway between the largest number and what would follow it.
        let magnitude = x.abs();
        let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
        if magnitude >= 65520.0 {
            return sign | 0x7C00;
        }
        let value = |code: u16| f16::from_bits(code).to_f64();
        let above =
            (0..0x7C00_u16).collect::<Vec<_>>().partition_point(|&code| value(code) <= magnitude) as u16;
        let (low, high) = (above - 1, above);
        if high == 0x7C00 {
            return sign | low;
        }
        let (down, up) = (magnitude - value(low), value(high) - magnitude);
        sign | if down < up || (down == up && low % 2 == 0) { low } else { high }
    }
    run(|warp| {
        let mut noise = Noise(7);
        for _ in 0..20 {
            let [a, b] = noise.words();
            let got = warp.mul_f16x2(a, b);
            for (lane, shift) in (0..32).flat_map(|lane| [(lane, 0), (lane, 16)]) {
                let [a, b] = [a, b].map(|pair| f16::from_bits((pair.0[lane] >> shift) as u16));
                let product = a.to_f64() * b.to_f64();
                let want = if product.is_nan() { 0x7FFF } else { nearest(product) };
                assert_eq!((got.0[lane] >> shift) as u16, want, "{a} times {b}");
            }
        }
        // Subnormal, halfway to it (to even: zero), halfway above it (to even: two), and beyond the largest.
        for (a, b, want) in [
            (0x0400, 0x3800, 0x0200),
            (0x0001, 0x3800, 0),
            (0x0003, 0x3800, 0x0002),
            (0x7BFF, 0xC000, 0xFC00),
        ] {
            let got = warp.mul_f16x2(warp.splat(a | 0x3C00 << 16), warp.splat(b | 0x4000 << 16));
            assert_eq!(got, warp.splat(want | 0x4000 << 16), "{a:#x} times {b:#x}");
        }
    });
}
