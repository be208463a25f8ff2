//! The example's command line: what it prints, what it writes, and how it fails.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

/// The example beside this test's own executable.
fn example() -> PathBuf {
    let exe = std::env::current_exe().expect("a path");
    let profile = exe.ancestors().nth(2).expect("target/<profile>/deps");
    let path = profile.join("examples/forward");
    assert!(path.exists(), "{} is built by `cargo test`", path.display());
    path
}

fn forward(arguments: &[&str]) -> Output {
    Command::new(example()).args(arguments).output().expect("it starts")
}

fn succeeds(arguments: &[&str]) -> String {
    let output = forward(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The one line that a failure says.
fn fails(arguments: &[&str]) -> String {
    let output = forward(arguments);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty());
    assert_eq!(said.lines().count(), 1, "{said}");
    said.strip_prefix("error: ").expect("it says error").trim().to_string()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    /// A file of f32 tensors of these shapes.
    fn file(&self, name: &str, tensors: &[(&str, &[usize])]) -> String {
        let values = |shape: &[usize]| -> Vec<u8> {
            (0..shape.iter().product::<usize>())
                .flat_map(|i| ((i % 13) as f32 / 13.0).to_le_bytes())
                .collect()
        };
        let data: Vec<Vec<u8>> = tensors.iter().map(|(_, shape)| values(shape)).collect();
        let views = tensors.iter().zip(&data).map(|((name, shape), data)| {
            (name.to_string(), TensorView::new(Dtype::F32, shape.to_vec(), data).expect("a view"))
        });
        let path = self.path(name);
        safetensors::serialize_to_file(views, None, Path::new(&path)).expect("room");
        path
    }
}

#[test]
fn the_sample_runs_and_is_right() {
    for backend in ["cpu", "emulator"] {
        let said = succeeds(&["--backend", backend, "--check"]);
        for part in ["head dim 32, f16", backend, "kernel   fwd_f16_sm89_persistd_64", "TFLOP/s", "max error"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let said =
        succeeds(&["--backend", "emulator", "--arch", "sm_120f", "--dtype", "bf16", "--causal", "--check"]);
    assert!(said.contains("fwd_bf16_sm120f_persistd_64") && said.contains("causal"), "{said}");
}

#[test]
fn results_are_written_in_the_layout_that_was_read() {
    let folder = Folder::new();
    let input =
        folder.file("in", &[("a.q", &[2, 20, 4, 40]), ("a.k", &[2, 30, 2, 40]), ("a.v", &[2, 30, 2, 40])]);
    let out = folder.path("out");
    let arguments =
        ["--prefix", "a.", "--layout", "bnhd", "--backend", "cpu", "--out", &out, "--check", "--scale", "-1"];
    let said = succeeds(&[&[input.as_str()], arguments.as_slice()].concat());
    assert!(said.contains("batch 2, heads 4/2, length 20/30, head dim 40, bf16"), "{said}");
    let bytes = std::fs::read(&out).expect("a file");
    let file = SafeTensors::deserialize(&bytes).expect("tensors");
    let (o, lse) = (file.tensor("o").expect("o"), file.tensor("lse").expect("lse"));
    assert_eq!((o.dtype(), o.shape()), (Dtype::BF16, [2, 20, 4, 40].as_slice()));
    assert_eq!((lse.dtype(), lse.shape()), (Dtype::F32, [2, 4, 20].as_slice()));

    // The same tensors with heads first give the same numbers, elsewhere.
    let swapped = |name: &str| {
        let view = SafeTensors::deserialize(&std::fs::read(&input).expect("a file"))
            .expect("tensors")
            .tensor(name)
            .map(|v| {
                let [b, n, h, d]: [usize; 4] = v.shape().try_into().expect("four");
                let row = |b: usize, h_: usize, n_: usize| ((b * n + n_) * h + h_) * d * 4;
                let order = (0..b).flat_map(|b| (0..h).flat_map(move |h| (0..n).map(move |n| (b, h, n))));
                order.flat_map(|(b, h, n)| v.data()[row(b, h, n)..][..d * 4].to_vec()).collect::<Vec<u8>>()
            });
        view.expect("it is there")
    };
    let shapes = [("q", vec![2, 4, 20, 40]), ("k", vec![2, 2, 30, 40]), ("v", vec![2, 2, 30, 40])];
    let data: Vec<Vec<u8>> = shapes.iter().map(|(name, _)| swapped(&format!("a.{name}"))).collect();
    let views = shapes.iter().zip(&data).map(|((name, shape), data)| {
        (name.to_string(), TensorView::new(Dtype::F32, shape.clone(), data).expect("a view"))
    });
    let (other, other_out) = (folder.path("other"), folder.path("other_out"));
    safetensors::serialize_to_file(views, None, Path::new(&other)).expect("room");
    succeeds(&[&other, "--backend", "cpu", "--out", &other_out, "--scale", "-1"]);
    let other_bytes = std::fs::read(&other_out).expect("a file");
    let other_file = SafeTensors::deserialize(&other_bytes).expect("tensors");
    assert_eq!(lse.data(), other_file.tensor("lse").expect("lse").data());
}

#[test]
fn masks_and_dropout_run_and_are_right() {
    let folder = Folder::new();
    let file = folder.file(
        "in",
        &[("q", &[2, 4, 20, 40]), ("k", &[2, 2, 30, 40]), ("v", &[2, 2, 30, 40]), ("m", &[2, 1, 20, 30])],
    );
    for backend in ["cpu", "emulator"] {
        let rest = ["--backend", backend, "--causal", "--mask-key", "m", "--check"];
        let said = succeeds(&[&[file.as_str()], rest.as_slice()].concat());
        assert!(said.contains("masked by m") && said.contains("max error"), "{said}");
        let rest = ["--backend", backend, "--dropout", "0.3", "--seed", "9", "--mask-key", "m", "--check"];
        let said = succeeds(&[&[file.as_str()], rest.as_slice()].concat());
        assert!(said.contains("dropout 0.3 of seed 9") && said.contains("max error"), "{said}");
    }
    assert_eq!(fails(&[&file, "--mask-key", "x"]), "the file has no tensor x; it has k, m, q, v");
    assert_eq!(fails(&[&file, "--mask-key", "q"]), "the mask's number of keys is 40; it must be 1 or 30");
    assert_eq!(fails(&[&file, "--dropout", "1"]), "dropout rate 1 is not in 0..1");
    assert!(fails(&[&file, "--seed", "1"]).contains("--dropout"));
}

#[test]
fn bad_files_are_one_clear_line() {
    let folder = Folder::new();
    let good: [(&str, &[usize]); 3] = [("q", &[1, 2, 4, 8]), ("k", &[1, 2, 4, 8]), ("v", &[1, 2, 4, 8])];
    let file = folder.file("good", &good);
    let bytes = std::fs::read(&file).expect("a file");
    let truncated = folder.path("truncated");
    std::fs::write(&truncated, &bytes[..bytes.len() - 3]).expect("room");
    assert!(fails(&[&truncated]).starts_with("not a whole safetensors file"));
    std::fs::write(&truncated, &bytes[..5]).expect("room");
    assert!(fails(&[&truncated]).starts_with("not a whole safetensors file"));

    let missing = folder.file("missing", &good[..2]);
    assert_eq!(fails(&[&missing]), "the file has no tensor v; it has k, q");
    assert_eq!(fails(&[&file, "--prefix", "x."]), "the file has no tensor x.q; it has k, q, v");
    let rank = folder.file("rank", &[("q", &[2, 4, 8]), good[1], good[2]]);
    assert_eq!(fails(&[&rank]), "q has 3 dimensions, not 4");

    let three =
        |name: &str, q: [usize; 4], kv: [usize; 4]| folder.file(name, &[("q", &q), ("k", &kv), ("v", &kv)]);
    let odd = three("odd", [1, 1, 4, 12], [1, 1, 4, 12]);
    assert!(fails(&[&odd]).starts_with("head dim 12 is not a multiple of 8"));
    let wide = three("wide", [1, 1, 1, 1032], [1, 1, 1, 1032]);
    assert_eq!(fails(&[&wide]), "head dim 1032 is beyond 1024, the largest that any build supports");
    let heads = three("heads", [1, 3, 4, 8], [1, 2, 4, 8]);
    assert_eq!(fails(&[&heads]), "3 query heads are not a multiple of 2 key/value heads");
    let lengths = folder.file("lengths", &[good[0], good[1], ("v", &[1, 2, 5, 8])]);
    assert_eq!(fails(&[&lengths]), "sequence length differs: k has 4, v has 5");
    assert!(fails(&[&folder.path("nowhere")]).contains("cannot be read"));
    assert!(fails(&[&file, "--out", "/nowhere/at/all"]).contains("cannot be written"));
}

#[test]
fn the_sample_in_eight_bits_is_as_exact_as_the_recipe() {
    for (arguments, limit) in [
        (["--family", "fp8", "--backend", "cpu", "--check"].as_slice(), 5.0),
        (
            &["--family", "fp8", "--qk", "int8", "--backend", "cpu", "--check", "--causal", "--hybrid", "0"],
            3.0,
        ),
        (&["--family", "fp8", "--qk", "int8", "--backend", "cpu", "--check", "--causal"], 3.0),
        (&["--family", "fp8", "--backend", "emulator", "--check", "--hybrid", "100"], 5.0),
        (&["--family", "fp8", "--qk", "int8", "--backend", "emulator", "--check"], 3.0),
        (&["--family", "fp8", "--qk", "int8", "--sums", "f16", "--backend", "emulator", "--check"], 3.0),
        (&["--family", "fp8", "--rotate", "--backend", "cpu", "--check"], 5.0),
        (&["--family", "fp8", "--rotate", "--qk", "int8", "--backend", "emulator", "--check"], 3.0),
        (&["--family", "fp8", "--v-scale", "block", "--smooth-k", "off", "--backend", "cpu", "--check"], 5.0),
        (&["--family", "nvfp4", "--backend", "cpu", "--check"], 25.0),
        (&["--family", "nvfp4", "--backend", "emulator", "--arch", "sm_89", "--check", "--causal"], 25.0),
        (
            &["--family", "nvfp4", "--backend", "emulator", "--arch", "sm_120f", "--check", "--hybrid", "64"],
            25.0,
        ),
    ] {
        let said = succeeds(arguments);
        let percent = said.split("relative L1 ").nth(1).and_then(|rest| rest.split(' ').next());
        let percent: f64 = percent.and_then(|number| number.parse().ok()).expect("a relative error");
        assert!(percent > 0.0 && percent <= limit, "{arguments:?}: {said}");
    }
}

#[test]
fn the_first_rows_are_said_to_be_in_sixteen_bits() {
    let kernel = |rest: &[&str]| {
        let said = succeeds(&[&["--family", "fp8", "--backend", "cpu", "--check"], rest].concat());
        said.lines().find_map(|line| line.strip_prefix("kernel   ")).expect("a kernel").to_string()
    };
    let (fp8, native) = ("fwd_e4m3_sm89_persistd_64", "fwd_f16_sm89_persistd_64");
    assert_eq!(kernel(&[]), fp8);
    assert_eq!(kernel(&["--causal"]), format!("{fp8}, after {native}"));
    assert_eq!(kernel(&["--causal", "--hybrid", "0"]), fp8);
    assert_eq!(kernel(&["--hybrid", "300"]), format!("{fp8}, after {native}"));
    assert_eq!(kernel(&["--hybrid", "500"]), native);
}

#[test]
fn bad_requests_are_one_clear_line() {
    assert_eq!(fails(&["--arch", "sm_89"]), "--arch sm_89 needs --backend emulator");
    assert_eq!(fails(&["--backend", "cpu", "--arch", "sm_89"]), "--arch sm_89 needs --backend emulator");
    assert!(fails(&["--family", "fp8", "--dropout", "0.5"]).starts_with("the fp8 family is not available"));
    assert!(
        fails(&["--family", "nvfp4", "--dropout", "0.5"]).starts_with("the nvfp4 family is not available")
    );
    assert_eq!(fails(&["--rotate"]), "--rotate needs --family fp8");
    assert_eq!(fails(&["--rotate", "--family", "nvfp4"]), "--rotate needs --family fp8");
    for (name, value, families) in [
        ("--qk", "int8", "fp8"),
        ("--smooth-k", "on", "fp8 or nvfp4"),
        ("--v-scale", "block", "fp8"),
        ("--sums", "f32", "fp8"),
        ("--hybrid", "9", "fp8 or nvfp4"),
    ] {
        assert_eq!(fails(&[name, value]), format!("{name} needs --family {families}"));
    }
    assert!(fails(&["--dtype", "f64"]).contains("f64"));
    assert!(fails(&["--scale", "nan"]).contains("not finite"));
    assert!(fails(&["--nonsense"]).contains("--nonsense"));
    assert!(succeeds(&["--help"]).contains("--backend"));
}
