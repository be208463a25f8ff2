//! NVFP4 in memory, against implementations of e2m1 and e4m3 that share no code with the library's.

use ffpa::nvfp4::{BLOCK, E2m1x2, Ue4m3, dequantize, quantize};
use microfloat::{f4e2m1fn, f8e4m3fn};
use proptest::prelude::*;

/// The numbers of all codes, a block of them.
fn all_numbers() -> [f32; 16] {
    std::array::from_fn(|code| f4e2m1fn::from_bits(code as u8).to_f32())
}

/// The bits of the nearest e4m3, of what is not negative.
fn nearest_scale(x: f32) -> u8 {
    f8e4m3fn::from_f32(x.min(448.0)).to_bits()
}

/// Codes and scales by the definition, with the other implementation's roundings.
fn reference(values: &[f32], tensor_scale: f32) -> (Vec<u8>, Vec<u8>) {
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for block in values.chunks(16) {
        let largest = block.iter().map(|x| (x / tensor_scale).abs()).fold(0.0, f32::max);
        let scale = nearest_scale(largest / 6.0);
        let divisor = f8e4m3fn::from_bits(scale).to_f32();
        for x in block {
            let quotient = x / tensor_scale / divisor;
            codes.push(if scale == 0 { 0 } else { f4e2m1fn::from_f32(quotient).to_bits() });
        }
        scales.push(scale);
    }
    (codes, scales)
}

fn codes(pairs: &[E2m1x2]) -> Vec<u8> {
    pairs.iter().flat_map(|pair| [pair.to_bits() & 15, pair.to_bits() >> 4]).collect()
}

fn bits(scales: &[Ue4m3]) -> &[u8] {
    bytemuck::cast_slice(scales)
}

#[test]
fn codes_decode_to_what_the_formats_say() {
    for bits in 0..=u8::MAX {
        let [first, second] = E2m1x2::from_bits(bits).to_f32();
        let want = |code| f4e2m1fn::from_bits(code).to_f32().to_bits();
        assert_eq!((first.to_bits(), second.to_bits()), (want(bits & 15), want(bits >> 4)), "{bits:#x}");
        assert_eq!(E2m1x2::from_f32([first, second]).to_bits(), bits);
    }
    for code in 0..0x7F {
        let scale = Ue4m3::from_bits(code);
        assert_eq!(scale.to_f32().to_bits(), f8e4m3fn::from_bits(code).to_f32().to_bits(), "{code:#x}");
        assert_eq!(Ue4m3::from_f32(scale.to_f32()), scale);
    }
    assert!((0x7F..=u8::MAX).all(|code| Ue4m3::from_bits(code).to_f32().is_nan()));
}

#[test]
fn rounding_is_to_the_nearest_even() {
    let mut samples = vec![0.0, 1e-45, 6.0, 6.5, 7.0, 1e9, f32::INFINITY];
    for pair in all_numbers()[..8].windows(2) {
        let tie = (pair[0] + pair[1]) / 2.0;
        samples.extend([tie, tie.next_up(), tie.next_down()]);
    }
    for x in samples {
        let want = f4e2m1fn::from_f32(x).to_bits();
        assert_eq!(E2m1x2::from_f32([x, -x]).to_bits(), want | (want | 8) << 4, "{x}");
    }
    assert_eq!(E2m1x2::from_f32([f32::NAN, -f32::NAN]).to_bits(), 0x77);

    let mut samples = vec![0.0, 1e-45, 449.0, 464.0, 465.0, 1e9, f32::INFINITY];
    for code in 0..0x7E {
        let [low, high] = [code, code + 1].map(|code| f8e4m3fn::from_bits(code).to_f32());
        let tie = (low + high) / 2.0;
        samples.extend([tie, tie.next_up(), tie.next_down()]);
    }
    for x in samples {
        assert_eq!(Ue4m3::from_f32(x).to_bits(), nearest_scale(x), "{x}");
        assert_eq!(Ue4m3::from_f32(-x).to_bits(), 0, "{x}");
    }
    assert_eq!(Ue4m3::from_f32(-f32::NAN).to_bits(), 0x7F);
}

#[test]
fn every_number_with_every_scale_comes_back() {
    // A block with all codes has a 6, so that its scale is found again, the subnormal ones included.
    for code in 1..0x7F {
        let scale = f8e4m3fn::from_bits(code).to_f32();
        for tensor_scale in [1.0, 0.125, 64.0] {
            let values = all_numbers().map(|x| x * scale * tensor_scale);
            let (pairs, scales) = quantize(&values, tensor_scale).expect("a block");
            assert_eq!(bits(&scales), [code]);
            assert_eq!(codes(&pairs), (0..16).collect::<Vec<u8>>(), "scale {scale}");
            let back = dequantize(&pairs, &scales, tensor_scale).expect("a block");
            let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&back), bits(&values), "scale {scale}");
        }
    }
}

#[test]
fn blocks_are_scaled_by_themselves() {
    let block =
        |first: f32, others: f32| std::array::from_fn::<_, 16, _>(|i| if i == 3 { first } else { others });
    let largest_beyond = 7.0 * 448.0;
    let blocks: [([f32; 16], u8, u8, u8); 8] = [
        // Values, the scale's code, the code of the fourth value and of the others.
        (block(0.0, -0.0), 0, 0, 0),
        // Halfway between no scale and the least, 2^-9; and beyond.
        (block(6.0 / 1024.0, -1e-3), 0, 0, 0),
        (block(-f32::next_up(6.0 / 1024.0), 1e-9), 1, 8 | 5, 0),
        // Zeros keep their signs in the quotients.
        (block(6.0, -0.0), 0x38, 7, 8),
        // The scale 1.0625, rounded to 1; of 1.1875, to 1.25.
        (block(6.375, 2.5), 0x38, 7, 4),
        (block(7.125, 2.5), 0x3A, 7, 4),
        // Beyond the largest scale and number.
        (block(largest_beyond, -448.0), 0x7E, 7, 8 | 2),
        (block(f32::INFINITY, f32::NEG_INFINITY), 0x7E, 7, 15),
    ];
    let values: Vec<f32> = blocks.iter().flat_map(|(values, ..)| *values).collect();
    let (pairs, scales) = quantize(&values, 1.0).expect("whole blocks");
    assert_eq!((pairs.len(), scales.len()), (64, 8));
    for (i, (_, scale, first, others)) in blocks.into_iter().enumerate() {
        assert_eq!(scales[i].to_bits(), scale, "block {i}");
        let want = block(f32::from(first), f32::from(others)).map(|code| code as u8);
        assert_eq!(codes(&pairs[8 * i..8 * (i + 1)]), want, "block {i}");
    }
}

#[test]
fn nan_becomes_the_largest_of_its_block() {
    let mut values = [0.5; 16];
    values[1] = -12.0;
    values[15] = f32::NAN;
    let (pairs, scales) = quantize(&values, 1.0).expect("a block");
    let back = dequantize(&pairs, &scales, 1.0).expect("a block");
    assert_eq!((back[0], back[1], back[15]), (0.0, -12.0, 12.0));
    assert_eq!(bits(&quantize(&[f32::NAN; 16], 1.0).expect("a block").1), [0]);
}

#[test]
fn what_is_no_whole_number_of_blocks_is_refused() {
    let said =
        |values: usize, scale: f32| quantize(&vec![1.0; values], scale).expect_err("refused").to_string();
    assert_eq!(
        said(24, 1.0),
        "24 numbers are not a multiple of 16, which share a scale; pad each row with zeros"
    );
    for (scale, name) in [(0.0, "0"), (-1.0, "-1"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let want = format!(
            "a tensor's scale is {name}; it must be positive and finite, and is 1 where none is wanted"
        );
        assert_eq!(said(16, scale), want);
        assert_eq!(dequantize(&[], &[], scale).expect_err("refused").to_string(), want);
    }
    let said = |pairs: usize, scales: usize| {
        let (pairs, scales) = (vec![E2m1x2::default(); pairs], vec![Ue4m3::default(); scales]);
        dequantize(&pairs, &scales, 1.0).map_err(|refusal| refusal.to_string())
    };
    assert_eq!(said(16, 1), Err("32 numbers need 2 scales, one for each 16; there are 1".into()));
    assert_eq!(said(16, 3), Err("32 numbers need 2 scales, one for each 16; there are 3".into()));
    assert_eq!(
        said(4, 1),
        Err("8 numbers are not a multiple of 16, which share a scale; pad each row with zeros".into())
    );
    assert_eq!(said(16, 2), Ok(vec![0.0; 32]));
    assert_eq!(quantize(&[], 1.0), Ok((vec![], vec![])));
}

#[test]
fn arrays_are_bytes() {
    let bytes = [0x21_u8, 0x43, 0x65, 0x87, 0xA9, 0xCB, 0xED, 0x0F];
    let pairs: &[E2m1x2] = bytemuck::cast_slice(&bytes);
    let back = dequantize(pairs, bytemuck::cast_slice(&[0x40_u8]), 0.5).expect("a block");
    // The scale 2, halved by the tensor's.
    let numbers = all_numbers();
    assert_eq!(back, [&numbers[1..], &numbers[..1]].concat());
}

proptest! {
    #[test]
    fn any_block_is_quantised_by_the_definition(
        blocks in prop::collection::vec((prop::array::uniform16(-1.0_f32..1.0), -20_i32..20), 1..8),
        tensor_scale in prop_oneof![Just(1.0_f32), 1e-3_f32..1e3],
    ) {
        let values: Vec<f32> =
            blocks.iter().flat_map(|(block, exponent)| block.map(|x| x * 2_f32.powi(*exponent))).collect();
        let (pairs, scales) = quantize(&values, tensor_scale).expect("whole blocks");
        let want = reference(&values, tensor_scale);
        prop_assert_eq!((codes(&pairs), bits(&scales).to_vec()), want);

        let back = dequantize(&pairs, &scales, tensor_scale).expect("whole blocks");
        for (i, (x, y)) in values.iter().zip(&back).enumerate() {
            let scale = f64::from(f8e4m3fn::from_bits(scales[i / BLOCK].to_bits()).to_f32());
            let number = f64::from(f4e2m1fn::from_bits(codes(&pairs)[i]).to_f32());
            prop_assert_eq!(*y, (number * scale) as f32 * tensor_scale);
            // Half of the gap between 4 and 6 is 1; a scale may be rounded down by a 16th of 6, and is not above 448.
            let x = f64::from(*x) / f64::from(tensor_scale);
            if x.abs() < 2688.0 && scale >= 2_f64.powi(-6) {
                prop_assert!((x - number * scale).abs() <= scale * (1.0 + 1e-6), "{} {}", x, number * scale);
            }
        }
    }
}
