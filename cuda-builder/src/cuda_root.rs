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
    let (lib, work) = (dir.join("lib64"), dir.join(format!("work.{}", std::process::id())));
    for folder in [&lib, &work] {
        fs::create_dir_all(folder).map_err(BuildError::io(folder))?;
    }
    let write = |name: &str, text: &str| {
        let path = work.join(name);
        fs::write(&path, text).map_err(BuildError::io(&path))
    };
    write("stubs.S", &stubs())?;
    write("lookup.c", &lookup())?;
    run(&work, Command::new("cc").args(["-O2", "-fPIC", "-c", "stubs.S", "lookup.c"]))?;
    run(&work, Command::new("ar").args(["rcs", "libcuda_forward.a", "stubs.o", "lookup.o"]))?;
    write("libcuda.so", "INPUT(libcuda_forward.a -ldl)\n")?;
    // By renaming: a linker at work sees the old root or the new one.
    for name in ["libcuda_forward.a", "libcuda.so"] {
        fs::rename(work.join(name), lib.join(name)).map_err(BuildError::io(&lib))?;
    }
    fs::remove_dir_all(&work).map_err(BuildError::io(&work))?;
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

/// One stub per function. The slow way keeps all argument registers of the System V ABI over the look-up; what else the
/// caller passed lies on the stack, which the function finds as it was.
///
/// Hidden, so that the stubs of a shared library are its own: it links (a position-independent reference to `slots` must
/// not be replaceable), and no other library of the process binds to them in place of the driver.
fn stubs() -> String {
    const INTEGERS: [&str; 7] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9", "r11"];
    let mut text = String::from(".text\n");
    for (i, name) in SYMBOLS.lines().enumerate() {
        let slot = 8 * i;
        let _ = write!(
            text,
            ".globl {name}\n.hidden {name}\n.type {name},@function\n{name}:\n\tmovq slots+{slot}(%rip), %r11\n\ttestq %r11, %r11\n\
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
    text.push_str("\tmovl %r11d, %edi\n\tcall cuda_forward_lookup\n");
    (0..8).for_each(|i| {
        let _ = writeln!(text, "\tmovsd {}(%rsp), %xmm{i}", 8 * i);
    });
    text.push_str("\taddq $64, %rsp\n");
    INTEGERS.iter().rev().for_each(|register| {
        let _ = writeln!(text, "\tpopq %{register}");
    });
    text.push_str("\tjmp *%rax\n");
    let _ = writeln!(
        text,
        ".bss\n.align 8\n.globl slots\n.hidden slots\nslots:\n\t.zero {}",
        8 * SYMBOLS.lines().count()
    );
    text.push_str(".section .note.GNU-stack,\"\",@progbits\n");
    text
}

/// The look-up. Threads that resolve one function at a time all store the same address.
fn lookup() -> String {
    let names: String = SYMBOLS.lines().flat_map(|name| ["\t\"", name, "\",\n"]).collect();
    format!(
        "#include <dlfcn.h>\n\n#pragma GCC visibility push(hidden)\nextern void *slots[];\nvoid *cuda_forward_lookup(unsigned);\n#pragma GCC visibility pop\n\nstatic const char *const names[] = {{\n{names}}};\n\n\
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

    /// Stands in for the driver: checks what arrives, and that the stack is aligned as the ABI wants it, in the functions
    /// and in what `dlopen` runs.
    const DRIVER: &str = r#"
        #include <stdint.h>
        static int aligned(void) { return ((uintptr_t)__builtin_frame_address(0) & 15) == 0; }
        static int loads, aligned_load;
        __attribute__((constructor)) static void load(void) { loads++; aligned_load = aligned(); }
        int cuInit(unsigned flags) { return flags != 5 ? 1 : loads != 1 ? 2 : !aligned_load ? 3 : !aligned() ? 4 : 0; }
        int cuTexRefSetMipmapLevelClamp(void *t, float low, float high) {
            return t == (void *)7 && low == 0.25f && high == 8.5f && aligned() ? 0 : 5;
        }
        int cuLaunchKernel(long f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h,
                           long stream, void *params, void *extra) {
            return f == 1 && a == 2 && b == 3 && c == 4 && d == 5 && e == 6 && g == 7 && h == 8 && stream == 9
                && params == (void *)10 && extra == (void *)11 && aligned() ? 0 : 6;
        }"#;

    /// Makes every first call from many threads at once, and exits with the number of the first wrong answer.
    const CALLER: &str = r#"
        #include <pthread.h>
        extern int cuInit(unsigned), cuCtxGetCurrent(void **), cuTexRefSetMipmapLevelClamp(void *, float, float);
        extern int cuLaunchKernel(long, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, long, void *,
                                  void *);
        static pthread_barrier_t together;
        static void *calls(void *unused) {
            for (int round = 0; round < 3; round++) {
                void *context;
                pthread_barrier_wait(&together);
                long wrong = cuInit(5);
                pthread_barrier_wait(&together);
                wrong = wrong ? wrong : cuLaunchKernel(1, 2, 3, 4, 5, 6, 7, 8, 9, (void *)10, (void *)11);
                pthread_barrier_wait(&together);
                wrong = wrong ? wrong : cuTexRefSetMipmapLevelClamp((void *)7, 0.25f, 8.5f);
                wrong = wrong ? wrong : cuCtxGetCurrent(&context) == 500 ? 0 : 7;
                if (wrong) return (void *)wrong;
            }
            return 0;
        }
        int calls_from_threads(void) {
            pthread_t threads[16];
            long wrong = 0;
            pthread_barrier_init(&together, 0, 16);
            for (int i = 0; i < 16; i++) pthread_create(&threads[i], 0, calls, 0);
            for (int i = 0; i < 16; i++) {
                void *answer;
                pthread_join(threads[i], &answer);
                wrong = wrong ? wrong : (long)answer;
            }
            return wrong;
        }"#;

    const MAIN: &str = "int calls_from_threads(void);\nint main(void) { return calls_from_threads(); }\n";

    fn compile(dir: &Path, files: &[(&str, &str)], arguments: &[&str]) {
        for (name, text) in files {
            fs::write(dir.join(name), text).expect("room");
        }
        let sources = files.iter().map(|(name, _)| name);
        run(dir, Command::new("cc").args(sources).args(arguments)).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Runs `dir/main`, with libraries from `dir` before all others.
    fn exit_code(dir: &Path) -> Option<i32> {
        Command::new(dir.join("main")).env("LD_LIBRARY_PATH", dir).status().expect("it starts").code()
    }

    #[test]
    fn a_program_without_a_driver_starts_and_is_told() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = make(dir.path()).expect("a link root");
        let lib = format!("-L{}", root.join("lib64").display());
        let main = "extern int cuInit(unsigned);\nint main(void) { return cuInit(0); }\n";
        // What the loader finds first is no library: as if there were no driver, whatever this machine has.
        fs::write(dir.path().join("libcuda.so.1"), "").expect("room");
        compile(dir.path(), &[("main.c", main)], &["-o", "main", &lib, "-lcuda"]);
        assert_eq!(exit_code(dir.path()), Some(100));
    }

    #[test]
    fn calls_arrive_whole_from_any_thread() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = make(dir.path()).expect("a link root");
        let lib = format!("-L{}", root.join("lib64").display());
        compile(dir.path(), &[("driver.c", DRIVER)], &["-O1", "-fPIC", "-shared", "-o", "libcuda.so.1"]);
        compile(
            dir.path(),
            &[("main.c", MAIN), ("caller.c", CALLER)],
            &["-o", "main", "-pthread", &lib, "-lcuda"],
        );
        assert_eq!(exit_code(dir.path()), Some(0));
    }

    #[test]
    fn a_shared_library_links_and_keeps_its_stubs_to_itself() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = make(dir.path()).expect("a link root");
        let (lib, own) =
            (format!("-L{}", root.join("lib64").display()), format!("-L{}", dir.path().display()));
        compile(dir.path(), &[("driver.c", DRIVER)], &["-O1", "-fPIC", "-shared", "-o", "libcuda.so.1"]);
        let shared = ["-fPIC", "-shared", "-pthread", "-o", "libcaller.so", &lib, "-lcuda"];
        compile(dir.path(), &[("caller.c", CALLER)], &shared);
        let exports = Command::new("nm").arg("-D").arg(dir.path().join("libcaller.so")).output().expect("nm");
        let exports = String::from_utf8_lossy(&exports.stdout).into_owned();
        assert!(exports.contains(" calls_from_threads") && !exports.contains(" cu"), "{exports}");
        compile(dir.path(), &[("main.c", MAIN)], &["-o", "main", &own, "-lcaller"]);
        assert_eq!(exit_code(dir.path()), Some(0));
    }

    #[test]
    fn the_root_holds_what_linkers_need_and_can_be_remade() {
        let dir = tempfile::tempdir().expect("a folder");
        make(dir.path()).expect("a link root");
        make(dir.path()).expect("the same once more");
        let names = |folder: &Path| -> Vec<String> {
            let entries = fs::read_dir(folder).expect("it is there").flatten();
            let mut names: Vec<_> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names(dir.path()), ["lib64"]);
        assert_eq!(names(&dir.path().join("lib64")), ["libcuda.so", "libcuda_forward.a"]);
    }

    #[test]
    fn symbols_are_sorted_and_unique() {
        let names: Vec<&str> = SYMBOLS.lines().collect();
        assert_eq!(names.len(), 353);
        assert!(names.is_sorted_by(|a, b| a < b) && names.iter().all(|name| name.starts_with("cu")));
    }
}
