//! Builds of small device crates, with the real compiler and the real assembler.
#![cfg(feature = "device-tests")]

use std::path::{Path, PathBuf};

use cuda_builder::check::{Expected, deviations};
use cuda_builder::ptxas::Tools;
use cuda_builder::{BuildError, CudaBuilder, Entry, Module, Unfitness};

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
