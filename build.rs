//! Chooses the kernels of this build and, with the feature `ptx`, compiles them and embeds their PTX.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `FFPA_BUILD_ARCH` | architectures: some of `89,90a,120f` | all three |
//! | `FFPA_BUILD_EXT` | families: `all`, `none`, or some of `native,fp8,nvfp4` | `all` |
//! | `FFPA_BUILD_HEADDIM` | head dims of native kernels: `default`, `all` (every multiple of 64), or numbers that the catalog has | `default` |
//! | `ENABLE_FFPA_QUANT_SPLIT_D` | `1`: quantised kernels for head dims above their windows (FP8 224, NVFP4 256), to 1024, too; `0`: not | `0` |
//! | `FFPA_BUILD_MMA` | matrix instructions, of kernels that differ in nothing else: `block-scaled` or `plain` | `block-scaled` |

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use ffpa_kernels_gpu::catalog::{
    CATALOG, COMBINES, Combine, Copies, DEFAULT_HEAD_DIMS, Entry, Kernel, QUANTIZES, Quantize, Stage,
};
use ffpa_kernels_gpu::config::{Arch, Family};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Err(error) = run() {
        // The last line that cargo shows of a failed build script.
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let entries = chosen()?;
    let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
    let bulk = |quantized: bool| {
        let wanted =
            |kernel: &Kernel| kernel.copies == Copies::Bulk && kernel.arithmetic.is_quantized() == quantized;
        CATALOG.iter().any(|kernel| wanted(kernel) && names.contains(&kernel.name))
    };
    let chosen = format!(
        "pub static CHOSEN: &[&str] = &{names:?};\n\
         const BULK_CHOSEN: bool = {};\nconst QUANTIZED_BULK_CHOSEN: bool = {};\n",
        bulk(false),
        bulk(true)
    );
    fs::write(out.join("chosen.rs"), chosen)?;
    #[cfg(feature = "ptx")]
    ptx::embed(&out, &entries)?;
    Ok(())
}

/// The catalog's rows that the variables choose.
fn chosen() -> Result<Vec<Entry>, String> {
    let archs = list("FFPA_BUILD_ARCH", &["89", "90a", "120f"])?;
    let families = match variable("FFPA_BUILD_EXT").as_deref() {
        Some("none") => Vec::new(),
        _ => list("FFPA_BUILD_EXT", &Family::ALL.map(Family::name))?,
    };
    let has = |family: Family| families.iter().any(|name| name == family.name());
    let native = CATALOG.iter().filter(|kernel| !kernel.arithmetic.is_quantized());
    let mut compiled: Vec<usize> = native.map(|kernel| kernel.head_dim).collect();
    compiled.sort_unstable();
    compiled.dedup();
    let head_dims = match variable("FFPA_BUILD_HEADDIM").as_deref() {
        Some("default") | None => DEFAULT_HEAD_DIMS.to_vec(),
        Some("all") => compiled,
        Some(_) => {
            let known: Vec<String> = compiled.iter().map(usize::to_string).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            list("FFPA_BUILD_HEADDIM", &known)?.iter().filter_map(|d| d.parse().ok()).collect()
        }
    };
    let beyond_windows = match variable("ENABLE_FFPA_QUANT_SPLIT_D").as_deref() {
        Some("1") => true,
        Some("0") | None => false,
        Some(value) => return Err(format!("ENABLE_FFPA_QUANT_SPLIT_D has {value:?}; known are 0, 1")),
    };
    let block_scaled = match variable("FFPA_BUILD_MMA").as_deref() {
        Some("block-scaled") | None => true,
        Some("plain") => false,
        Some(value) => return Err(format!("FFPA_BUILD_MMA is {value:?}; known are block-scaled, plain")),
    };
    // Of two kernels that differ in nothing else one would never run.
    let multiplies = |kernel: &Kernel| {
        kernel.block_scaled == block_scaled || !CATALOG.iter().any(|other| other.is_twin_of(kernel))
    };
    let wanted = |arch: Arch| archs.iter().any(|a| a == arch.target().trim_start_matches("sm_"));
    let kernels = CATALOG.iter().filter(|kernel| {
        let family = kernel.arithmetic.family();
        let fits = match family {
            Family::Native => head_dims.contains(&kernel.head_dim),
            _ => beyond_windows || kernel.head_dim <= family.window(),
        };
        has(family) && fits && multiplies(kernel)
    });
    let combines = COMBINES.iter().filter(|_| !families.is_empty()).map(Combine::entry);
    // Of those that take whole rows of the window, the narrowest is enough.
    let needed = |quantize: &&Quantize| {
        let serves = |family: &Family| has(*family) && quantize.serves(*family);
        let wider = |family: Family| {
            let enough = |other: &Quantize| {
                other.stage == quantize.stage
                    && (family.window()..quantize.head_dim).contains(&other.head_dim)
            };
            quantize.stage != Stage::Statistics && !beyond_windows && QUANTIZES.iter().any(enough)
        };
        Family::ALL.into_iter().filter(serves).any(|family| !wider(family))
    };
    let quantizes = QUANTIZES.iter().filter(needed).map(Quantize::entry);
    let entries = kernels.map(Kernel::entry).chain(combines).chain(quantizes);
    Ok(entries.filter(|entry| wanted(entry.arch)).collect())
}

/// A variable, if it is set and not empty.
fn variable(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// A variable's comma-separated values, all of them known; by default all that are known.
fn list(name: &str, known: &[&str]) -> Result<Vec<String>, String> {
    let Some(value) = variable(name) else {
        return Ok(known.iter().map(|value| value.to_string()).collect());
    };
    let values: Vec<String> =
        value.split(',').map(|v| v.trim().trim_start_matches("sm_").to_string()).collect();
    match values.iter().find(|value| !known.contains(&value.as_str())) {
        None => Ok(values),
        Some(value) => Err(format!("{name} has {value:?}; known are {}", known.join(", "))),
    }
}

#[cfg(feature = "ptx")]
mod ptx {
    use std::error::Error;
    use std::fmt::Write;
    use std::fs;
    use std::path::{Path, PathBuf};

    use cuda_builder::{CudaBuilder, Options};
    use ffpa_kernels_gpu::catalog::Entry;
    use ffpa_kernels_gpu::{CUDA_STD_SOURCE_DIR, SOURCE_DIR};

    /// Writes one compressed PTX module per kernel, and the table of them that `host/images.rs` includes.
    pub fn embed(out: &Path, kernels: &[Entry]) -> Result<(), Box<dyn Error>> {
        println!("cargo::rerun-if-env-changed=FFPA_NIGHTLY");
        let modules = match super::variable("FFPA_PTX_DIR") {
            Some(dir) => ready_made(Path::new(&dir), kernels)?,
            None => compiled(out, kernels)?,
        };
        let mut table = String::from("pub static IMAGES: &[(&str, &[u8])] = &[\n");
        for (name, ptx) in modules {
            let file = out.join(format!("{name}.ptx.z"));
            fs::write(&file, miniz_oxide::deflate::compress_to_vec_zlib(ptx.as_bytes(), 9))?;
            writeln!(table, "    ({name:?}, include_bytes!({:?})),", file.display().to_string())?;
        }
        table.push_str("];\n");
        fs::write(out.join("images.rs"), table)?;
        Ok(())
    }

    /// Modules built elsewhere: `<kernel>.ptx` in one folder.
    fn ready_made(dir: &Path, kernels: &[Entry]) -> Result<Vec<(String, String)>, Box<dyn Error>> {
        println!("cargo::rerun-if-changed={}", dir.display());
        let read = |kernel: &Entry| {
            let path = dir.join(format!("{}.ptx", kernel.name));
            let ptx =
                fs::read_to_string(&path).map_err(|e| format!("FFPA_PTX_DIR: {}: {e}", path.display()))?;
            Ok((kernel.name.to_string(), ptx))
        };
        kernels.iter().map(read).collect()
    }

    /// Modules built here.
    fn compiled(out: &Path, kernels: &[Entry]) -> Result<Vec<(String, String)>, Box<dyn Error>> {
        for dir in [SOURCE_DIR, CUDA_STD_SOURCE_DIR] {
            println!("cargo::rerun-if-changed={dir}/src");
        }
        // OUT_DIR is <target>/<profile>/build/<package>/out: all profiles share one cache.
        let cache = super::variable("FFPA_PTX_CACHE")
            .map(PathBuf::from)
            .or_else(|| Some(out.ancestors().nth(4)?.join("ffpa-ptx-cache")))
            .ok_or("OUT_DIR has no target folder above it; name a folder in FFPA_PTX_CACHE")?;
        let builder = CudaBuilder::new("ffpa_kernels_gpu", SOURCE_DIR)
            .dependency("cuda_std", CUDA_STD_SOURCE_DIR)
            .cache_dir(cache);
        let entry = |kernel: &Entry| cuda_builder::Entry {
            name: kernel.name.into(),
            arch: kernel.arch.target().into(),
            threads: kernel.threads,
            min_blocks: kernel.min_blocks,
        };
        let options = |kernel: &Entry| Options {
            ptx_version: kernel.ptx_version.map(str::to_string),
            ..Options::default()
        };
        let add = |builder: CudaBuilder, kernel: &Entry| builder.entry_with(entry(kernel), options(kernel));
        let modules = kernels.iter().fold(builder, add).build()?;
        Ok(modules.into_iter().map(|module| (module.entry.name, module.ptx)).collect())
    }
}
