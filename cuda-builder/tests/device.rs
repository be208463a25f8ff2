//! Builds of small device crates, with the real compiler and the real assembler.
#![cfg(feature = "device-tests")]

use std::path::{Path, PathBuf};

use cuda_builder::check::{Expected, deviations, warnings};
use cuda_builder::ptxas::Tools;
use cuda_builder::{BuildError, CudaBuilder, Entry, Module, Options, Unfitness};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// All tests share one cache, as builds do.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("ptx-cache")
}

fn build(fixture_name: &str, entry: &str, arch: &str) -> Result<Vec<Module>, BuildError> {
    CudaBuilder::new(fixture_name, fixture(fixture_name))
        .entry(Entry { name: entry.into(), arch: arch.into(), threads: 128, min_blocks: 2 })
        .cache_dir(cache())
        .build()
}

#[test]
fn a_kernel_is_built_stamped_and_assembled_for_every_arch() {
    let tools = Tools::find().unwrap_or_else(|error| panic!("{error}"));
    for arch in ["sm_89", "sm_90a", "sm_120f"] {
        let modules = build("saxpy", "saxpy", arch).unwrap_or_else(|error| panic!("{error}"));
        let [module] = modules.as_slice() else { panic!("one entry, one module") };
        assert!(module.ptx.contains(".maxntid 128, 1, 1\n.minnctapersm 2\n"), "{}", module.ptx);
        let found = deviations(&module.ptx, &Expected { entry: "saxpy", arch, barriers: 1, version: None });
        assert!(found.is_empty(), "{found:?}");
        let cubin = cache().join(format!("saxpy-{arch}.cubin"));
        let resources = tools.assemble(&module.ptx, arch, &cubin).unwrap_or_else(|error| panic!("{error}"));
        assert!(resources.registers > 0 && resources.spill_stores == 0, "{resources:?}");
        assert!(tools.disassemble(&cubin).is_ok_and(|sass| sass.contains("EXIT")));
    }
}

#[test]
fn what_the_assembler_warns_of_is_a_deviation() {
    let tools = Tools::find().unwrap_or_else(|error| panic!("{error}"));
    std::fs::create_dir_all(cache()).expect("a folder");
    let cubin = cache().join("trades.cubin");
    let said = |bounds: &str| -> Vec<String> {
        let ptx = format!(
            ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry trades()\n{bounds}\
             {{\n\tsetmaxnreg.dec.sync.aligned.u32 24;\n\tret;\n}}\n"
        );
        let resources = tools.assemble(&ptx, "sm_90a", &cubin).unwrap_or_else(|error| panic!("{error}"));
        warnings(&resources).map(|deviation| deviation.to_string()).collect()
    };
    assert_eq!(said(".maxntid 128, 1, 1\n.minnctapersm 2\n"), [""; 0]);
    // Without launch bounds it does not know what threads start with, and leaves the instruction out.
    let [warning] = &said("")[..] else { panic!("one warning") };
    assert!(warning.starts_with("ptxas warns: ") && warning.contains("'setmaxnreg' ignored"), "{warning}");
}

#[test]
fn local_memory_is_refused() {
    match build("local", "table", "sm_89").expect_err("it uses local memory") {
        BuildError::Unfit { entry, why: Unfitness::LocalMemory, .. } => assert_eq!(entry, "table"),
        other => panic!("{other}"),
    }
}

#[test]
fn panic_paths_are_refused() {
    match build("panics", "divides", "sm_89").expect_err("it may panic") {
        BuildError::Unfit { why: Unfitness::Call, text, .. } => assert!(text.contains("panic"), "{text}"),
        other => panic!("{other}"),
    }
}

#[test]
fn the_compilers_words_are_shown() {
    match build("panics", "broken", "sm_89").expect_err("it does not compile") {
        BuildError::Compile { what, stderr } => {
            assert_eq!(what, "broken for sm_89");
            assert!(stderr.contains("mismatched types"), "{stderr}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn an_entry_that_is_not_there_is_named() {
    let said = build("saxpy", "daxpy", "sm_89").expect_err("there is none").to_string();
    assert_eq!(said, "PTX of daxpy: has 0 entries, not 1; is it behind `#[cfg(daxpy)]`?");
}

/// What an operation is in PTX, and in the machine code of each architecture that has it, in order: PTX version beyond the
/// architecture's own, instructions.
type Machines = &'static [(&'static str, Option<&'static str>, &'static [&'static str])];

/// Whether `text` holds all of these, one after the other.
fn in_order(text: &str, wanted: &[&str]) -> bool {
    let after = wanted.iter().try_fold(text, |text, wanted| text.split_once(wanted).map(|(_, after)| after));
    after.is_some()
}

#[test]
fn operations_on_matrices_become_what_they_name() {
    const E4M3: &str = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 ";
    const MXF8: &str =
        "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0 ";
    const NVF4: &str =
        "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 ";
    const S8: &str = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 ";
    const PACK_E4M3: &[&str] =
        &["F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C", "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C"];
    const PACK_E2M1: &str = "cvt.rn.satfinite.e2m1x2.f32 ";
    const UNPACK_E4M3: &[&str] = &["F2FP.F16.E4M3.UNPACK_B", "F2FP.F16.E4M3.UNPACK_B"];
    const PACK_S8: &[&str] = &["F2IP.S8.F32", "F2IP.S8.F32"];
    // Hopper has no such instruction: it multiplies as f16, from zero, and adds in f32.
    const HOPPER: &[&str] = &["F2FP.F16.E4M3.UNPACK_B", "HMMA.16816.F32", "HMMA.16816.F32", "FADD"];
    const QMMA: &[&str] = &["QMMA.16832.F32.E4M3.E4M3"];
    const IMMA: &[&str] = &["IMMA.16832.S8.S8"];
    let operations: [(&str, &[&str], Machines); 11] = [
        (
            "mma_e4m3",
            &[E4M3],
            &[("sm_89", Some("8.4"), QMMA), ("sm_90a", Some("8.4"), HOPPER), ("sm_120f", None, QMMA)],
        ),
        (
            "mma_e4m3_f16",
            &["mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 "],
            &[
                ("sm_89", Some("8.7"), &["QMMA.16832.F16.E4M3.E4M3"]),
                ("sm_90a", Some("8.7"), &["HMMA.16816"]),
                ("sm_120f", None, &["QMMA.16832.F16.E4M3.E4M3"]),
            ],
        ),
        ("mma_mxf8", &[MXF8], &[("sm_120f", None, &["QMMA.SF.16832.F32.E4M3.E4M3.E8"])]),
        (
            "mma_nvf4",
            // The thread ids of A and of B.
            &[
                NVF4, "{0, 0}", "{0, 0}", NVF4, "{0, 0}", "{0, 1}", NVF4, "{0, 0}", "{0, 2}", NVF4, "{0, 0}",
                "{0, 3}", NVF4, "{0, 1}", "{0, 0}", NVF4, "{0, 1}", "{0, 1}", NVF4, "{0, 1}", "{0, 2}", NVF4,
                "{0, 1}", "{0, 3}",
            ],
            &[("sm_120f", None, &["OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"; 8])],
        ),
        (
            "pack_e2m1",
            &[PACK_E2M1, PACK_E2M1, PACK_E2M1, PACK_E2M1, "mov.b32 "],
            &[("sm_120f", None, &["F2FP.SATFINITE.E2M1.F32.PACK_AB_MERGE_C"; 4])],
        ),
        (
            "products_f16",
            &["cvt.rn.f16x2.e4m3x2 ", "cvt.rn.f16x2.e4m3x2 ", "mul.rn.f16x2 ", "mul.rn.f16x2 "],
            &[
                ("sm_89", Some("8.1"), UNPACK_E4M3),
                ("sm_90a", None, UNPACK_E4M3),
                ("sm_120f", None, UNPACK_E4M3),
            ],
        ),
        ("mma_s8", &[S8], &[("sm_89", None, IMMA), ("sm_90a", None, IMMA), ("sm_120f", None, IMMA)]),
        (
            "pack_e4m3",
            &["cvt.rn.satfinite.e4m3x2.f32 ", "cvt.rn.satfinite.e4m3x2.f32 ", "mov.b32 "],
            &[("sm_89", Some("8.1"), PACK_E4M3), ("sm_90a", None, PACK_E4M3), ("sm_120f", None, PACK_E4M3)],
        ),
        (
            "pack_s8",
            &["cvt.rni.s32.f32 ", "cvt.pack.sat.s8.s32.b32 ", "cvt.pack.sat.s8.s32.b32 "],
            &[("sm_89", None, PACK_S8), ("sm_90a", None, PACK_S8), ("sm_120f", None, PACK_S8)],
        ),
        (
            "bulk_copy",
            &["cp.async.bulk.tensor.4d.shared::c"],
            &[("sm_90a", None, &["UTMALDG.4D"]), ("sm_120f", None, &["UTMALDG.4D"])],
        ),
        (
            "scalars",
            &["div.rn.f32 ", "abs.f32 ", "cvt.rn.f32.s32 ", "st.global.v2.b32 "],
            &[
                ("sm_89", None, &["STG.E.64"]),
                ("sm_90a", None, &["STG.E.64"]),
                ("sm_120f", None, &["STG.E.64"]),
            ],
        ),
    ];
    let tools = Tools::find().unwrap_or_else(|error| panic!("{error}"));
    let machines =
        operations.iter().flat_map(|&(name, ptx, machines)| machines.iter().map(move |m| (name, ptx, m)));
    let mut builder = CudaBuilder::new("matrices", fixture("matrices"))
        .dependency("cuda_std", Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda-std"))
        .cache_dir(cache());
    for (name, _, &(arch, version, _)) in machines.clone() {
        let options = Options { ptx_version: version.map(str::to_string), ..Options::default() };
        builder = builder
            .entry_with(Entry { name: name.into(), arch: arch.into(), threads: 32, min_blocks: 1 }, options);
    }
    let modules = builder.build().unwrap_or_else(|error| panic!("{error}"));
    for ((name, ptx, &(arch, version, machine)), module) in machines.zip(modules) {
        let expected = Expected { entry: name, arch, barriers: 0, version };
        let found = deviations(&module.ptx, &expected);
        assert!(found.is_empty(), "{name} for {arch}: {found:?}");
        assert!(in_order(&module.ptx, ptx), "{name} for {arch}: {}", module.ptx);
        let cubin = cache().join(format!("{name}-{arch}.cubin"));
        let resources = tools.assemble(&module.ptx, arch, &cubin).unwrap_or_else(|error| panic!("{error}"));
        assert!(resources.spill_stores == 0 && warnings(&resources).next().is_none(), "{resources:?}");
        let sass = tools.disassemble(&cubin).unwrap_or_else(|error| panic!("{error}"));
        assert!(in_order(&sass, machine), "{name} for {arch}: {sass}");
        assert!(!sass.contains("CALL.ABS"), "{name} for {arch} makes an external call: {sass}");
    }
}
