//! Faults planted on purpose: each is found on every seed, with the lines that made it.

use cuda_std::Warp;
use ffpa_emulator::{Buffer, Buffers, Counters, Emu, Fault, Launch, launch};

const SEEDS: u64 = 50;

/// A CTA of two warps with a kilobyte of shared memory, and 512 bytes of global memory to read and to write.
fn run(seed: u64, kernel: impl Fn(Emu<'_>, u64, u64) + Sync) -> Result<Counters, Fault> {
    #[repr(align(16))]
    struct Aligned([u8; 512]);
    let (source, mut target) = (Aligned([7; 512]), Aligned([0; 512]));
    let buffers =
        Buffers(vec![Buffer::read_only("source", &source.0), Buffer::read_write("target", &mut target.0)]);
    let (from, to) = (buffers.0[0].address(), buffers.0[1].address());
    let shape = Launch { grid: 1, warps: 2, shared_bytes: 1024, seed, ..Launch::default() };
    launch(&shape, &buffers, |warp| kernel(warp, from, to))
}

fn on_every_seed(kernel: impl Fn(Emu<'_>, u64, u64) + Sync, expected: impl Fn(&Fault)) {
    for seed in 0..SEEDS {
        expected(&run(seed, &kernel).expect_err("the fault was not found"));
    }
}

/// Each lane's word of a row of 128 bytes, the rows by warps.
fn own_word<W: Warp>(warp: W) -> W::U32 {
    warp.lane_id() * 4 + warp.warp_id() * 128
}

/// Each lane's 16 bytes, from `offset` on.
fn own_chunk<W: Warp>(warp: W, offset: u32) -> W::U32 {
    warp.lane_id() * 16 + offset
}

/// The word of the same lane in the other warp's row.
fn others_word<W: Warp>(warp: W) -> W::U32 {
    warp.lane_id() * 4 + (1 - warp.warp_id()) * 128
}

/// Two warps write a row each, twice, and read 16 bytes of the other's in each lane.
fn exchange<W: Warp>(warp: W, barrier: bool) {
    // SAFETY: the emulator checks every access.
    unsafe {
        warp.store_shared(own_word(warp), warp.splat(1));
        warp.sync_threads();
        warp.store_shared(own_word(warp), warp.splat(2)); // the second store
        if barrier {
            warp.sync_threads();
        }
        let others = (warp.lane_id() % 8) * 16 + (1 - warp.warp_id()) * 128;
        warp.load_shared_x4(others); // the load
    }
}

#[test]
fn a_store_to_what_the_whole_warp_read_is_a_race() {
    // SAFETY: the emulator checks every access.
    let kernel = |warp: Emu<'_>, synchronised: bool| unsafe {
        let (own, everyone) = (warp.lane_id() * 4, warp.splat(0));
        warp.store_shared(own + warp.warp_id() * 128, warp.splat(1));
        warp.sync_threads();
        if warp.warp_id() == 0 {
            warp.load_shared_f32(everyone);
            if synchronised {
                warp.sync_warp();
            }
            // By the last lane that read it.
            let last = !warp.less(warp.lane_id(), warp.splat(31));
            warp.store_shared_f32(everyone, warp.splat_f32(2.0), last);
        }
    };
    assert!(run(0, |warp, _, _| kernel(warp, true)).is_ok());
    on_every_seed(
        |warp, _, _| kernel(warp, false),
        |fault| assert!(matches!(fault, Fault::Race { address: 0, .. }), "{fault}"),
    );
}

#[test]
fn a_missing_barrier_is_a_race() {
    assert!(run(0, |warp, _, _| exchange(warp, true)).is_ok());
    on_every_seed(
        |warp, _, _| exchange(warp, false),
        |fault| match fault {
            Fault::Race { first, second, .. } => {
                assert_ne!(first.warp, second.warp);
                let lines = [first.location.line(), second.location.line()];
                let (store, load) = (line_of("; // the second store"), line_of("; // the load"));
                assert!(lines == [store, load] || lines == [load, store], "{lines:?}");
            }
            other => panic!("{other}"),
        },
    );
}

#[test]
fn overwriting_what_another_warp_may_still_read_is_a_race() {
    on_every_seed(
        |warp, _, _| {
            // SAFETY: the emulator checks every access.
            unsafe {
                warp.store_shared(own_word(warp), warp.splat(1));
                warp.sync_threads();
                warp.load_shared_x4((warp.lane_id() % 8) * 16 + (1 - warp.warp_id()) * 128); // read the other's
                warp.store_shared(own_word(warp), warp.splat(2)); // no barrier before this
            }
        },
        |fault| match fault {
            Fault::Race { first, second, .. } => {
                let lines = [first.location.line(), second.location.line()];
                let (load, store) = (line_of("// read the other's"), line_of("// no barrier before this"));
                assert!(lines == [load, store] || lines == [store, load], "{lines:?}");
            }
            other => panic!("{other}"),
        },
    );
}

#[test]
fn lanes_of_one_warp_need_a_sync_too() {
    let kernel = |sync: bool| {
        move |warp: Emu<'_>, _: u64, _: u64| {
            // SAFETY: the emulator checks every access.
            unsafe {
                warp.store_shared(own_word(warp), warp.lane_id()); // each lane its own
                if sync {
                    warp.sync_warp();
                }
                warp.load_shared_x4((warp.lane_id() % 8) * 16 + warp.warp_id() * 128); // four lanes' words
            }
        }
    };
    assert!(run(0, kernel(true)).is_ok());
    on_every_seed(kernel(false), |fault| match fault {
        Fault::Race { first, second, .. } => {
            assert_eq!(first.warp, second.warp);
            assert_eq!(first.location.line(), line_of("// each lane its own"));
            assert_eq!(second.location.line(), line_of("// four lanes' words"));
        }
        other => panic!("{other}"),
    });
}

/// Copies 512 bytes and reads them.
fn copy_and_read<W: Warp>(warp: W, from: u64, wait: bool) {
    if warp.warp_id() == 1 {
        return;
    }
    // SAFETY: the emulator checks every access.
    unsafe {
        let source = warp.mul_wide(warp.lane_id(), 16) + from;
        warp.cp_async(own_chunk(warp, 0), source, warp.splat(16)); // the copy
        warp.cp_async_commit_group();
        if wait {
            warp.cp_async_wait_group::<0>();
        }
        warp.load_shared_x4(own_chunk(warp, 0)); // the read
    }
}

#[test]
fn a_missing_wait_is_found() {
    assert!(run(0, |warp, from, _| copy_and_read(warp, from, true)).is_ok());
    on_every_seed(
        |warp, from, _| copy_and_read(warp, from, false),
        |fault| match fault {
            Fault::CopyInFlight { copy, access, .. } => {
                assert_eq!(copy.location.line(), line_of("; // the copy"));
                assert_eq!(access.location.line(), line_of("; // the read"));
            }
            other => panic!("{other}"),
        },
    );
}

#[test]
fn waiting_is_not_a_barrier() {
    on_every_seed(
        |warp, from, _| {
            // SAFETY: the emulator checks every access.
            unsafe {
                let offset = warp.warp_id() * 512;
                let source = warp.mul_wide(warp.lane_id(), 16) + from;
                warp.cp_async(own_chunk(warp, offset), source, warp.splat(16));
                warp.cp_async_commit_group();
                warp.cp_async_wait_group::<0>();
                warp.load_shared_x4(own_chunk(warp, 512 - offset)); // the other warp's copy
            }
        },
        |fault| {
            let access = match fault {
                Fault::Race { second, .. } => second,
                Fault::CopyInFlight { access, .. } | Fault::Uninitialised { access, .. } => access,
                other => panic!("{other}"),
            };
            let lines =
                [line_of("// the other warp's copy"), line_of("warp.cp_async(own_chunk(warp, offset)")];
            assert!(lines.contains(&access.location.line()), "{fault}");
        },
    );
}

#[test]
fn a_slot_used_again_too_early_is_a_race() {
    on_every_seed(
        |warp, from, _| {
            // SAFETY: the emulator checks every access.
            unsafe {
                let source = warp.mul_wide(warp.lane_id(), 16) + from;
                if warp.warp_id() == 0 {
                    warp.cp_async(own_chunk(warp, 0), source, warp.splat(16));
                    warp.cp_async_commit_group();
                    warp.cp_async_wait_group::<0>();
                }
                warp.sync_threads();
                if warp.warp_id() == 1 {
                    warp.load_matrix_x4(own_chunk(warp, 0)); // still reading
                } else {
                    warp.cp_async(own_chunk(warp, 0), source, warp.splat(16)); // the next copy
                    warp.cp_async_commit_group();
                    warp.cp_async_wait_group::<0>();
                }
            }
        },
        |fault| match fault {
            Fault::Race { first, second, .. } => {
                let lines = [first.location.line(), second.location.line()];
                let (load, copy) = (line_of("// still reading"), line_of("; // the next copy"));
                assert!(lines == [load, copy] || lines == [copy, load], "{lines:?}");
            }
            Fault::CopyInFlight { access, .. } => {
                assert_eq!(access.location.line(), line_of("// still reading"))
            }
            other => panic!("{other}"),
        },
    );
}

#[test]
fn a_copy_that_nobody_waits_for_is_found() {
    on_every_seed(
        |warp, from, _| {
            let source = warp.mul_wide(warp.lane_id(), 16) + from;
            // SAFETY: the emulator checks every access.
            unsafe { warp.cp_async(own_chunk(warp, warp.warp_id() * 512), source, warp.splat(16)) }; // forgotten
        },
        |fault| match fault {
            Fault::CopyNeverAwaited { copy } => assert_eq!(copy.location.line(), line_of("}; // forgotten")),
            other => panic!("{other}"),
        },
    );
}

#[test]
fn shared_memory_ends() {
    on_every_seed(
        // SAFETY: the emulator checks every access.
        |warp, _, _| unsafe { warp.store_shared(warp.lane_id() * 4 + 900, warp.splat(0)) }, // past the end
        |fault| match fault {
            Fault::SharedOutOfRange { address: 1024, limit: 1024, access } => {
                assert_eq!((access.lane, access.location.line()), (31, line_of("}, // past the end")));
            }
            other => panic!("{other}"),
        },
    );
}

#[test]
fn wide_accesses_are_aligned() {
    on_every_seed(
        |warp, _, _| {
            // SAFETY: the emulator checks every access.
            unsafe { warp.load_matrix_x4(warp.lane_id() * 16 + 8) }; // eight bytes off
        },
        |fault| match fault {
            Fault::Misaligned { address: 8, alignment: 16, access } => {
                assert_eq!((access.lane, access.location.line()), (0, line_of("}; // eight bytes off")));
            }
            other => panic!("{other}"),
        },
    );
}

#[test]
fn global_accesses_stay_in_their_buffers() {
    on_every_seed(
        |warp, _, to| {
            let address = warp.mul_wide(warp.lane_id(), 4) + (to + 512 - 64);
            let everywhere = warp.less(warp.lane_id(), warp.splat(32));
            // SAFETY: the emulator checks every access.
            unsafe { warp.store_global_f32(address, warp.splat_f32(1.0), everywhere) }; // half of it outside
        },
        |fault| match fault {
            Fault::GlobalOutOfRange { nearest, access, .. } => {
                assert_eq!((access.lane, access.location.line()), (16, line_of("}; // half of it outside")));
                assert!(nearest.contains("byte 512 of the 512 bytes of target"), "{nearest}");
            }
            // The source may lie right behind the target.
            Fault::ReadOnly { access, .. } => assert_eq!(access.lane, 16),
            other => panic!("{other}"),
        },
    );
}

#[test]
fn inputs_are_read_only() {
    on_every_seed(
        |warp, from, _| {
            let address = warp.mul_wide(warp.lane_id(), 4) + from;
            let everywhere = warp.less(warp.lane_id(), warp.splat(32));
            // SAFETY: the emulator checks every access.
            unsafe { warp.store_global_f32(address, warp.splat_f32(1.0), everywhere) }; // to an input
        },
        |fault| match fault {
            Fault::ReadOnly { buffer, access } => {
                assert_eq!(
                    (buffer.as_str(), access.location.line()),
                    ("source", line_of("}; // to an input"))
                );
            }
            other => panic!("{other}"),
        },
    );
}

#[test]
fn a_barrier_that_one_warp_skips_is_found() {
    on_every_seed(
        |warp, _, _| {
            if warp.warp_id() == 0 {
                warp.sync_threads(); // alone
            }
        },
        |fault| match fault {
            Fault::Barrier { positions } => {
                assert!(
                    positions[0].contains(&format!("faults.rs:{}:", line_of("; // alone"))),
                    "{positions:?}"
                );
                assert_eq!(positions[1], "warp 1 has finished");
            }
            other => panic!("{other}"),
        },
    );
}

#[test]
fn two_barriers_are_not_one() {
    on_every_seed(
        |warp, _, _| {
            if warp.warp_id() == 0 {
                warp.sync_threads(); // the first
            } else {
                warp.sync_threads(); // another
            }
        },
        |fault| match fault {
            Fault::Barrier { positions } => {
                let at = |text| format!("faults.rs:{}:", line_of(text));
                assert!(
                    positions[0].contains(&at("; // the first"))
                        && positions[1].contains(&at("; // another"))
                );
            }
            other => panic!("{other}"),
        },
    );
}

#[test]
fn unwritten_memory_is_not_read() {
    on_every_seed(
        |warp, _, _| {
            // SAFETY: the emulator checks every access.
            unsafe { warp.load_shared_x4(own_chunk(warp, 0)) }; // never written
        },
        |fault| match fault {
            Fault::Uninitialised { address: 0, access } => {
                assert_eq!(access.location.line(), line_of("}; // never written"));
            }
            other => panic!("{other}"),
        },
    );
}

#[test]
fn a_panic_in_a_kernel_is_a_fault() {
    on_every_seed(
        |warp, _, _| {
            let _ = warp.splat(u32::MAX) + warp.lane_id();
        },
        |fault| match fault {
            Fault::Panicked { message, .. } => assert!(message.contains("addition overflows"), "{message}"),
            other => panic!("{other}"),
        },
    );
}

#[test]
fn helpers_pass_their_callers_line_on() {
    #[track_caller]
    fn helper<W: Warp>(warp: W) {
        // SAFETY: the emulator checks every access.
        unsafe { warp.load_shared_x4(others_word(warp) / 16 * 16) };
    }
    on_every_seed(
        |warp, _, _| helper(warp), // the algorithm's line
        |fault| match fault {
            Fault::Uninitialised { access, .. } => {
                assert_eq!(access.location.line(), line_of("helper(warp), // the algorithm's line"));
            }
            other => panic!("{other}"),
        },
    );
}

/// The line of this file that holds `text`, other than as an argument of this function.
fn line_of(text: &str) -> u32 {
    let source = include_str!("faults.rs");
    let lines = source
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains(text) && !line.contains("line_of(") && !line.contains("at(\""));
    let lines: Vec<usize> = lines.map(|(i, _)| i + 1).collect();
    assert_eq!(lines.len(), 1, "{text:?} stands on lines {lines:?}");
    lines[0] as u32
}
