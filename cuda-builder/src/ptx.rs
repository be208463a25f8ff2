//! A reader of PTX text: just enough to count and to find.

use std::collections::BTreeMap;

/// What a module says of itself, and how often it uses which instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// `.version`.
    pub version: String,
    /// `.target`.
    pub target: String,
    /// Names of the entries.
    pub entries: Vec<String>,
    /// Instructions by opcode, with all their modifiers.
    pub opcodes: BTreeMap<String, usize>,
}

impl Summary {
    /// Reads a module.
    pub fn of(ptx: &str) -> Self {
        let mut summary = Summary::default();
        for line in ptx.lines().map(str::trim) {
            let mut words = line.split_whitespace();
            match words.next() {
                Some(".version") => summary.version = words.next().unwrap_or("").into(),
                Some(".target") => summary.target = words.next().unwrap_or("").trim_end_matches(',').into(),
                _ => {}
            }
            if let Some((_, name)) = line.split_once(".entry ") {
                summary.entries.push(name.split('(').next().unwrap_or("").trim().into());
            }
            for opcode in opcodes(line) {
                *summary.opcodes.entry(opcode.into()).or_default() += 1;
            }
        }
        summary
    }

    /// Instructions whose opcode begins with `prefix`.
    pub fn count(&self, prefix: &str) -> usize {
        self.opcodes.iter().filter(|(opcode, _)| opcode.starts_with(prefix)).map(|(_, n)| n).sum()
    }

    /// CTA barriers, with or without a reduction, in both spellings.
    pub fn barriers(&self) -> usize {
        let spellings = ["bar.sync", "bar.red", "barrier.sync", "barrier.red", "barrier.cta"];
        spellings.iter().map(|spelling| self.count(spelling)).sum()
    }
}

/// The opcodes of a line: several if inline assembly put several on it.
fn opcodes(line: &str) -> impl Iterator<Item = &str> {
    let statements = line.split(';').map(|statement| statement.trim_start_matches(['{', '}', ' ', '\t']));
    statements.filter_map(|statement| {
        let mut words = statement.split_whitespace();
        let mut word = words.next()?;
        if word.starts_with('@') {
            word = words.next()?;
        }
        let is_opcode = word.starts_with(|c: char| c.is_ascii_lowercase()) && !word.ends_with(':');
        is_opcode.then_some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_head_entries_and_opcodes() {
        let ptx = ".version 7.8\n.target sm_89, debug\n.visible .entry f(\n.param .u32 p)\n{\n\tmov.u32 %r1, %tid.x;\n\
                   \t@%p1 bra $L__BB0_2;\n$L__BB0_2:\n\t{ .reg .pred p; setp.ne.u32 p, %r1, 0; @p st.global.f32 [%rd1], %f1; }\n\
                   \tbar.sync 0;\n\tbarrier.sync 0;\n\tret;\n}\n";
        let summary = Summary::of(ptx);
        assert_eq!((summary.version.as_str(), summary.target.as_str()), ("7.8", "sm_89"));
        assert_eq!(summary.entries, ["f"]);
        assert_eq!(summary.barriers(), 2);
        assert_eq!(summary.count("st.global"), 1);
        assert_eq!(summary.count("setp"), 1);
        assert_eq!(summary.count("bra"), 1);
        assert_eq!(summary.count("mov"), 1);
    }
}
