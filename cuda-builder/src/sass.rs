//! A model of a main loop's speed from its machine code, for devices that cannot be timed.
//!
//! A multiprocessor has four schedulers; each issues one warp instruction per clock, and beside them the tensor core works
//! on the matrix instructions it was given. A loop can be no faster than the longer of two times per iteration: the clocks
//! its matrix instructions keep the tensor core busy ([`matrix_clocks`]), and the clocks it takes to issue everything, one
//! each. [`MainLoop::tensor_share`] is the first over the larger: the share of the tensor core's rate that issue leaves
//! possible. It knows nothing of latency, shared-memory bandwidth or barriers, so it is an upper bound.
//! [`MainLoop::tensor_share_without_overlap`] is what is left when no other instruction issues while the tensor core works.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The instructions of a kernel's main loop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MainLoop {
    /// Instructions by opcode without modifiers.
    pub opcodes: BTreeMap<String, usize>,
    /// Matrix instructions by opcode with all modifiers.
    pub matrix_opcodes: BTreeMap<String, usize>,
}

/// Whose tensor cores a loop is weighed for. They differ where sums are 32 bits wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// GeForce: half the rate for f32 sums of f16, bf16 and fp8.
    GeForce,
    /// Professional: one rate for either width of sums.
    Professional,
}

/// What an instruction of a loop does, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Matrix products.
    Matrix,
    /// Fragments from shared memory: `LDSM`.
    Fragment,
    /// Exponentials and reciprocals: `MUFU`.
    Special,
    /// Other floating-point work, conversions included.
    Float,
    /// Integer and uniform-datapath work: addresses, masks.
    Integer,
    /// Memory, barriers, branches, moves.
    Other,
}

impl Class {
    /// The class of an opcode without modifiers. A uniform instruction (`UIADD3`) is of its vector twin's class.
    pub fn of(opcode: &str) -> Self {
        match opcode.strip_prefix('U').unwrap_or(opcode) {
            "HMMA" | "QMMA" | "IMMA" | "OMMA" => Class::Matrix,
            "LDSM" => Class::Fragment,
            "MUFU" => Class::Special,
            "FADD" | "FMUL" | "FFMA" | "FMNMX" | "FMNMX3" | "FSEL" | "FSET" | "FSETP" | "FCHK" | "F2F"
            | "F2FP" | "HADD2" | "HMUL2" | "HFMA2" | "HMNMX2" | "HSETP2" => Class::Float,
            "IADD" | "IADD3" | "IMAD" | "IMNMX" | "IABS" | "ISETP" | "LEA" | "LOP3" | "SHF" | "PRMT"
            | "SEL" | "SGXT" | "VIADD" | "VIADDMNMX" | "VIMNMX" | "VIMNMX3" => Class::Integer,
            _ => Class::Other,
        }
    }
}

/// Clocks for which a matrix instruction keeps the tensor core of one scheduler busy: its operations over a quarter of the
/// multiprocessor's dense rate. For instance `HMMA.16816.F32` on a GeForce: 4096 / (512 / 4) = 32.
///
/// Rates, in operations per multiprocessor and clock, are peaks of NVIDIA's Ada and RTX Blackwell architecture papers over
/// multiprocessors and boost clock (RTX 4090, RTX 5090, RTX PRO 6000):
///
/// | | GeForce, f32 sums | GeForce, f16 sums | professional |
/// |---|---|---|---|
/// | HMMA: f16, bf16 | 512 | 1024 | 1024 |
/// | QMMA: fp8 | 1024 | 2048 | 2048 |
/// | QMMA.SF: block-scaled fp8 | 2048 | | 2048 |
/// | IMMA: s8 | 2048 | 2048 | 2048 |
/// | OMMA: fp4 | 4096 | | 4096 |
pub fn matrix_clocks(opcode: &str, part: Part) -> Option<usize> {
    let mut fields = opcode.split('.');
    let (name, mut shape) = (fields.next()?, fields.next()?);
    let scaled = shape == "SF";
    if scaled {
        shape = fields.next()?;
    }
    // 16 by 8 by the rest.
    let depth: usize = shape.strip_prefix("168")?.parse().ok()?;
    let halved = part == Part::GeForce && fields.next() == Some("F32");
    let rate = match name {
        "HMMA" => {
            if halved {
                512
            } else {
                1024
            }
        }
        "QMMA" => {
            if halved && !scaled {
                1024
            } else {
                2048
            }
        }
        "IMMA" => 2048,
        "OMMA" => 4096,
        _ => return None,
    };
    Some(2 * 16 * 8 * depth / (rate / 4))
}

impl MainLoop {
    /// Finds the loop with the most matrix instructions: the body of a backward branch. Of several with as many it is the
    /// shortest: branches back from blocks that lie behind the loop, of waits for instance, enclose what lies between too.
    pub fn find(sass: &str) -> Option<Self> {
        let instructions: Vec<(u64, &str)> = sass.lines().filter_map(instruction).collect();
        let index = |address: u64| instructions.binary_search_by_key(&address, |&(at, _)| at).ok();
        let loops = instructions.iter().enumerate().filter_map(|(end, &(at, text))| {
            let target = branch_target(text).filter(|&target| target < at)?;
            Some(MainLoop::of(&instructions[index(target)?..=end]))
        });
        loops
            .filter(|body| body.matrix() > 0)
            .max_by_key(|body| (body.matrix(), Reverse(body.instructions())))
    }

    fn of(instructions: &[(u64, &str)]) -> Self {
        let mut body = MainLoop::default();
        for (_, text) in instructions {
            let opcode = text.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or("");
            let name = opcode.split('.').next().unwrap_or("");
            *body.opcodes.entry(name.into()).or_default() += 1;
            if Class::of(name) == Class::Matrix {
                *body.matrix_opcodes.entry(opcode.into()).or_default() += 1;
            }
        }
        body
    }

    /// How often an opcode occurs.
    pub fn count(&self, opcode: &str) -> usize {
        self.opcodes.get(opcode).copied().unwrap_or(0)
    }

    /// How many instructions are of a class.
    pub fn class(&self, class: Class) -> usize {
        self.opcodes.iter().filter(|(opcode, _)| Class::of(opcode) == class).map(|(_, n)| n).sum()
    }

    /// Matrix instructions.
    pub fn matrix(&self) -> usize {
        self.matrix_opcodes.values().sum()
    }

    /// Matrix instructions by kind: what the opcode says before the shape, `HMMA`, `QMMA`, `QMMA.SF` (block-scaled), `IMMA`.
    pub fn matrix_kinds(&self) -> BTreeMap<&str, usize> {
        let mut kinds = BTreeMap::new();
        for (opcode, n) in &self.matrix_opcodes {
            let kind = opcode.split_once(".168").map_or(opcode.as_str(), |(kind, _)| kind);
            *kinds.entry(kind).or_default() += n;
        }
        kinds
    }

    /// All instructions.
    pub fn instructions(&self) -> usize {
        self.opcodes.values().sum()
    }

    /// Clocks for which the loop's matrix instructions keep the tensor core busy; `None` if the model does not know one.
    pub fn tensor_clocks(&self, part: Part) -> Option<usize> {
        self.matrix_opcodes.iter().map(|(opcode, n)| Some(n * matrix_clocks(opcode, part)?)).sum()
    }

    /// The share of the tensor core's rate that issue leaves possible, see the module's documentation.
    pub fn tensor_share(&self, part: Part) -> Option<f64> {
        let busy = self.tensor_clocks(part)?;
        Some(busy as f64 / busy.max(self.instructions()) as f64)
    }

    /// Tensor clocks over tensor clocks and all other issue slots: what is left if nothing overlaps.
    pub fn tensor_share_without_overlap(&self, part: Part) -> Option<f64> {
        let busy = self.tensor_clocks(part)?;
        Some(busy as f64 / (busy + self.instructions() - self.matrix()) as f64)
    }
}

/// `/*01a0*/   HMMA.16816.F32 R4, R8, R12, R4 ;` and what follows.
fn instruction(line: &str) -> Option<(u64, &str)> {
    let (address, rest) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
    let text = rest.split(';').next()?.trim();
    (!text.is_empty()).then_some((u64::from_str_radix(address, 16).ok()?, text))
}

fn branch_target(text: &str) -> Option<u64> {
    let (_, operands) = text.split_once("BRA")?;
    let digits = operands.split_once("0x")?.1;
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_loop_is_the_one_with_matrix_instructions() {
        let sass = "        /*0000*/                   MOV R1, c[0x0][0x28] ;  /* 0x00 */\n\
                    \x20                                                       /* 0x000fe200 */\n\
                    \x20       /*0010*/                   FADD R2, R2, R3 ;\n\
                    \x20       /*0020*/              @P0  BRA 0x10 ;\n\
                    \x20       /*0030*/                   HMMA.16816.F32 R4, R8, R12, R4 ;\n\
                    \x20       /*0040*/                   LDSM.16.M88.4 R8, [R20] ;\n\
                    \x20       /*0050*/              @!P1 BRA 0x30 ;\n\
                    \x20       /*0060*/                   EXIT ;\n";
        let body = MainLoop::find(sass).expect("a loop");
        assert_eq!((body.matrix(), body.count("LDSM"), body.instructions()), (1, 1, 3));
        assert_eq!(body.tensor_share(Part::GeForce), Some(1.0));
        assert_eq!(body.tensor_share_without_overlap(Part::GeForce), Some(32.0 / 34.0));
        assert_eq!(body.tensor_share_without_overlap(Part::Professional), Some(16.0 / 18.0));
        assert_eq!((body.class(Class::Fragment), body.class(Class::Other)), (1, 1));
    }

    #[test]
    fn branches_from_behind_the_loop_do_not_count() {
        let sass = "        /*0000*/                   QMMA.SF.16832.F32.E4M3.E4M3.E8 R4, R8, R12, R4 ;\n\
                    \x20       /*0010*/                   QMMA.SF.16832.F32.E4M3.E4M3.E8 R4, R8, R12, R4 ;\n\
                    \x20       /*0020*/                   IMMA.16832.S8.S8 R4, R8, R12, R4 ;\n\
                    \x20       /*0030*/              @!P0 BRA 0x60 ;\n\
                    \x20       /*0040*/              @!P1 BRA 0x0 ;\n\
                    \x20       /*0050*/                   EXIT ;\n\
                    \x20       /*0060*/                   SYNCS.PHASECHK.TRANS64 P0, [R2], R3 ;\n\
                    \x20       /*0070*/                   BRA 0x0 ;\n";
        let body = MainLoop::find(sass).expect("a loop");
        assert_eq!(body.instructions(), 5);
        assert_eq!(Vec::from_iter(body.matrix_kinds()), [("IMMA", 1), ("QMMA.SF", 2)]);
    }

    /// Opcodes as ptxas 13.0 writes them for sm_89 and sm_120f.
    #[test]
    fn clocks_follow_shape_width_and_part() {
        for (opcode, geforce, professional) in [
            ("HMMA.16816.F32", 32, 16),
            ("HMMA.16816.F32.BF16", 32, 16),
            ("HMMA.16816.F16", 16, 16),
            ("HMMA.1688.F32", 16, 8),
            ("QMMA.16832.F32.E4M3.E4M3", 32, 16),
            ("QMMA.16832.F16.E4M3.E4M3", 16, 16),
            ("QMMA.SF.16832.F32.E4M3.E4M3.E8", 16, 16),
            ("IMMA.16832.S8.S8", 16, 16),
            ("OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", 16, 16),
        ] {
            assert_eq!(matrix_clocks(opcode, Part::GeForce), Some(geforce), "{opcode}");
            assert_eq!(matrix_clocks(opcode, Part::Professional), Some(professional), "{opcode}");
        }
        assert_eq!(matrix_clocks("DMMA.884", Part::GeForce), None);
    }

    #[test]
    fn classes_of_common_opcodes() {
        let class = |wanted, opcodes: &[&str]| opcodes.iter().all(|opcode| Class::of(opcode) == wanted);
        assert!(class(Class::Matrix, &["HMMA", "QMMA", "IMMA", "OMMA"]));
        assert!(class(
            Class::Float,
            &["FADD", "FMUL", "FFMA", "FMNMX", "FSEL", "FSETP", "F2FP", "HFMA2", "HADD2"]
        ));
        assert!(class(
            Class::Integer,
            &["IADD3", "IMAD", "IMNMX", "ISETP", "LOP3", "LEA", "SEL", "SHF", "UIADD3", "UISETP"]
        ));
        assert!(class(
            Class::Other,
            &["BAR", "BRA", "CS2R", "LDGSTS", "LDS", "STS", "SHFL", "I2F", "MOV", "UMOV", "ULDC"]
        ));
    }
}
