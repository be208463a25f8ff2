//! Registers that change hands between groups of warps: whole groups do so, by one instruction.

use cuda_std::Warp;
use ffpa_emulator::{Buffers, Counters, Emu, Fault, Launch, launch};

fn run(warps: usize, seed: u64, kernel: impl Fn(Emu<'_>) + Sync) -> Result<Counters, Fault> {
    launch(&Launch { grid: 1, warps, seed, ..Launch::default() }, &Buffers(vec![]), kernel)
}

/// What is said of a kernel's groups, on every seed.
fn apart(warps: usize, kernel: impl Fn(Emu<'_>) + Sync) -> Vec<String> {
    let said = |seed| match run(warps, seed, &kernel).expect_err("the fault was not found") {
        Fault::RegistersApart { positions } => positions,
        other => panic!("{other}"),
    };
    let first = said(0);
    (1..20).for_each(|seed| assert_eq!(said(seed), first));
    first
}

#[test]
fn groups_may_change_theirs_each_in_its_way() {
    let kernel = |warp: Emu<'_>| match warp.warp_id() {
        0..4 => warp.decrease_registers::<24>(),
        4..8 => warp.increase_registers::<256>(),
        _ => {}
    };
    // The warps of the last group, which is not whole, do nothing.
    assert!(run(10, 0, kernel).is_ok());
}

#[test]
fn a_warp_that_stays_out_is_found() {
    let positions = apart(8, |warp| {
        if warp.warp_id() != 6 {
            warp.increase_registers::<232>();
        }
    });
    assert!(positions[0].starts_with("warp 4 increases its registers to 232 at "), "{positions:?}");
    assert_eq!(positions[2], "warp 6 does not");
}

#[test]
fn warps_that_do_not_exist_stay_out_too() {
    let positions = apart(6, |warp| warp.decrease_registers::<40>());
    assert_eq!(positions[2..], ["there is no warp 6", "there is no warp 7"]);
}

#[test]
fn two_instructions_are_not_one() {
    let with_other_counts = apart(4, |warp| match warp.warp_id() {
        0 => warp.decrease_registers::<32>(),
        _ => warp.decrease_registers::<24>(),
    });
    assert!(with_other_counts[0].starts_with("warp 0 decreases its registers to 32 at "));
    let on_other_lines = apart(4, |warp| match warp.warp_id() {
        0 => warp.decrease_registers::<24>(),
        _ => warp.decrease_registers::<24>(),
    });
    assert_ne!(on_other_lines[0].rsplit(" at ").next(), on_other_lines[1].rsplit(" at ").next());
    let repeated = apart(4, |warp| {
        for _ in 0..1 + warp.warp_id() / 3 {
            warp.increase_registers::<64>();
        }
    });
    assert_eq!(repeated[0], "warp 0 does not");
    assert!(repeated[3].starts_with("warp 3 increases its registers to 64 at "));
}

#[test]
fn counts_are_multiples_of_8_from_24_to_256() {
    fn check<const COUNT: u32>() {
        let kernels: [fn(Emu<'_>); 2] =
            [|warp| warp.increase_registers::<COUNT>(), |warp| warp.decrease_registers::<COUNT>()];
        for kernel in kernels {
            let fault = run(4, 0, kernel).expect_err("the fault was not found");
            assert!(matches!(fault, Fault::RegisterCount { count, .. } if count == COUNT), "{fault}");
        }
    }
    check::<16>();
    check::<100>();
    check::<264>();
}
