//! A root for linking against libcuda on machines that have none.
//!
//! The crate `cust` links `-lcuda` and finds it under the folders of `CUDA_LIBRARY_PATH`. The root made here has a
//! `lib64/libcuda.so` that is a linker script: it pulls in a static archive in which every driver function is a stub that
//! jumps through a slot, and the first call of a stub fills its slot from the real `libcuda.so.1`. So a program links
//! without CUDA, starts without a driver, and gets an error code from the first call there:
//! `CUDA_ERROR_NO_DEVICE` without the library, `CUDA_ERROR_NOT_FOUND` without the function.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::BuildError;

/// The driver functions that the bindings of `cust_raw` 0.11.3 declare.
const SYMBOLS: &str = include_str!("cuda_symbols.txt");

/// Makes a link root in `dir`, and returns what `CUDA_LIBRARY_PATH` must be.
///
/// # Errors
/// [`BuildError::NoLinkRoot`] on other hosts than x86-64 Linux; [`BuildError::Compile`] if `cc` or `ar` fail.
pub fn make(dir: &Path) -> Result<PathBuf, BuildError> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        let target = format!("{} {}", std::env::consts::ARCH, std::env::consts::OS);
        return Err(BuildError::NoLinkRoot { target });
    }
    let lib = dir.join("lib64");
    fs::create_dir_all(&lib).map_err(BuildError::io(&lib))?;
    let write = |name: &str, text: &str| {
        let path = lib.join(name);
        fs::write(&path, text).map_err(BuildError::io(&path))
    };
    write("stubs.S", &stubs())?;
    write("lookup.c", &lookup())?;
    run(&lib, Command::new("cc").args(["-O2", "-fPIC", "-c", "stubs.S", "lookup.c"]))?;
    run(&lib, Command::new("ar").args(["rcs", "libcuda_forward.a", "stubs.o", "lookup.o"]))?;
    write("libcuda.so", "INPUT(libcuda_forward.a -ldl)\n")?;
    dir.canonicalize().map_err(BuildError::io(dir))
}

fn run(dir: &Path, command: &mut Command) -> Result<(), BuildError> {
    let what = format!("the link root for libcuda ({command:?})");
    let failed = |stderr: String| BuildError::Compile { what: what.clone(), stderr };
    let output = command.current_dir(dir).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// One stub per function. The slow way keeps all argument registers of the System V ABI over the look-up.
fn stubs() -> String {
    const INTEGERS: [&str; 7] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9", "r11"];
    let mut text = String::from(".text\n");
    for (i, name) in SYMBOLS.lines().enumerate() {
        let slot = 8 * i;
        let _ = write!(
            text,
            ".globl {name}\n.type {name},@function\n{name}:\n\tmovq slots+{slot}(%rip), %r11\n\ttestq %r11, %r11\n\
             \tjz 1f\n\tjmp *%r11\n1:\tmovl ${i}, %r11d\n\tjmp resolve\n"
        );
    }
    text.push_str("resolve:\n");
    // On entry the stack is 8 past a multiple of 16; seven registers and 64 bytes bring it to one, as a call needs.
    INTEGERS.iter().for_each(|register| {
        let _ = writeln!(text, "\tpushq %{register}");
    });
    text.push_str("\tsubq $64, %rsp\n");
    (0..8).for_each(|i| {
        let _ = writeln!(text, "\tmovsd %xmm{i}, {}(%rsp)", 8 * i);
    });
    text.push_str("\tmovl %r11d, %edi\n\tcall cuda_forward_lookup@PLT\n");
    (0..8).for_each(|i| {
        let _ = writeln!(text, "\tmovsd {}(%rsp), %xmm{i}", 8 * i);
    });
    text.push_str("\taddq $64, %rsp\n");
    INTEGERS.iter().rev().for_each(|register| {
        let _ = writeln!(text, "\tpopq %{register}");
    });
    text.push_str("\tjmp *%rax\n");
    let _ = writeln!(text, ".bss\n.align 8\n.globl slots\nslots:\n\t.zero {}", 8 * SYMBOLS.lines().count());
    text.push_str(".section .note.GNU-stack,\"\",@progbits\n");
    text
}

/// The look-up. Threads that resolve one function at a time all store the same address.
fn lookup() -> String {
    let names: String = SYMBOLS.lines().flat_map(|name| ["\t\"", name, "\",\n"]).collect();
    format!(
        "#include <dlfcn.h>\n\nextern void *slots[];\n\nstatic const char *const names[] = {{\n{names}}};\n\n\
         static int no_device(void) {{ return 100; }}\nstatic int not_found(void) {{ return 500; }}\n\n\
         void *cuda_forward_lookup(unsigned i) {{\n\
         \tvoid *library = dlopen(\"libcuda.so.1\", RTLD_NOW | RTLD_GLOBAL);\n\
         \tif (!library) return (void *)no_device;\n\
         \tvoid *function = dlsym(library, names[i]);\n\
         \tif (!function) return (void *)not_found;\n\
         \t__atomic_store_n(&slots[i], function, __ATOMIC_RELEASE);\n\
         \treturn function;\n}}\n"
    )
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests {
    use super::*;

    /// Links a program against the root, and runs it where, presumably, there is no driver. Where there is one, the call
    /// gives another code; what is tested is that the program links, starts, and gets an answer.
    #[test]
    fn a_program_links_and_starts() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = make(dir.path()).expect("a link root");
        let source = "extern int cuInit(unsigned);\nextern int cuCtxGetCurrent(void **);\nint main(void) {\n\
                      \tvoid *c;\n\tint a = cuInit(0), b = cuInit(0);\n\treturn a != b ? 1 : a == 100 ? cuCtxGetCurrent(&c) == 100 ? 7 : 2 : 8;\n}\n";
        fs::write(dir.path().join("main.c"), source).expect("room");
        let lib = format!("-L{}", root.join("lib64").display());
        run(dir.path(), Command::new("cc").args(["main.c", "-o", "main", &lib, "-lcuda"])).expect("it links");
        let status = Command::new(dir.path().join("main")).status().expect("it starts");
        let driver = ["/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1"];
        let has_driver = driver.iter().any(|path| Path::new(path).exists());
        assert_eq!(status.code(), Some(if has_driver { 8 } else { 7 }));
    }
}
