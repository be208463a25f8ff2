//! With the feature `ptx`: compiles the kernels to PTX and embeds them. Without it: nothing.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "ptx")]
    if let Err(error) = ptx::embed() {
        // The last line that cargo shows of a failed build script.
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

#[cfg(feature = "ptx")]
mod ptx {
    use std::error::Error;
    use std::fmt::Write;
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    use cuda_builder::{CudaBuilder, Entry};
    use ffpa_kernels_gpu::catalog::{CATALOG, Kernel};
    use ffpa_kernels_gpu::{CUDA_STD_SOURCE_DIR, SOURCE_DIR};

    /// Writes one compressed PTX module per catalog row, and the table of them that `host/images.rs` includes.
    pub fn embed() -> Result<(), Box<dyn Error>> {
        for variable in ["FFPA_PTX_DIR", "FFPA_PTX_CACHE", "FFPA_NIGHTLY"] {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        let out = PathBuf::from(env::var("OUT_DIR")?);
        let modules = match env::var_os("FFPA_PTX_DIR") {
            Some(dir) => ready_made(Path::new(&dir))?,
            None => compiled(&out)?,
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
    fn ready_made(dir: &Path) -> Result<Vec<(String, String)>, Box<dyn Error>> {
        println!("cargo::rerun-if-changed={}", dir.display());
        let read = |kernel: &Kernel| {
            let path = dir.join(format!("{}.ptx", kernel.name));
            let ptx =
                fs::read_to_string(&path).map_err(|e| format!("FFPA_PTX_DIR: {}: {e}", path.display()))?;
            Ok((kernel.name.to_string(), ptx))
        };
        CATALOG.iter().map(read).collect()
    }

    /// Modules built here.
    fn compiled(out: &Path) -> Result<Vec<(String, String)>, Box<dyn Error>> {
        for dir in [SOURCE_DIR, CUDA_STD_SOURCE_DIR] {
            println!("cargo::rerun-if-changed={dir}/src");
        }
        // OUT_DIR is <target>/<profile>/build/<package>/out: all profiles share one cache.
        let cache = env::var_os("FFPA_PTX_CACHE")
            .map(PathBuf::from)
            .or_else(|| Some(out.ancestors().nth(4)?.join("ffpa-ptx-cache")))
            .ok_or("OUT_DIR has no target folder above it; name a folder in FFPA_PTX_CACHE")?;
        let builder = CudaBuilder::new("ffpa_kernels_gpu", SOURCE_DIR)
            .dependency("cuda_std", CUDA_STD_SOURCE_DIR)
            .cache_dir(cache);
        let entry = |kernel: &Kernel| Entry {
            name: kernel.name.into(),
            arch: kernel.arch.target().into(),
            threads: kernel.threads(),
            min_blocks: kernel.min_blocks,
        };
        let modules = CATALOG.iter().fold(builder, |builder, kernel| builder.entry(entry(kernel))).build()?;
        Ok(modules.into_iter().map(|module| (module.entry.name, module.ptx)).collect())
    }
}
