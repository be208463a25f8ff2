//! Fragment maps against tables copied from the PTX ISA, and against each other.

use std::collections::BTreeSet;

use cuda_std::fragment::{ROW_BUTTERFLY, load_matrix, m16n8k16, m16n8k32, m16n8k64};

/// Group id and thread id in group, as the PTX ISA calls them.
fn ids(lane: u32) -> (u32, u32) {
    (lane / 4, lane % 4)
}

#[test]
fn a_is_the_table_of_the_isa() {
    // "Matrix fragments for mma.m16n8k16 with floating point type": row = groupID for a0, a1, a4, a5, else groupID + 8;
    // col = (threadID_in_group * 2) + (i & 1) for i < 4, else that + 8.
    for lane in 0..32 {
        let (group, thread) = ids(lane);
        for i in 0..8 {
            let row = if matches!(i, 0 | 1 | 4 | 5) { group } else { group + 8 };
            let column = thread * 2 + (i & 1) + if i < 4 { 0 } else { 8 };
            assert_eq!(m16n8k16::a(lane, i / 2, i % 2), (row, column), "lane {lane}, a{i}");
        }
    }
}

#[test]
fn b_is_the_table_of_the_isa() {
    // row = (threadID_in_group * 2) + (i & 1) for i < 2, else that + 8; col = groupID.
    for lane in 0..32 {
        let (group, thread) = ids(lane);
        for i in 0..4 {
            let row = thread * 2 + (i & 1) + if i < 2 { 0 } else { 8 };
            assert_eq!(m16n8k16::b(lane, i / 2, i % 2), (row, group), "lane {lane}, b{i}");
        }
    }
}

#[test]
fn a_of_bytes_is_the_table_of_the_isa() {
    // "Matrix fragments for mma.m16n8k32": row = groupID for 0 <= i < 4 and 8 <= i < 12, else groupID + 8;
    // col = (threadID_in_group * 4) + (i & 3) for i < 8, else that + 16.
    for lane in 0..32 {
        let (group, thread) = ids(lane);
        for i in 0..16 {
            let row = if matches!(i, 0..4 | 8..12) { group } else { group + 8 };
            let column = thread * 4 + (i & 3) + if i < 8 { 0 } else { 16 };
            assert_eq!(m16n8k32::a(lane, i / 4, i % 4), (row, column), "lane {lane}, a{i}");
        }
    }
}

#[test]
fn b_of_bytes_is_the_table_of_the_isa() {
    // row = (threadID_in_group * 4) + (i & 3) for i < 4, else that + 16; col = groupID.
    for lane in 0..32 {
        let (group, thread) = ids(lane);
        for i in 0..8 {
            let row = thread * 4 + (i & 3) + if i < 4 { 0 } else { 16 };
            assert_eq!(m16n8k32::b(lane, i / 4, i % 4), (row, group), "lane {lane}, b{i}");
        }
    }
}

#[test]
fn a_of_nibbles_is_the_table_of_the_isa() {
    // "Matrix fragments for mma.m16n8k64": row = groupID for 0 <= i < 8 and 16 <= i < 24, else groupID + 8;
    // col = (threadID_in_group * 8) + (i & 7) for i < 16, else that + 32.
    for lane in 0..32 {
        let (group, thread) = ids(lane);
        for i in 0..32 {
            let row = if matches!(i, 0..8 | 16..24) { group } else { group + 8 };
            let column = thread * 8 + (i & 7) + if i < 16 { 0 } else { 32 };
            assert_eq!(m16n8k64::a(lane, i / 8, i % 8), (row, column), "lane {lane}, a{i}");
        }
    }
}

#[test]
fn b_of_nibbles_is_the_table_of_the_isa() {
    // row = (threadID_in_group * 8) + (i & 7) for i < 8, else that + 32; col = groupID.
    for lane in 0..32 {
        let (group, thread) = ids(lane);
        for i in 0..16 {
            let row = thread * 8 + (i & 7) + if i < 8 { 0 } else { 32 };
            assert_eq!(m16n8k64::b(lane, i / 8, i % 8), (row, group), "lane {lane}, b{i}");
        }
    }
}

#[test]
fn scales_lie_where_the_instruction_looks_for_them() {
    // "Block scaling for mma.sync". Scales of A: of the quad of lanes g, those of the pair that the thread id names, the first
    // lane's for row g and the second's for row g + 8.
    for id in 0..2 {
        for row in 0..16 {
            let lane = 4 * (row % 8) + 2 * id + row / 8;
            assert_eq!(m16n8k64::scale_a(lane), (row, id));
        }
    }
    // Scales of B: of the quad of lanes n, that of the lane that the thread id names, for column n.
    for id in 0..4 {
        for column in 0..8 {
            assert_eq!(m16n8k64::scale_b(4 * column + id), (column, id));
        }
    }
    // Four bytes of scales are one for each block.
    assert_eq!(m16n8k64::K, 4 * m16n8k64::BLOCK);
}

#[test]
fn accumulators_are_the_table_of_the_isa() {
    // row = groupID for c0, c1, groupID + 8 for c2, c3; col = (threadID_in_group * 2) + (i & 1).
    for lane in 0..32 {
        let (group, thread) = ids(lane);
        for i in 0..4 {
            let want = (if i < 2 { group } else { group + 8 }, thread * 2 + (i & 1));
            assert_eq!(m16n8k16::accumulator(lane, i), want, "lane {lane}, c{i}");
            assert_eq!(m16n8k32::accumulator(lane, i), want, "lane {lane}, c{i}");
            assert_eq!(m16n8k64::accumulator(lane, i), want, "lane {lane}, c{i}");
        }
    }
}

#[test]
fn every_element_has_one_place() {
    let count = |elements: BTreeSet<(u32, u32)>, rows: u32, columns: u32| {
        assert_eq!(elements.len() as u32, rows * columns);
        assert!(elements.iter().all(|&(row, column)| row < rows && column < columns));
    };
    let lanes = || 0..32_u32;
    count(lanes().flat_map(|l| (0..8).map(move |i| m16n8k16::a(l, i / 2, i % 2))).collect(), 16, 16);
    count(lanes().flat_map(|l| (0..4).map(move |i| m16n8k16::b(l, i / 2, i % 2))).collect(), 16, 8);
    count(lanes().flat_map(|l| (0..4).map(move |i| m16n8k16::accumulator(l, i))).collect(), 16, 8);
    count(lanes().flat_map(|l| (0..16).map(move |i| m16n8k32::a(l, i / 4, i % 4))).collect(), 16, 32);
    count(lanes().flat_map(|l| (0..8).map(move |i| m16n8k32::b(l, i / 4, i % 4))).collect(), 32, 8);
    count(lanes().flat_map(|l| (0..32).map(move |i| m16n8k64::a(l, i / 8, i % 8))).collect(), 16, 64);
    count(lanes().flat_map(|l| (0..16).map(move |i| m16n8k64::b(l, i / 8, i % 8))).collect(), 64, 8);
    count(lanes().map(m16n8k64::scale_a).collect(), 16, 2);
    count(lanes().map(m16n8k64::scale_b).collect(), 8, 4);
}

#[test]
fn two_accumulator_tiles_are_an_a_operand() {
    // What lets P stay in registers: column tile j of the accumulators is half j of A's k.
    for lane in 0..32 {
        for register in 0..4 {
            for half in 0..2 {
                let (row, k) = m16n8k16::a(lane, register, half);
                let accumulator = 2 * (register & 1) + half;
                let (r, c) = m16n8k16::accumulator(lane, accumulator);
                assert_eq!((row, k), (r, c + 8 * (register >> 1)));
            }
        }
    }
}

#[test]
fn the_butterfly_reaches_the_lanes_of_a_row() {
    for lane in 0..32_u32 {
        let row = m16n8k16::accumulator(lane, 0).0;
        let reached: BTreeSet<u32> = (0..4)
            .map(|bits| lane ^ ((bits & 1) * ROW_BUTTERFLY[0]) ^ ((bits >> 1) * ROW_BUTTERFLY[1]))
            .collect();
        let same_row: BTreeSet<u32> = (0..32).filter(|&l| m16n8k16::accumulator(l, 0).0 == row).collect();
        assert_eq!(reached, same_row);
    }
}

/// Where `ldmatrix` puts the elements of matrix `i`: lane l gets `(l / 4, 2 (l % 4) + half)` of it in word `i`, or the
/// element across the diagonal if transposed. Rows of matrix `i` are those that lanes `8 i ..` point at.
fn loaded(map: impl Fn(u32) -> (u32, u32), lane: u32, word: u32, half: u32, transposed: bool) -> (u32, u32) {
    let (mut row, mut column) = (lane / 4, 2 * (lane % 4) + half);
    if transposed {
        (row, column) = (column, row);
    }
    let (memory_row, chunk) = map(8 * word + row);
    (memory_row, 8 * chunk + column)
}

#[test]
fn matrix_loads_fill_the_operands() {
    for lane in 0..32 {
        for word in 0..4 {
            for half in 0..2 {
                let a = loaded(load_matrix::a, lane, word, half, false);
                assert_eq!(a, m16n8k16::a(lane, word, half));

                let (operand, register) = (word / 2, word % 2);
                let (k, column) = m16n8k16::b(lane, register, half);
                let by_columns = loaded(load_matrix::b_by_columns, lane, word, half, false);
                assert_eq!(by_columns, (column + 8 * operand, k));

                let by_rows = loaded(load_matrix::b_by_rows, lane, word, half, true);
                assert_eq!(by_rows, (k, column + 8 * operand));
            }
        }
    }
}

#[test]
fn matrix_loads_fill_the_operands_of_bytes() {
    // Each 16-bit element that `ldmatrix` moves is two bytes.
    for lane in 0..32 {
        for word in 0..4 {
            for byte in 0..4 {
                let bytes = |(row, pair): (u32, u32)| (row, 2 * pair + byte % 2);
                let a = loaded(load_matrix::a, lane, word, byte / 2, false);
                assert_eq!(bytes(a), m16n8k32::a(lane, word, byte));

                let (operand, register) = (word / 2, word % 2);
                let (k, column) = m16n8k32::b(lane, register, byte);
                let b = loaded(load_matrix::b_by_columns, lane, word, byte / 2, false);
                assert_eq!(bytes(b), (column + 8 * operand, k));
            }
        }
    }
}

#[test]
fn matrix_loads_fill_the_operands_of_nibbles() {
    // Each 16-bit element that `ldmatrix` moves is four nibbles.
    for lane in 0..32 {
        for word in 0..4 {
            for nibble in 0..8 {
                let nibbles = |(row, four): (u32, u32)| (row, 4 * four + nibble % 4);
                let a = loaded(load_matrix::a, lane, word, nibble / 4, false);
                assert_eq!(nibbles(a), m16n8k64::a(lane, word, nibble));

                let (operand, register) = (word / 2, word % 2);
                let (k, column) = m16n8k64::b(lane, register, nibble);
                let b = loaded(load_matrix::b_by_columns, lane, word, nibble / 4, false);
                assert_eq!(nibbles(b), (column + 8 * operand, k));
            }
        }
    }
}
