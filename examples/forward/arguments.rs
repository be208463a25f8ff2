//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use ffpa::{Arch, Dtype, Fp8, NvFp4, Precision, ScoreNumbers, ValueScales};

/// Computes fused attention forward on tensors from a safetensors file.
#[derive(Parser)]
#[command(version)]
pub struct Arguments {
    /// A safetensors file with 4-D tensors q, k and v (f16, bf16 or f32); without it, a shipped sample
    pub input: Option<PathBuf>,
    /// What stands before q, k and v in the tensors' names [default: none; for the sample, layer0.]
    #[arg(long)]
    pub prefix: Option<String>,
    /// Where to write o (and lse, f32 [batch, heads, length])
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// What computes: auto is cuda where a driver and the feature are there, else cpu
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: BackendArgument,
    /// Which device to emulate [default: sm_89]
    #[arg(long, value_parser = parse_arch)]
    pub arch: Option<Arch>,
    /// Which kernels
    #[arg(long, value_enum, default_value = "native")]
    pub family: FamilyArgument,
    /// What Q and K become with --family fp8 [default: e4m3]
    #[arg(long, value_enum)]
    pub qk: Option<ScoreArgument>,
    /// Whether the mean key is subtracted from all keys, with --family fp8 [default: on]
    #[arg(long, value_enum)]
    pub smooth_k: Option<Switch>,
    /// Rotate Q and K before they are rounded, which spreads columns of outliers, with --family fp8
    #[arg(long)]
    pub rotate: bool,
    /// What shares a scale of V, with --family fp8 [default: channel]
    #[arg(long, value_enum)]
    pub v_scale: Option<ValueScaleArgument>,
    /// What products with V are summed in, over 64 keys at a time, with --family fp8 [default: f32]
    #[arg(long, value_enum)]
    pub sums: Option<SumArgument>,
    /// Compute the first N query rows in the tensors' own type, with --family fp8 [default: 256 with --causal, else 0]
    #[arg(long, value_name = "N")]
    pub hybrid: Option<usize>,
    /// Element type to compute in [default: the file's; bf16 for f32 files]
    #[arg(long, value_parser = parse_dtype)]
    pub dtype: Option<Dtype>,
    /// Order of dimensions in the file and in the output
    #[arg(long, value_enum, default_value = "bhnd")]
    pub layout: LayoutArgument,
    /// Hide later keys: row r sees keys up to r + kv_len - q_len
    #[arg(long)]
    pub causal: bool,
    /// What scores are multiplied with [default: 1 / sqrt(head dim)]
    #[arg(long, allow_negative_numbers = true)]
    pub scale: Option<f32>,
    /// An attention mask of the file, by name: bool (true sees), or f16, bf16 or f32 to add; 2 to 4 dimensions of batch,
    /// heads, rows and keys, those of size 1 repeated
    #[arg(long, value_name = "NAME")]
    pub mask_key: Option<String>,
    /// Drop probabilities with this chance
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub dropout: Option<f32>,
    /// What decides which probabilities are dropped
    #[arg(long, default_value_t = 0, requires = "dropout")]
    pub seed: u64,
    /// Compare with f64 attention; exit with 1 if the error is too large
    #[arg(long)]
    pub check: bool,
}

/// A backend, by name.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendArgument {
    Auto,
    Cpu,
    Emulator,
    Cuda,
}

/// A family, by name.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FamilyArgument {
    Native,
    Fp8,
    Nvfp4,
}

/// What Q and K become, by name.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScoreArgument {
    E4m3,
    Int8,
}

/// What shares a scale, by name.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ValueScaleArgument {
    Channel,
    Block,
}

/// What products with V are summed in, by name.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SumArgument {
    F32,
    F16,
}

/// Yes or no.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

impl Arguments {
    /// What the products are computed in.
    pub fn precision(&self) -> Precision {
        match self.family {
            FamilyArgument::Native => Precision::Native,
            FamilyArgument::Fp8 => Precision::Fp8(self.fp8()),
            FamilyArgument::Nvfp4 => Precision::NvFp4(self.nvfp4()),
        }
    }

    fn fp8(&self) -> Fp8 {
        let fp8 = self.hybrid.map_or(Fp8::default(), |rows| Fp8::default().with_native_rows(rows));
        fp8.with_scores(match self.qk {
            None | Some(ScoreArgument::E4m3) => ScoreNumbers::E4m3,
            Some(ScoreArgument::Int8) => ScoreNumbers::Int8,
        })
        .with_smooth_k(self.smooth_k != Some(Switch::Off))
        .with_rotation(self.rotate)
        .with_value_scales(match self.v_scale {
            None | Some(ValueScaleArgument::Channel) => ValueScales::Channel { smooth: false },
            Some(ValueScaleArgument::Block) => ValueScales::Block,
        })
        .with_f16_sums(self.sums == Some(SumArgument::F16))
    }

    fn nvfp4(&self) -> NvFp4 {
        let nvfp4 = self.hybrid.map_or(NvFp4::default(), |rows| NvFp4::default().with_native_rows(rows));
        nvfp4.with_smooth_k(self.smooth_k != Some(Switch::Off))
    }

    /// An argument that was given and that the family does not take, and the families that do.
    pub fn misplaced(&self) -> Option<(&'static str, &'static str)> {
        const FP8: &[FamilyArgument] = &[FamilyArgument::Fp8];
        const QUANTIZED: &[FamilyArgument] = &[FamilyArgument::Fp8, FamilyArgument::Nvfp4];
        let of_families = [
            ("--qk", self.qk.is_some(), FP8),
            ("--smooth-k", self.smooth_k.is_some(), QUANTIZED),
            ("--rotate", self.rotate, FP8),
            ("--v-scale", self.v_scale.is_some(), FP8),
            ("--sums", self.sums.is_some(), FP8),
            ("--hybrid", self.hybrid.is_some(), QUANTIZED),
        ];
        let misplaced =
            |(_, given, families): &(_, bool, &[FamilyArgument])| *given && !families.contains(&self.family);
        let (name, _, families) = of_families.into_iter().find(misplaced)?;
        Some((name, if families.len() == 1 { "fp8" } else { "fp8 or nvfp4" }))
    }
}

/// The order of a tensor's dimensions.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayoutArgument {
    Bhnd,
    Bnhd,
}

fn parse_arch(text: &str) -> Result<Arch, String> {
    let known = Arch::ALL.map(Arch::target);
    Arch::ALL.into_iter().find(|arch| arch.target() == text).ok_or(format!("known are {}", known.join(", ")))
}

fn parse_dtype(text: &str) -> Result<Dtype, String> {
    let known = [Dtype::F16, Dtype::Bf16];
    known.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| "known are f16, bf16".to_string())
}
