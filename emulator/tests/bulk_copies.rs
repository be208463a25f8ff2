//! Bulk tensor copies and mbarriers: what they do, and faults planted on purpose, each found on every seed.

use cuda_std::Warp;
use ffpa_emulator::{Buffer, Buffers, Counters, Emu, Fault, Launch, TensorMap, launch};

const SEEDS: u64 = 50;
/// The tensor's rows, of 64 elements, and those of a box.
const ROWS: u64 = 6;
const BOX_ROWS: u32 = 4;
/// Bytes of a box.
const BOX: u32 = 128 * BOX_ROWS;
/// Where the mbarriers lie: behind two boxes.
const FULL: u32 = 2 * BOX;
const FREE: u32 = FULL + 8;

/// What a kernel does otherwise than it should.
#[derive(Clone, Copy)]
struct Plan {
    init_fence: bool,
    announced: u32,
    wait: bool,
    parity: u32,
    /// First column, row.
    place: [u32; 2],
    destination: u32,
    /// Bytes of shared memory.
    shared_bytes: u32,
    /// Where warp 0 stores 128 bytes before the copy, if it does, and whether a proxy fence follows.
    stored: Option<u32>,
    store_fence: bool,
    /// A second copy into the slot, and whether it awaits that both warps have read the first.
    again: bool,
    await_free: bool,
    /// Arrivals of each warp at the mbarrier of free slots.
    arrivals: u32,
}

const RIGHT: Plan = Plan {
    init_fence: true,
    announced: BOX,
    wait: true,
    parity: 0,
    place: [0, 0],
    destination: 0,
    shared_bytes: FREE + 8,
    stored: None,
    store_fence: true,
    again: false,
    await_free: true,
    arrivals: 1,
};

/// The element at a row and column of the tensor.
fn element(row: u32, column: u32) -> u16 {
    (row * 64 + column + 1) as u16
}

/// Runs two warps that copy a box, once or twice, and read it.
fn run(seed: u64, plan: Plan) -> Result<Counters, Fault> {
    #[repr(align(16))]
    struct Aligned([u8; 128 * ROWS as usize]);
    let byte = |i: u32| element(i / 128, i % 128 / 2).to_le_bytes()[i as usize % 2];
    let source = Aligned(std::array::from_fn(|i| byte(i as u32)));
    let buffers = Buffers(vec![Buffer::read_only("source", &source.0)]);
    let map = TensorMap {
        base: buffers.0[0].address(),
        sizes: [64, ROWS, 1, 1],
        strides: [128, 16, 16],
        box_sizes: [64, BOX_ROWS],
    };
    let map = map.encode();
    let map = (&raw const map) as u64;
    let shape =
        Launch { grid: 1, warps: 2, shared_bytes: plan.shared_bytes as usize, seed, ..Launch::default() };
    // SAFETY: the emulator checks every access.
    launch(&shape, &buffers, |warp| unsafe { kernel(warp, map, plan) })
}

/// # Safety
/// `map` is the address of a tensor map.
unsafe fn kernel(warp: Emu<'_>, map: u64, plan: Plan) {
    // SAFETY: the caller's; the emulator checks every access.
    unsafe {
        if warp.warp_id() == 0 {
            warp.mbarrier_init(FULL, 1); // the first mbarrier
            warp.mbarrier_init(FREE, 2);
            if plan.init_fence {
                warp.fence_barrier_init();
            }
        }
        warp.sync_threads();
        let copy = |row: u32| {
            warp.mbarrier_arrive_expect(FULL, plan.announced);
            let place = [plan.place[0], row, 0, 0];
            warp.copy_tensor(plan.destination, map, place, FULL); // the copy
        };
        if warp.warp_id() == 0 {
            if let Some(first) = plan.stored {
                warp.store_shared(warp.lane_id() * 4 + first, warp.splat(0)); // the store
                if plan.store_fence {
                    warp.fence_proxy_async();
                }
            }
            copy(plan.place[1]);
        }
        if plan.wait {
            warp.mbarrier_wait(FULL, plan.parity);
        }
        read(warp, plan.place[1]);
        for _ in 0..plan.arrivals {
            warp.mbarrier_arrive(FREE);
        }
        if plan.again {
            if warp.warp_id() == 0 {
                if plan.await_free {
                    warp.mbarrier_wait(FREE, 0);
                }
                copy(plan.place[1] + 1);
            }
            warp.mbarrier_wait(FULL, 1);
            read(warp, plan.place[1] + 1);
        }
    }
}

/// Reads the box and compares it with the tensor from a row on: swizzled, and zero outside.
///
/// # Safety
/// The emulator checks every access.
unsafe fn read(warp: Emu<'_>, first: u32) {
    for row in 0..BOX_ROWS {
        for chunk in 0..8_u32 {
            let address = row * 128 + (chunk ^ row) * 16;
            // SAFETY: the caller's.
            let words = unsafe { warp.load_shared_x4(warp.splat(address)) }; // the read
            for (i, word) in words.into_iter().enumerate() {
                let pair = [0, 1].map(|half| match first + row {
                    row if u64::from(row) < ROWS => element(row, chunk * 8 + 2 * i as u32 + half),
                    _ => 0,
                });
                let want = u32::from(pair[1]) << 16 | u32::from(pair[0]);
                assert_eq!(word.0, [want; 32], "row {row} chunk {chunk}");
            }
        }
    }
}

fn on_every_seed(plan: Plan, expected: impl Fn(&Fault) -> bool) {
    for seed in 0..SEEDS {
        let fault = run(seed, plan).expect_err("the fault was not found");
        assert!(expected(&fault), "{fault}");
    }
}

/// The number of the line that ends with a comment.
fn line_of(comment: &str) -> u32 {
    let ends = |line: &str| line.trim_end().ends_with(comment);
    include_str!("bulk_copies.rs").lines().position(ends).expect("the line is there") as u32 + 1
}

#[test]
fn boxes_arrive_swizzled_and_zero_filled() {
    for seed in 0..SEEDS {
        for row in [0, 1, 3, 5, 6, 100] {
            let counters = run(seed, Plan { place: [0, row], again: true, ..RIGHT });
            let counters = counters.unwrap_or_else(|fault| panic!("{fault}"));
            let rows = |first: u32| ROWS.saturating_sub(first.into()).min(BOX_ROWS.into());
            assert_eq!(counters.global_bytes_read, 128 * (rows(row) + rows(row + 1)));
            assert_eq!(counters.bulk_copies, 2);
        }
    }
}

#[test]
fn wrong_announcements_never_complete() {
    for announced in [0, BOX / 2, 2 * BOX] {
        on_every_seed(Plan { announced, ..RIGHT }, |fault| match fault {
            Fault::Barrier { positions } => positions.iter().any(|p| p.contains("waits for parity 0")),
            // Nothing announced and nothing arrived yet: a warp went on at once.
            Fault::CopyInFlight { .. } | Fault::Uninitialised { .. } => announced == 0,
            _ => false,
        });
    }
}

#[test]
fn a_missing_wait_is_found() {
    for plan in [Plan { wait: false, ..RIGHT }, Plan { parity: 1, ..RIGHT }] {
        on_every_seed(plan, |fault| match fault {
            Fault::CopyInFlight { copy, access, .. } => {
                let lines = [copy.location.line(), access.location.line()];
                lines == [line_of("// the copy"), line_of("// the read")]
            }
            // The other warp read before anything was started.
            Fault::Uninitialised { access, .. } => access.warp == 1,
            Fault::Race { first, .. } => first.warp == 1,
            _ => false,
        });
    }
}

#[test]
fn a_slot_filled_again_too_early_is_a_race() {
    on_every_seed(Plan { again: true, await_free: false, ..RIGHT }, |fault| match fault {
        Fault::Race { first, second, .. } => {
            first.location.line() == line_of("// the read")
                && second.location.line() == line_of("// the copy")
        }
        // The copy came first: then the read was too early.
        Fault::CopyInFlight { access, .. } => access.location.line() == line_of("// the read"),
        // Both phases were over before the other warp looked: to it the parity is that of the phase before.
        Fault::Barrier { positions } => positions[1].contains("waits for parity 0"),
        _ => false,
    });
}

#[test]
fn a_missing_proxy_fence_is_found() {
    let stored = Plan { stored: Some(0), ..RIGHT };
    assert!(run(0, stored).is_ok());
    on_every_seed(Plan { store_fence: false, ..stored }, |fault| match fault {
        Fault::ProxyFence { first, second, .. } => {
            first.location.line() == line_of("// the store")
                && second.location.line() == line_of("// the copy")
        }
        _ => false,
    });
    on_every_seed(Plan { init_fence: false, ..RIGHT }, |fault| {
        matches!(fault, Fault::ProxyFence { address: FULL, .. })
    });
}

#[test]
fn what_the_hardware_does_not_take_is_refused() {
    on_every_seed(Plan { place: [4, 0], ..RIGHT }, |fault| {
        matches!(fault, Fault::BoxUnaligned { column: 4, .. })
    });
    on_every_seed(Plan { destination: 64, ..RIGHT }, |fault| {
        matches!(fault, Fault::Misaligned { address: 64, alignment: 128, .. })
    });
    // Behind the mbarriers, where half of the box still fits.
    let behind = Plan { destination: FULL + 128, shared_bytes: FULL + 128 + BOX / 2, ..RIGHT };
    on_every_seed(behind, |fault| match fault {
        Fault::SharedOutOfRange { address, .. } => *address >= behind.shared_bytes,
        _ => false,
    });
}

/// Whether a fault is that the access on one line touched the mbarrier made on another.
fn touches_an_mbarrier(fault: &Fault, lines: [&str; 2]) -> bool {
    match fault {
        Fault::MbarrierTouched { address: FULL, made, access } => {
            [made.location.line(), access.location.line()] == lines.map(line_of)
        }
        _ => false,
    }
}

#[test]
fn a_box_or_a_store_over_an_mbarrier_is_found() {
    let roomy = Plan { shared_bytes: FULL + BOX, ..RIGHT };
    assert!(run(0, roomy).is_ok());
    // A box that begins before the mbarriers, ends behind them, and lies in shared memory as a whole.
    on_every_seed(Plan { destination: FULL - 128, ..roomy }, |fault| {
        touches_an_mbarrier(fault, ["// the first mbarrier", "// the copy"])
    });
    on_every_seed(Plan { stored: Some(FULL), ..roomy }, |fault| {
        touches_an_mbarrier(fault, ["// the first mbarrier", "// the store"])
    });
}

/// Two warps, of which one makes an mbarrier and the other does something else there, after a barrier or at any time.
fn run_over_an_mbarrier(seed: u64, ordered: bool, touch: &str) -> Fault {
    #[repr(align(16))]
    struct Aligned([u8; 16]);
    let source = Aligned([0; 16]);
    let buffers = Buffers(vec![Buffer::read_only("source", &source.0)]);
    let from = buffers.0[0].address();
    let shape = Launch { grid: 1, warps: 2, shared_bytes: FREE as usize + 8, seed, ..Launch::default() };
    // SAFETY: the emulator checks every access.
    let result = launch(&shape, &buffers, |warp| unsafe {
        if warp.warp_id() == 0 {
            warp.mbarrier_init(FULL, 1); // the mbarrier
        }
        if ordered {
            warp.sync_threads();
        }
        let everywhere = warp.splat(FULL);
        match touch {
            _ if warp.warp_id() == 0 => {}
            "// a load" => {
                warp.load_shared_f32(everywhere); // a load
            }
            "// a matrix load" => {
                warp.load_matrix_x4(everywhere); // a matrix load
            }
            "// an asynchronous copy" => {
                let source = warp.mul_wide(warp.splat(0), 0) + from;
                warp.cp_async(everywhere, source, warp.splat(16)); // an asynchronous copy
            }
            "// a second mbarrier" => warp.mbarrier_init(FULL, 1), // a second mbarrier
            _ => {
                let first = warp.less(warp.lane_id(), warp.splat(1));
                warp.store_shared_f32(everywhere, warp.splat_f32(0.0), first); // a store
            }
        }
    });
    result.expect_err("the fault was not found")
}

#[test]
fn nothing_but_its_own_operations_touches_an_mbarrier() {
    for touch in
        ["// a load", "// a matrix load", "// an asynchronous copy", "// a second mbarrier", "// a store"]
    {
        for seed in 0..SEEDS {
            let fault = run_over_an_mbarrier(seed, true, touch);
            assert!(touches_an_mbarrier(&fault, ["// the mbarrier", touch]), "{fault}");
        }
    }
}

#[test]
fn an_mbarrier_is_made_where_nothing_else_is_going_on() {
    let mut races = 0;
    for seed in 0..SEEDS {
        let fault = run_over_an_mbarrier(seed, false, "// a store");
        match &fault {
            Fault::Race { first, second, .. } => {
                let lines = [first.location.line(), second.location.line()];
                assert_eq!(lines, ["// a store", "// the mbarrier"].map(line_of));
                races += 1;
            }
            _ => assert!(touches_an_mbarrier(&fault, ["// the mbarrier", "// a store"]), "{fault}"),
        }
    }
    assert!(races > 0, "the store never came first");
}

#[test]
fn too_few_arrivals_are_a_deadlock() {
    on_every_seed(Plan { again: true, arrivals: 0, ..RIGHT }, |fault| {
        // Warps that wait at mbarriers are at no common barrier, and that is not what is wrong.
        let said = fault.to_string();
        assert!(
            said.starts_with("no warp can go on: warp 0 waits for parity 0 of the mbarrier at 1032"),
            "{said}"
        );
        matches!(fault, Fault::Barrier { .. })
    });
}
