//! A model of a main loop's speed from its machine code, for devices that cannot be timed.
//!
//! A multiprocessor has four schedulers; each issues one warp instruction per clock, and beside them the tensor core works
//! on the matrix instructions it was given. A loop can be no faster than the longer of two times per iteration: the clocks
//! its matrix instructions keep the tensor core busy, and the clocks it takes to issue everything. The model's figure is
//! the first over the larger: the share of the tensor core's rate that issue leaves possible. It knows nothing of latency,
//! shared-memory bandwidth or barriers, so it is an upper bound.

use std::collections::BTreeMap;

/// The instructions of a kernel's main loop, by opcode without modifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MainLoop {
    /// Instructions by opcode.
    pub opcodes: BTreeMap<String, usize>,
}

/// Clocks for which one matrix instruction of 4096 floating-point operations (`HMMA.16816`) keeps a quarter's tensor core
/// busy, on parts that do 512 dense 16-bit operations per multiprocessor and clock with f32 accumulation (GeForce Ada and
/// Blackwell; NVIDIA's architecture papers): 4096 / (512 / 4).
pub const HMMA_CLOCKS: usize = 32;

impl MainLoop {
    /// Finds the loop with the most matrix instructions: the body of a backward branch.
    pub fn find(sass: &str) -> Option<Self> {
        let instructions: Vec<(u64, &str)> = sass.lines().filter_map(instruction).collect();
        let index = |address: u64| instructions.binary_search_by_key(&address, |&(at, _)| at).ok();
        let loops = instructions.iter().enumerate().filter_map(|(end, &(at, text))| {
            let target = branch_target(text).filter(|&target| target < at)?;
            Some(MainLoop::of(&instructions[index(target)?..=end]))
        });
        loops.filter(|body| body.matrix() > 0).max_by_key(MainLoop::matrix)
    }

    fn of(instructions: &[(u64, &str)]) -> Self {
        let mut opcodes = BTreeMap::new();
        for (_, text) in instructions {
            let mut words = text.split_whitespace().filter(|word| !word.starts_with('@'));
            let opcode = words.next().unwrap_or("").split('.').next().unwrap_or("");
            *opcodes.entry(opcode.to_string()).or_default() += 1;
        }
        MainLoop { opcodes }
    }

    /// How often an opcode occurs.
    pub fn count(&self, opcode: &str) -> usize {
        self.opcodes.get(opcode).copied().unwrap_or(0)
    }

    /// Matrix instructions.
    pub fn matrix(&self) -> usize {
        ["HMMA", "QMMA", "IMMA", "OMMA"].iter().map(|opcode| self.count(opcode)).sum()
    }

    /// All instructions.
    pub fn instructions(&self) -> usize {
        self.opcodes.values().sum()
    }

    /// The share of the tensor core's rate that issue leaves possible, see the module's documentation.
    pub fn tensor_share(&self) -> f64 {
        let busy = self.matrix() * HMMA_CLOCKS;
        busy as f64 / busy.max(self.instructions()) as f64
    }

    /// Tensor clocks over tensor clocks and all other issue slots: what is left if nothing overlaps.
    pub fn tensor_share_without_overlap(&self) -> f64 {
        let busy = self.matrix() * HMMA_CLOCKS;
        busy as f64 / (busy + self.instructions() - self.matrix()) as f64
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
        assert_eq!(body.tensor_share(), 1.0);
        assert_eq!(body.tensor_share_without_overlap(), 32.0 / 34.0);
    }
}
