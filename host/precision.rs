//! In what numbers the matrix products are computed.

use std::fmt;

use ffpa_kernels_gpu::config::{Arithmetic, Dtype};

/// A family of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// In the 16-bit type of the tensors.
    Native,
    /// In FP8 (e4m3), or partly in 8-bit integers.
    Fp8,
    /// In NVFP4 (e2m1 with a scale per 16 elements).
    NvFp4,
}

impl Family {
    /// The name users type: `native`, `fp8` or `nvfp4`.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Native => "native",
            Family::Fp8 => "fp8",
            Family::NvFp4 => "nvfp4",
        }
    }

    /// That of a kernel.
    pub const fn of(arithmetic: Arithmetic) -> Option<Self> {
        match arithmetic {
            Arithmetic::F16 | Arithmetic::Bf16 => Some(Family::Native),
            Arithmetic::E4m3 | Arithmetic::Int8 => Some(Family::Fp8),
            _ => None,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the products are computed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// In the 16-bit type of the tensors.
    #[default]
    Native,
    /// In eight bits, to which Q, K and V are brought first.
    Fp8(Fp8),
    /// In NVFP4.
    NvFp4,
}

impl Precision {
    /// The family of kernels.
    pub const fn family(self) -> Family {
        match self {
            Precision::Native => Family::Native,
            Precision::Fp8(_) => Family::Fp8,
            Precision::NvFp4 => Family::NvFp4,
        }
    }

    /// What kernels compute in, on tensors of this type; `None` where there are none yet.
    pub(crate) const fn arithmetic(self, dtype: Dtype) -> Option<Arithmetic> {
        match self {
            Precision::Native => Some(Arithmetic::native(dtype)),
            Precision::Fp8(Fp8 { scores: ScoreNumbers::E4m3, .. }) => Some(Arithmetic::E4m3),
            Precision::Fp8(Fp8 { scores: ScoreNumbers::Int8, .. }) => Some(Arithmetic::Int8),
            Precision::NvFp4 => None,
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
