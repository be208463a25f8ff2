//! `C += A B` in f32 on small row-major matrices, in a form that compilers vectorise.
//!
//! A tile of `TILE_M x TILE_N` of C stays in registers while k runs (Goto and van de Geijn 2008): with 8-lane vectors that
//! is 8 accumulators, enough to cover the latency of a fused multiply-add.

/// Rows of the register tile; `m` must be a multiple.
pub const TILE_M: usize = 4;
/// Columns of the register tile; `n` must be a multiple.
pub const TILE_N: usize = 16;

/// A matrix by rows: `data[row * stride + column]`.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub data: &'a [f32],
    pub stride: usize,
}

/// `C += A B`: C is `m x n` with rows `c_stride` apart, A is `m x k`, B is `k x n`.
#[inline(always)]
pub fn multiply_add<const FMA: bool>(
    [m, n, k]: [usize; 3],
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut [f32],
    c_stride: usize,
) {
    for i in (0..m).step_by(TILE_M) {
        for j in (0..n).step_by(TILE_N) {
            let mut tile = [[0.0_f32; TILE_N]; TILE_M];
            let rows: [&[f32]; TILE_M] = std::array::from_fn(|r| &a.data[(i + r) * a.stride..][..k]);
            #[allow(clippy::needless_range_loop, reason = "x runs along the rows of A and down B")]
            for x in 0..k {
                let b: &[f32; TILE_N] =
                    b.data[x * b.stride + j..][..TILE_N].try_into().expect("TILE_N elements");
                for r in 0..TILE_M {
                    let a = rows[r][x];
                    for s in 0..TILE_N {
                        tile[r][s] = multiply_add_scalar::<FMA>(a, b[s], tile[r][s]);
                    }
                }
            }
            for (r, tile) in tile.iter().enumerate() {
                let c = &mut c[(i + r) * c_stride + j..][..TILE_N];
                c.iter_mut().zip(tile).for_each(|(c, t)| *c += t);
            }
        }
    }
}

/// `a * b + c`: fused where the target has the instruction, since without it the fused form is a library call.
#[inline(always)]
fn multiply_add_scalar<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}
