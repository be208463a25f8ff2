//! The kernels' arithmetic of NVFP4, emulated: the bits of the host's, and exact products.

use ffpa::emulator::{Buffers, Emu, Lanes, Launch, launch};
use ffpa::f16;
use ffpa::nvfp4::{E2m1x2, quantize};
use ffpa_kernels_gpu::format::nvfp4::{
    Additions, DECODED_UNIT, Instruction, Rounding, codes, decode, numbers, scaled, scales,
};
use microfloat::{f4e2m1fn, f8e4m3fn};
use proptest::prelude::*;

use cuda_std::Warp;

fn run(kernel: impl Fn(Emu<'_>) + Sync) {
    let shape = Launch { grid: 1, warps: 1, ..Launch::default() };
    launch(&shape, &Buffers(Vec::new()), kernel).unwrap_or_else(|fault| panic!("{fault}"));
}

#[test]
fn both_roundings_give_the_nearest_even() {
    // Every upper half of a float, with what may lie below it.
    let floats: Vec<f32> = (0..=u16::MAX)
        .flat_map(|high| [0, 1, 0x8000, 0xFFFF].map(|low| f32::from_bits(u32::from(high) << 16 | low)))
        .collect();
    run(|warp| {
        for floats in floats.as_chunks::<256>().0 {
            let values: [_; 8] = std::array::from_fn(|i| Lanes::from_fn(|lane| floats[8 * lane + i]));
            let by_instruction = Instruction::pack(warp, values);
            assert_eq!(Additions::pack(warp, values), by_instruction);
            for (i, &x) in floats.iter().enumerate() {
                // NaN, which e2m1 has not, is 6.
                let want = if x.is_nan() { 7 } else { f4e2m1fn::from_f32(x).to_bits() };
                let got = by_instruction.0[i / 8] >> (4 * (i % 8)) & 15;
                assert_eq!(got, u32::from(want), "{x:e}");
            }
        }
    });
}

/// Four blocks of each lane: codes and scales, as kernels make them and as the host does.
fn assert_alike<R: Rounding>(warp: Emu<'_>, values: &[f32]) {
    let value = |i: usize| Lanes::from_fn(|lane| values[64 * lane + i]);
    let largest = std::array::from_fn(|block| {
        (0..16).fold(warp.splat_f32(0.0), |largest, i| warp.max(largest, warp.abs(value(16 * block + i))))
    });
    let scales = scales(warp, largest);
    let divisors = numbers(warp, scales);
    let (want_pairs, want_scales) = quantize(values, 1.0).expect("whole blocks");
    let want_scales: &[[u8; 4]] = bytemuck::cast_slice(&want_scales);
    assert_eq!(scales.0.map(u32::to_le_bytes), *want_scales);
    for word in 0..8 {
        let eight = std::array::from_fn(|i| value(8 * word + i));
        let got = codes::<R, _>(warp, eight, divisors[word / 2]);
        for lane in 0..32 {
            let at = 32 * lane + 4 * word;
            let want: [E2m1x2; 4] = std::array::from_fn(|i| want_pairs[at + i]);
            assert_eq!(got.0[lane].to_le_bytes(), want.map(E2m1x2::to_bits), "lane {lane}, word {word}");
        }
    }
}

#[test]
fn extreme_blocks_are_quantised_as_on_the_host() {
    let extremes = [0.0, -0.0, 1e-45, f32::MIN_POSITIVE, 6.0 / 1024.0, 2688.0, 1e30, f32::INFINITY, f32::NAN];
    let values: Vec<f32> = (0..2048)
        .map(|i| if i % 16 == i / 16 % 16 { extremes[i / 16 % 9] } else { extremes[i / 144 % 9] })
        .collect();
    run(|warp| {
        assert_alike::<Instruction>(warp, &values);
        assert_alike::<Additions>(warp, &values);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn blocks_are_quantised_as_on_the_host(
        blocks in prop::collection::vec((prop::array::uniform16(-1.0_f32..1.0), -20_i32..20), 128),
    ) {
        let values: Vec<f32> =
            blocks.iter().flat_map(|(block, exponent)| block.map(|x| x * 2_f32.powi(*exponent))).collect();
        run(|warp| {
            assert_alike::<Instruction>(warp, &values);
            assert_alike::<Additions>(warp, &values);
        });
    }
}

#[test]
fn decoded_products_are_exact() {
    let number = |code: usize| f64::from(f4e2m1fn::from_bits(code as u8).to_f32());
    let half =
        |pair: Lanes<u32>, lane: usize, upper: usize| f16::from_bits((pair.0[lane] >> (16 * upper)) as u16);
    run(|warp| {
        // The codes from a lane's index on.
        let codes =
            Lanes::from_fn(|lane| (0..8).fold(0, |word, i| word | ((lane + i) as u32 % 16) << (4 * i)));
        let code = |lane: usize, i: usize| (lane + i) % 16;
        let unit = warp.splat(u32::from(f16::from_f32(DECODED_UNIT).to_bits()) * 0x1_0001);
        let decoded = decode(warp, codes);
        for scale in 0..0x7F {
            let [pair, _] = warp.unpack_e4m3(warp.splat(u32::from(scale) * 0x0101));
            let of_scale = f64::from(f8e4m3fn::from_bits(scale).to_f32());
            let products = scaled(warp, codes, pair);
            for (i, (lane, upper)) in
                (0..4).flat_map(|i| (0..32).flat_map(move |lane| [(i, (lane, 0)), (i, (lane, 1))]))
            {
                let number = number(code(lane, i + 4 * upper));
                let unit_of_one = 1.0 / f64::from(DECODED_UNIT);
                // Signs of zeros too.
                let want = (number * unit_of_one).to_bits();
                assert_eq!(half(decoded[i], lane, upper).to_f64().to_bits(), want, "{number}");
                let want = (number * of_scale * unit_of_one).to_bits();
                assert_eq!(half(products[i], lane, upper).to_f64().to_bits(), want, "{number} {of_scale}");
                // In units of one they are f16 as well, to the largest of all, 2688.
                let whole = warp.mul_f16x2(warp.mul_f16x2(decoded[i], unit), pair);
                let want = (number * of_scale).to_bits();
                assert_eq!(half(whole, lane, upper).to_f64().to_bits(), want, "{number} {of_scale}");
            }
        }
    });
}
