//! Every reason to say no, reached once, with the sentence a user reads.

use ffpa::{
    Arch, Arithmetic, BuildInfo, DeviceInfo, Dropout, Dtype, Engine, Error, F8E4M3, ForwardOptions, Fp8,
    InputType, Kernel, Lse, NvFp4, Precision, RawForward, RawScales, RawTensor, Refusal, Scales, TensorMut,
    TensorRef, bf16, f16, ffpa_forward,
};

/// A call with these shapes, contiguous, on zeros.
fn call(
    engine: &Engine,
    q: [usize; 4],
    k: [usize; 4],
    v: [usize; 4],
    options: &ForwardOptions<'_>,
) -> Result<(), Error> {
    let zeros = |shape: [usize; 4]| vec![f16::ZERO; shape.iter().product()];
    let (q_data, k_data, v_data, mut o_data) = (zeros(q), zeros(k), zeros(v), zeros(q));
    ffpa_forward::<f16>(
        engine,
        TensorRef::bhnd(&q_data, q)?,
        TensorRef::bhnd(&k_data, k)?,
        TensorRef::bhnd(&v_data, v)?,
        &mut TensorMut::bhnd(&mut o_data, q)?,
        options,
    )
    .map(drop)
}

fn sentence(q: [usize; 4], k: [usize; 4], v: [usize; 4], options: &ForwardOptions<'_>) -> String {
    let sentences = [Engine::cpu(), Engine::emulator(Arch::Sm89)]
        .map(|engine| call(&engine, q, k, v, options).expect_err("it should be refused").to_string());
    assert_eq!(sentences[0], sentences[1], "both backends refuse alike");
    sentences[0].clone()
}

const FINE: [usize; 4] = [1, 2, 16, 64];

fn none() -> ForwardOptions<'static> {
    ForwardOptions::new()
}

#[test]
fn shapes_that_disagree() {
    let said = sentence(FINE, [2, 2, 16, 64], [2, 2, 16, 64], &none());
    assert_eq!(said, "batch size differs: q has 1, k has 2");
    assert_eq!(
        sentence(FINE, [1, 2, 16, 32], [1, 2, 16, 32], &none()),
        "head dim differs: q has 64, k has 32"
    );
    assert_eq!(sentence(FINE, FINE, [1, 2, 17, 64], &none()), "sequence length differs: k has 16, v has 17");
    assert_eq!(sentence(FINE, FINE, [1, 1, 16, 64], &none()), "number of heads differs: k has 2, v has 1");
}

#[test]
fn outputs_of_another_shape() {
    let (x, mut o) = (vec![f16::ZERO; 2048], vec![f16::ZERO; 4096]);
    let input = TensorRef::bhnd(&x, FINE).expect("it fits");
    let mut out = TensorMut::bhnd(&mut o, [1, 2, 32, 64]).expect("it fits");
    let error = ffpa_forward::<f16>(&Engine::cpu(), input, input, input, &mut out, &none()).unwrap_err();
    assert_eq!(error.to_string(), "sequence length differs: q has 16, out has 32");
}

#[test]
fn log_sum_exps_of_another_length() {
    let (x, mut o, mut lse) = (vec![f16::ZERO; 2048], vec![f16::ZERO; 2048], vec![0.0; 31]);
    let input = TensorRef::bhnd(&x, FINE).expect("it fits");
    let mut out = (TensorMut::bhnd(&mut o, FINE).expect("it fits"), Lse::host(&mut lse));
    let error = ffpa_forward::<f16>(&Engine::cpu(), input, input, input, &mut out, &none()).unwrap_err();
    let said = "the log-sum-exp needs 32 floats (batch x query heads x query rows), the slice has 31";
    assert_eq!(error.to_string(), said);
}

#[test]
fn heads_that_do_not_divide() {
    let said = sentence([1, 5, 16, 64], [1, 2, 16, 64], [1, 2, 16, 64], &none());
    assert_eq!(said, "5 query heads are not a multiple of 2 key/value heads");
    let said = sentence([1, 5, 16, 64], [1, 0, 16, 64], [1, 0, 16, 64], &none());
    assert_eq!(said, "5 query heads are not a multiple of 0 key/value heads");
}

#[test]
fn head_dims() {
    let with = |d| sentence([1, 1, 4, d], [1, 1, 4, d], [1, 1, 4, d], &none());
    let said = "head dim 60 is not a multiple of 8; pad the last dimension with zeros and keep the scale";
    assert_eq!(with(60), said);
    assert_eq!(with(1032), "head dim 1032 is beyond 1024, the largest that any build supports");
    assert!(with(0).starts_with("head dim 0 is not a multiple of 8"));
}

#[test]
fn head_dims_that_were_not_compiled() {
    let mut build = BuildInfo::current();
    build.kernels.retain(|kernel| kernel.head_dim <= 256);
    let mut problem = problem();
    problem.head_dim = 264;
    let error = ffpa::plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), &build).unwrap_err();
    assert_eq!(
        error.to_string(),
        "head dim 264 is above the compiled [64, 128, 192, 256] for f16 on emulated sm_89; rebuild with \
         FFPA_BUILD_HEADDIM including a larger one (`default` has every head dim up to 1024)"
    );
}

#[test]
fn scales_that_are_no_numbers() {
    for (scale, said) in [(f32::NAN, "scale NaN is not finite"), (f32::INFINITY, "scale inf is not finite")] {
        assert_eq!(sentence(FINE, FINE, FINE, &none().with_scale(scale)), said);
    }
}

#[test]
fn families_that_are_not_there() {
    for (precision, name) in
        [(Precision::Fp8(Fp8::default()), "fp8"), (Precision::NvFp4(NvFp4::default()), "nvfp4")]
    {
        let mut problem = problem();
        problem.precision = precision;
        let mut build = BuildInfo::current();
        build.kernels.retain(|kernel| kernel.arithmetic.family() != precision.family());
        let error = ffpa::plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), &build).unwrap_err();
        let want = format!(
            "the {name} family is not available: this build has none of its kernels; rebuild with FFPA_BUILD_EXT \
             and FFPA_BUILD_HEADDIM at their defaults"
        );
        assert_eq!(error.to_string(), want);
    }
}

/// A build without `ENABLE_FFPA_QUANT_SPLIT_D`, whatever this one is.
fn without_split_d() -> BuildInfo {
    let mut build = BuildInfo::current();
    let within = |kernel: &Kernel| kernel.head_dim <= kernel.arithmetic.family().window();
    build.kernels.retain(|kernel| within(kernel));
    build
}

#[test]
fn head_dims_outside_the_quantised_window() {
    let mut problem = problem();
    (problem.head_dim, problem.precision) = (232, Precision::Fp8(Fp8::default()));
    let error = ffpa::plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), &without_split_d()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "head dim 232 is outside the fp8 window: this build has kernels for head dims up to 224; rebuild with \
         ENABLE_FFPA_QUANT_SPLIT_D=1, or compute in 16 bits"
    );
    (problem.head_dim, problem.precision) = (264, Precision::NvFp4(NvFp4::default()));
    let error = ffpa::plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), &without_split_d()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "head dim 264 is outside the nvfp4 window: this build has kernels for head dims up to 256; compute in 16 bits"
    );
}

/// However few rows there are, so that a call is not refused one day that ran on a shorter prompt.
#[test]
fn first_rows_in_sixteen_bits_change_nothing_about_what_is_refused() {
    let mut problem = problem();
    let fp8 = Fp8::default().with_native_rows(problem.q_len);
    (problem.head_dim, problem.precision) = (232, Precision::Fp8(fp8));
    let error = ffpa::plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), &without_split_d()).unwrap_err();
    assert!(error.to_string().starts_with("head dim 232 is outside the fp8 window"), "{error}");

    let mut build = BuildInfo::current();
    build.kernels.retain(|kernel| kernel.arithmetic == Arithmetic::E4m3);
    problem.head_dim = 64;
    let error = ffpa::plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), &build).unwrap_err();
    assert!(error.to_string().ends_with("rows need it, but for a recipe with native_rows 0"), "{error}");
    problem.precision = Precision::Fp8(fp8.with_native_rows(0));
    assert!(ffpa::plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), &build).is_ok());
}

#[test]
fn dropout_in_eight_bits() {
    let dropout = Dropout { rate: 0.5, seed: 1, offset: 0 };
    let options = none().with_precision(Precision::Fp8(Fp8::default())).with_dropout(dropout);
    assert_eq!(
        sentence(FINE, FINE, FINE, &options),
        "the fp8 family is not available: its kernels take no masks or dropout; compute in 16 bits"
    );
}

/// What a call on e4m3 tensors of this shape says, whose scales of Q, K and V are these.
fn eight_bits(shape: [usize; 4], scales: [Option<Scales<'_>>; 3], options: &ForwardOptions<'_>) -> String {
    let data = vec![F8E4M3::ZERO; shape.iter().product()];
    let mut o = vec![f16::ZERO; data.len()];
    let mut call = || {
        let [q, k, v] = scales.map(|scales| {
            let tensor = TensorRef::bhnd(&data, shape)?;
            scales.map_or(Ok(tensor), |scales| tensor.with_scales(scales))
        });
        ffpa_forward(&Engine::cpu(), q?, k?, v?, &mut TensorMut::bhnd(&mut o, shape)?, options)
    };
    call().expect_err("it should be refused").to_string()
}

#[test]
fn tensors_in_eight_bits() {
    let one = Some(Scales::per_tensor(&1.0));
    let few = [1.0; 2];
    assert_eq!(
        eight_bits(FINE, [one, None, one], &none()),
        "k is f8e4m3 and has no scales; give it some by TensorRef::with_scales, for instance one of 1 per tensor"
    );
    let long = [1, 2, 100, 64];
    assert_eq!(
        eight_bits(long, [one, one, Some(Scales::per_block(&few, 64))], &none()),
        "a tensor of [1, 2, 100, 64] with a scale for each 64 rows needs 4 scales, the slice has 2"
    );
    let enough = [1.0; 8];
    assert_eq!(
        eight_bits(long, [one, Some(Scales::per_block(&enough, 32)), one], &none()),
        "k has a scale for each 32 rows; that must be a multiple of 64, or all 100 rows"
    );
    assert_eq!(
        eight_bits([1, 2, 16, 72], [one; 3], &none()),
        "head dim 72 is not a multiple of 16; pad the last dimension with zeros and keep the scale"
    );
    for recipe in [Fp8::default(), Fp8::default().with_rotation(true)] {
        assert_eq!(
            eight_bits(FINE, [one; 3], &none().with_precision(Precision::Fp8(recipe))),
            "tensors of f8e4m3 are multiplied as they are: leave the precision at its default"
        );
    }
}

/// A raw call on contiguous tensors of a shape, at some address.
fn raw(input: InputType, output: Dtype, shape: [usize; 4]) -> RawForward {
    let [_, heads, rows, d] = shape;
    let tensor = RawTensor { address: 4096, shape, strides: [heads * rows * d, rows * d, d] };
    RawForward {
        input,
        output,
        q: tensor,
        k: tensor,
        v: tensor,
        out: tensor,
        scales: [None; 3],
        lse: 0,
        stream: std::ptr::null_mut(),
        workspace: 0,
    }
}

#[test]
fn raw_calls() {
    let said = |call: &RawForward| match call.plan(&Engine::cpu(), &none()) {
        Ok(plan) => panic!("planned: {plan}"),
        Err(error) => error.to_string(),
    };
    let f16_to_bf16 = raw(InputType::Sixteen(Dtype::F16), Dtype::Bf16, FINE);
    assert_eq!(said(&f16_to_bf16), "inputs of f16 have outputs of the same type, not bf16");
    let mut scaled = raw(InputType::Sixteen(Dtype::F16), Dtype::F16, FINE);
    scaled.scales[2] = Some(RawScales { address: 4096, strides: [0; 3], rows: 16 });
    assert_eq!(said(&scaled), "v is f16 and has scales: only f8e4m3 tensors have");
    let mut shifted = raw(InputType::Sixteen(Dtype::F16), Dtype::F16, FINE);
    shifted.workspace = 100;
    assert!(matches!(
        shifted.plan(&Engine::cpu(), &none()),
        Err(Error::Refused(Refusal::Misaligned { tensor: "the workspace", bytes: 100, .. }))
    ));
}

#[test]
fn raw_calls_say_what_workspace_they_want() {
    let mut call = raw(InputType::Sixteen(Dtype::Bf16), Dtype::Bf16, [1, 2, 100, 64]);
    let engine = Engine::cpu();
    assert_eq!(call.plan(&engine, &none()).expect("it is planned").workspace_bytes, 0);
    let fp8 = none().with_precision(Precision::Fp8(Fp8::default()));
    // At least the bytes of Q, K and V.
    assert!(call.plan(&engine, &fp8).expect("it is planned").workspace_bytes >= 3 * 2 * 100 * 64);
    call.workspace = 4096;
    assert!(call.plan(&engine, &fp8).is_ok());
}

#[test]
fn devices_that_are_too_old() {
    let mut device = DeviceInfo::of_arch(Arch::Sm89);
    device.compute_capability = (8, 6);
    device.name = "an A10".into();
    let problem = problem();
    let error = ffpa::plan(&problem, &device, &BuildInfo::current()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "an A10 has compute capability 8.6; the kernels need 8.9 or newer (compiled: sm_89, sm_90a, sm_120f)"
    );
}

#[test]
fn grids_that_are_too_large() {
    let mut problem = problem();
    problem.batch = 1 << 31;
    let error = ffpa::plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), &BuildInfo::current()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "4294967296 query tiles (batch x heads x tiles of 16 rows) exceed a grid's 2147483647; split the batch"
    );
}

/// Batch 1, two heads, 16 rows, head dim 64.
fn problem() -> ffpa::Problem {
    ffpa::Problem::contiguous(ffpa::Dtype::F16, [1, 2, 2, 16, 16, 64])
}

#[test]
fn addresses_and_strides_that_copies_cannot_start_from() {
    let x = vec![bf16::ZERO; 4096];
    let aligned = x.as_ptr().align_offset(16);
    let run = |engine: &Engine, offset: usize, row: usize| {
        let mut o = vec![bf16::ZERO; 16 * 64];
        let shape = [1, 1, 16, 64];
        let q = TensorRef::strided(&x[aligned + offset..], shape, [0, 0, row])?;
        let k = TensorRef::strided(&x[aligned..], shape, [0, 0, 64])?;
        let mut out = TensorMut::bhnd(&mut o, shape)?;
        ffpa_forward::<bf16>(engine, q, k, k, &mut out, &ForwardOptions::new()).map(drop)
    };
    let emulator = Engine::emulator(Arch::Sm89);
    let mend = "which GPU kernels need; copy it to an aligned tensor, or use the cpu backend";
    assert_eq!(
        run(&emulator, 1, 64).unwrap_err().to_string(),
        format!("the address of q is 2, not a multiple of 16 bytes, {mend}")
    );
    assert_eq!(
        run(&emulator, 0, 65).unwrap_err().to_string(),
        format!("the row stride of q is 130, not a multiple of 16 bytes, {mend}")
    );
    assert_eq!(run(&Engine::cpu(), 1, 65), Ok(()));
}

#[test]
fn rows_that_lie_too_far_apart() {
    // One row is never stepped along, so its stride means nothing; two rows reach beyond any slice: refused as too short.
    let x = vec![f16::ZERO; 64];
    assert!(TensorRef::strided(&x, [1, 1, 1, 64], [0, 0, 1 << 40]).is_ok());
    let error = TensorRef::strided(&x, [1, 1, 2, 64], [0, 0, 1 << 31]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "[1, 1, 2, 64] with strides [0, 0, 2147483648] needs 2147483712 elements, the slice has 64"
    );
    // In device memory nothing is known of sizes.
    // SAFETY: the call is refused before the address is used.
    let far = unsafe { TensorRef::<f16>::device(4096, [1, 1, 2, 64], [0, 0, 1 << 31]) };
    // SAFETY: as above.
    let mut out = unsafe { TensorMut::<f16>::device(4096, [1, 1, 2, 64], [0, 0, 64]) };
    let error = ffpa_forward::<f16>(&Engine::cpu(), far, far, far, &mut out, &none()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rows of q lie 4294967296 bytes apart, the limit is 4294967295; copy it to a denser layout"
    );
}

#[test]
fn tensors_in_different_memory() {
    let x = vec![f16::ZERO; 128];
    let host = TensorRef::bhnd(&x, [1, 1, 2, 64]).expect("it fits");
    // SAFETY: the call is refused before the address is used.
    let device = unsafe { TensorRef::<f16>::device(4096, [1, 1, 2, 64], [0, 0, 64]) };
    // SAFETY: as above.
    let mut out = unsafe { TensorMut::<f16>::device(4096, [1, 1, 2, 64], [0, 0, 64]) };
    let error = ffpa_forward::<f16>(&Engine::cpu(), device, host, device, &mut out, &none()).unwrap_err();
    assert_eq!(error.to_string(), "q lies in device memory and k in host memory; put all in one");
    let error = ffpa_forward::<f16>(&Engine::cpu(), device, device, device, &mut out, &none()).unwrap_err();
    assert_eq!(error.to_string(), "the cpu backend works on host memory, the tensors lie in device memory");
}

/// Empty tensors need no memory, and what is asked of them runs.
#[test]
fn empty_tensors_are_served() {
    for engine in [Engine::cpu(), Engine::emulator(Arch::Sm89)] {
        assert_eq!(call(&engine, [2, 4, 3, 64], [2, 2, 0, 64], [2, 2, 0, 64], &none()), Ok(()));
        assert_eq!(call(&engine, [2, 4, 0, 64], [2, 2, 5, 64], [2, 2, 5, 64], &none()), Ok(()));
        assert_eq!(call(&engine, [0, 4, 3, 64], [0, 2, 5, 64], [0, 2, 5, 64], &none()), Ok(()));
        assert_eq!(call(&engine, [2, 0, 3, 64], [2, 2, 5, 64], [2, 2, 5, 64], &none()), Ok(()));
    }
}

#[test]
fn sizes_beyond_all_memory_do_not_wrap() {
    let mut problem = problem();
    (problem.batch, problem.q_heads) = (1 << 40, 1 << 40);
    let error = ffpa::plan(&problem, &DeviceInfo::of_arch(Arch::Sm89), &BuildInfo::current()).unwrap_err();
    assert!(matches!(error, Error::Refused(ffpa::Refusal::GridTooLarge { .. })), "{error}");
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_build_without_cuda() {
    let error = Engine::cuda(0).unwrap_err();
    let said = "the cuda backend is not available: device 0 needs a build with --features cuda";
    assert_eq!(error.to_string(), said);
}

/// On a machine without a driver the binary starts, and the answer is an error value.
#[cfg(feature = "cuda")]
#[test]
fn a_machine_without_a_driver() {
    match Engine::cuda(0) {
        Ok(engine) => assert_eq!(engine.backend(), ffpa::BackendKind::Cuda),
        Err(error) => {
            let said = "the cuda backend is not available: no CUDA driver, or no device, on this machine";
            assert_eq!(error.to_string(), said);
            assert_eq!(Engine::auto().backend(), ffpa::BackendKind::Cpu);
        }
    }
}
