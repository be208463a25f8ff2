//! In what numbers the matrix products are computed.

use ffpa_kernels_gpu::config::{Arithmetic, Dtype};

pub use ffpa_kernels_gpu::config::Family;

/// What the products are computed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// In the 16-bit type of the tensors.
    #[default]
    Native,
    /// In eight bits, to which Q, K and V are brought first.
    Fp8(Fp8),
    /// In NVFP4, to which Q, K and V are brought first.
    NvFp4(NvFp4),
}

impl Precision {
    /// The family of kernels.
    pub const fn family(self) -> Family {
        match self {
            Precision::Native => Family::Native,
            Precision::Fp8(_) => Family::Fp8,
            Precision::NvFp4(_) => Family::NvFp4,
        }
    }

    /// What kernels compute in, on tensors of this type.
    pub(crate) const fn arithmetic(self, dtype: Dtype) -> Arithmetic {
        match self {
            Precision::Native => Arithmetic::native(dtype),
            Precision::Fp8(Fp8 { scores: ScoreNumbers::E4m3, .. }) => Arithmetic::E4m3,
            Precision::Fp8(Fp8 { scores: ScoreNumbers::Int8, .. }) => Arithmetic::Int8,
            Precision::NvFp4(_) => Arithmetic::NvFp4,
        }
    }

    /// The first query rows of every head that are computed in the tensors' own type although others are not, if that is
    /// said.
    pub(crate) const fn native_rows(self) -> Option<usize> {
        match self {
            Precision::Native => Some(0),
            Precision::Fp8(Fp8 { native_rows, .. }) | Precision::NvFp4(NvFp4 { native_rows, .. }) => {
                native_rows
            }
        }
    }

    /// Whether blocks of products with V are summed in f16.
    pub(crate) const fn f16_sums(self) -> bool {
        matches!(self, Precision::Fp8(Fp8 { f16_sums: true, .. }))
    }
}

/// What Q and K are brought to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScoreNumbers {
    /// e4m3: three bits of mantissa, and room for outliers.
    #[default]
    E4m3,
    /// Integers: four times as exact where a row's elements are alike.
    Int8,
}

/// What shares a scale of V.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueScales {
    /// A column, over all keys.
    Channel {
        /// Whether the column's mean is subtracted first, and added to the output.
        smooth: bool,
    },
    /// 64 keys, over all columns.
    Block,
}

/// How tensors are brought to eight bits (SageAttention 2).
///
/// Elements must be finite, and so must be, in f32: sums of a column of K or V; what is left of an element when its column's mean
/// is subtracted; with rotation, sums of a row of Q or K; and the largest magnitude of Q times that of K. What is not makes every
/// row that depends on it NaN, and with it those that share its scale or its mean: up to all rows of its head. Magnitudes below
/// 2^-100 are taken for zero where nothing larger shares their scale. Where V comes within a few percent of the largest number of
/// the output's type, so may its rounded numbers, with their mean added, come to lie beyond it.
///
/// Each row of Q has a scale, and of each 64 keys each quarter ([`scales`](ffpa_kernels_gpu::scales)). Probabilities are e4m3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Fp8 {
    /// What Q and K become.
    pub scores: ScoreNumbers,
    /// Whether the mean of all keys is subtracted from each: softmax does not see it, and what remains is smaller.
    pub smooth_k: bool,
    /// Whether Q and K are rotated before they are rounded, by default not: as many columns together as the largest power of two
    /// that divides the head dim, by a Walsh-Hadamard transform (incoherent processing; QuaRot, FlashAttention-3). Scores stay
    /// what they are, but a column of outliers is spread over others, and rows no longer have scales that it alone sets. Where no
    /// column sticks out it only costs time.
    pub rotation: bool,
    /// What shares a scale of V.
    pub value_scales: ValueScales,
    /// Whether products with V are summed in f16, over 64 keys at a time, and only these sums in f32: on GeForce cards up to Ada at
    /// twice the rate (SageAttention 2++). V is brought to smaller numbers for it, and sums are a little less exact. Kernels are
    /// compiled for sm_89, and run on later devices too; those of Blackwell have f32 sums at full rate.
    pub f16_sums: bool,
    /// Of every head so many query rows, the first ones, are computed in the 16-bit type of the tensors: by default those that
    /// see at most [`FEW_KEYS`](Self::FEW_KEYS) keys under a causal mask, and none without.
    ///
    /// Errors of quantisation average out over the keys that a row sees, and under a causal mask the first rows see few.
    pub native_rows: Option<usize>,
}

impl Default for Fp8 {
    fn default() -> Self {
        Fp8 {
            scores: ScoreNumbers::E4m3,
            smooth_k: true,
            rotation: false,
            value_scales: ValueScales::Channel { smooth: false },
            f16_sums: false,
            native_rows: None,
        }
    }
}

impl Fp8 {
    /// Query rows that see so many keys or fewer under a causal mask are computed in 16 bits if nothing else is asked for (FFPA's
    /// number).
    pub const FEW_KEYS: usize = 256;

    /// With Q and K in these numbers.
    pub fn with_scores(self, scores: ScoreNumbers) -> Self {
        Fp8 { scores, ..self }
    }

    /// With or without the mean key subtracted.
    pub fn with_smooth_k(self, smooth_k: bool) -> Self {
        Fp8 { smooth_k, ..self }
    }

    /// With or without Q and K rotated.
    pub fn with_rotation(self, rotation: bool) -> Self {
        Fp8 { rotation, ..self }
    }

    /// With these scales of V.
    pub fn with_value_scales(self, value_scales: ValueScales) -> Self {
        Fp8 { value_scales, ..self }
    }

    /// With or without sums in f16.
    pub fn with_f16_sums(self, f16_sums: bool) -> Self {
        Fp8 { f16_sums, ..self }
    }

    /// With the first `rows` query rows of every head in 16 bits; 0 for none.
    pub fn with_native_rows(self, rows: usize) -> Self {
        Fp8 { native_rows: Some(rows), ..self }
    }
}

/// How tensors are brought to NVFP4: e2m1 (a sign, two bits of exponent, one of fraction) with a scale in ue4m3 for each 16
/// neighbours (SageAttention 3, Zhang et al. 2025).
///
/// The 16 of Q and K are columns of a row, those of V and of the probabilities are keys, of 32 those whose numbers modulo 8 are
/// below 4, or the others. As in [`Fp8`] there are scales in f32 beside these, of each row of Q, each quarter of 64 keys of K and
/// each column of V: they bring the largest magnitude to 2688, the largest product of a number and a scale, so that no tensor is
/// too small or too large. What [`Fp8`] says of elements that are not finite holds here too.
///
/// On random numbers the output is within 19 % of what is exact (relative L1; cosine 0.982): most of that is Q and K. It is far less
/// where rows resemble each other, as those of models do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct NvFp4 {
    /// Whether the mean of all keys is subtracted from each: softmax does not see it, and what remains is smaller.
    pub smooth_k: bool,
    /// Whether the mean of each 128 rows of Q is subtracted from these; its products with the keys, which are not rounded, are
    /// added to the scores. Not in heads of fewer than 64 rows, which have little in common.
    pub smooth_q: bool,
    /// Whether each column's mean is subtracted from V, and added to the output.
    pub smooth_v: bool,
    /// As [`Fp8::native_rows`].
    pub native_rows: Option<usize>,
}

impl Default for NvFp4 {
    fn default() -> Self {
        NvFp4 { smooth_k: true, smooth_q: true, smooth_v: false, native_rows: None }
    }
}

impl NvFp4 {
    /// With or without the mean key subtracted.
    pub fn with_smooth_k(self, smooth_k: bool) -> Self {
        NvFp4 { smooth_k, ..self }
    }

    /// With or without the means of 128 rows subtracted from Q.
    pub fn with_smooth_q(self, smooth_q: bool) -> Self {
        NvFp4 { smooth_q, ..self }
    }

    /// With or without the columns' means subtracted from V.
    pub fn with_smooth_v(self, smooth_v: bool) -> Self {
        NvFp4 { smooth_v, ..self }
    }

    /// With the first `rows` query rows of every head in 16 bits; 0 for none.
    pub fn with_native_rows(self, rows: usize) -> Self {
        NvFp4 { native_rows: Some(rows), ..self }
    }
}
