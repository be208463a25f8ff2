//! The suite as data: every file of `tests/cases` is a list of calls that share a subject.

use serde::Deserialize;

/// One call, on every backend in f16 and in bf16.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    #[serde(default = "one")]
    pub batch: usize,
    #[serde(default = "one")]
    pub heads: usize,
    /// Defaults to `heads`.
    pub kv_heads: Option<usize>,
    pub q_len: usize,
    /// Defaults to `q_len`.
    pub kv_len: Option<usize>,
    pub d: usize,
    #[serde(default)]
    pub causal: bool,
    /// Defaults to `1 / sqrt(d)`.
    pub scale: Option<f32>,
    #[serde(default)]
    pub layout: LayoutKind,
    /// Standard deviation of Q and K.
    #[serde(default = "unit")]
    pub spread: f64,
    /// An attention mask.
    pub mask: Option<MaskCase>,
    /// Dropout rate.
    pub dropout: Option<f32>,
    /// Added to every element of V, to give the output a mean.
    #[serde(default)]
    pub v_offset: f64,
    /// By how much the magnitudes of the sixth column of Q and K are larger than others.
    #[serde(default)]
    pub outlier: f64,
    /// Rows of each head, the first ones, that are in 16 bits where others are in eight.
    pub native_rows: Option<usize>,
    #[serde(default)]
    pub seed: u64,
    /// Whether the emulator runs it too: not if it has tens of thousands of tiles.
    #[serde(default = "yes")]
    pub emulate: bool,
    /// The public bug report that the case comes from.
    pub origin: Option<String>,
}

/// A mask.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskCase {
    pub element: MaskElementKind,
    /// A character per dimension, the last of batch, heads, rows and keys: `1` if the mask has one of it, any other if it has
    /// all.
    pub dimensions: String,
    #[serde(default)]
    pub pattern: MaskPattern,
}

/// What a mask's elements are.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum MaskElementKind {
    Bool,
    F16,
    Bf16,
    F32,
}

/// Which keys a mask hides.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum MaskPattern {
    /// Any, and of additive ones the others are shifted.
    #[default]
    Random,
    /// All before the 150th.
    First,
    /// All from the 50th on.
    Last,
    /// Those from the 60th to the 200th.
    Middle,
    /// All, in every second row, and in the first 20.
    Rows,
    /// None, but all scores are shifted by the least finite number.
    Least,
}

/// How tensors lie in memory.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum LayoutKind {
    #[default]
    Bhnd,
    Bnhd,
    /// Q, K and V as views of one projection `[batch, length, heads, head dim]`.
    FusedQkv,
    /// Rows, heads and batch entries with gaps between them.
    Padded,
    /// All key/value heads are one in memory.
    BroadcastKv,
    /// The keys and values of all batch entries are one in memory.
    BroadcastBatch,
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

fn unit() -> f64 {
    1.0
}

impl Case {
    pub fn kv_heads(&self) -> usize {
        self.kv_heads.unwrap_or(self.heads)
    }

    pub fn kv_len(&self) -> usize {
        self.kv_len.unwrap_or(self.q_len)
    }

    pub fn scale(&self) -> f32 {
        self.scale.unwrap_or(1.0 / (self.d as f32).sqrt())
    }
}

#[derive(Deserialize)]
struct File {
    case: Vec<Case>,
}

/// The cases of `tests/cases/<name>.toml`.
pub fn load(name: &str) -> Vec<Case> {
    let path = directory().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file: File = toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(!file.case.is_empty());
    file.case
}

/// Where the cases lie: beside the sources, or where `FFPA_TEST_CASES` says, on machines without them.
pub fn directory() -> std::path::PathBuf {
    std::env::var_os("FFPA_TEST_CASES")
        .map_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases").into(), Into::into)
}
