//! The swizzle is a permutation, steps land where the formula says, and no access conflicts.

use std::collections::BTreeSet;

use cuda_std::swizzle::{CHUNK, Cursor, Strides, bank_conflicts};

/// Row widths of 16-bit tiles for head dims 64 to 1024.
const ROW_BYTES: [u32; 7] = [128, 256, 384, 512, 640, 1024, 2048];

fn place(row_bytes: u32, row: u32, chunk: u32) -> u32 {
    Cursor::new(0, Strides::of_rows(row_bytes), row, chunk).at(Strides::of_rows(row_bytes), 0, 0)
}

#[test]
fn every_chunk_has_a_place_of_its_own_in_its_row() {
    for row_bytes in ROW_BYTES {
        for row in 0..16 {
            let places: BTreeSet<u32> = (0..row_bytes / CHUNK).map(|c| place(row_bytes, row, c)).collect();
            assert_eq!(places.len() as u32, row_bytes / CHUNK);
            assert!(places.iter().all(|p| p / row_bytes == row && p % CHUNK == 0));
        }
    }
}

#[test]
fn the_formula_is_the_one_of_the_documentation() {
    for row_bytes in ROW_BYTES {
        for row in 0..64 {
            for chunk in 0..row_bytes / CHUNK {
                assert_eq!(place(row_bytes, row, chunk), row * row_bytes + (chunk ^ (row % 8)) * CHUNK);
            }
        }
    }
}

#[test]
fn steps_land_where_the_formula_says() {
    for row_bytes in ROW_BYTES {
        let chunks = row_bytes / CHUNK;
        for row in 0..8 {
            for step in (0..128).step_by(4) {
                // A place in the first two chunks steps by even amounts; the rows of a step of 4 must not carry.
                for chunk in 0..2 {
                    let cursor = Cursor::new(0, Strides::of_rows(row_bytes), row, chunk);
                    for right in (0..chunks).step_by(2) {
                        let want = place(row_bytes, row + step, chunk + right);
                        if step % 8 == 0 || row < 4 {
                            assert_eq!(cursor.at(Strides::of_rows(row_bytes), step, right), want);
                        }
                    }
                }
                // A place anywhere steps by whole lines.
                for chunk in 0..chunks {
                    let cursor = Cursor::new(0, Strides::of_rows(row_bytes), row, chunk);
                    if step % 8 == 0 || row < 4 {
                        assert_eq!(
                            cursor.at(Strides::of_rows(row_bytes), step, 0),
                            place(row_bytes, row + step, chunk)
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn matrix_rows_and_row_copies_never_conflict() {
    for row_bytes in ROW_BYTES {
        for chunk in 0..row_bytes / CHUNK {
            let matrix: Vec<u32> = (0..8).map(|row| place(row_bytes, row, chunk)).collect();
            assert_eq!(bank_conflicts(&matrix, 16), 0);
        }
        for row in 0..8 {
            for first in (0..row_bytes / CHUNK).step_by(8) {
                let copy: Vec<u32> = (0..8).map(|i| place(row_bytes, row, first + i)).collect();
                assert_eq!(bank_conflicts(&copy, 16), 0);
            }
        }
    }
}

#[test]
fn without_the_swizzle_they_would() {
    let matrix: Vec<u32> = (0..8).map(|row| row * 128).collect();
    assert_eq!(bank_conflicts(&matrix, 16), 7);
    let same_word = [64; 32];
    assert_eq!(bank_conflicts(&same_word, 4), 0);
    let two_words_of_a_bank: Vec<u32> = (0..32).map(|lane| lane % 2 * 128).collect();
    assert_eq!(bank_conflicts(&two_words_of_a_bank, 4), 1);
}
