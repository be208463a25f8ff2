//! Edits that rustc has no words for.

use crate::error::BuildError;
use crate::{Entry, Options};

/// Writes an entry's launch bounds (`.maxntid`, `.minnctapersm`, `.maxnreg`; PTX ISA, "Performance-Tuning Directives"), aligns
/// its parameter if bulk copies read tensor maps there, and removes comments and empty lines.
///
/// # Errors
/// If the text does not hold exactly this entry, or a register limit would keep its warps waiting for ever.
pub fn stamp(ptx: &str, entry: &Entry, options: &Options) -> Result<String, BuildError> {
    let wrong = |problem: String| BuildError::Ptx { entry: entry.name.clone(), problem };
    let lines = ptx.lines().map(|line| line.split("//").next().unwrap_or("").trim_end());
    let mut text: String = lines.filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect();
    let heads: Vec<usize> = text.match_indices(".entry ").map(|(at, _)| at).collect();
    let &[head] = heads.as_slice() else {
        return Err(wrong(format!(
            "has {} entries, not 1; is it behind `#[cfg({})]`?",
            heads.len(),
            entry.name
        )));
    };
    if !text[head..].starts_with(&format!(".entry {}(", entry.name)) {
        return Err(wrong("the entry has another name".into()));
    }
    let end = text[head..].find(')').ok_or_else(|| wrong("the parameter list does not end".into()))?;
    let mut bounds = format!("\n.maxntid {}, 1, 1\n.minnctapersm {}", entry.threads, entry.min_blocks);
    if let Some(registers) = options.max_registers {
        // A CTA's pool is what its threads start with: under this limit it has no more than what they may keep, and a warp
        // that asks for more waits until there is more (PTX ISA, "setmaxnreg").
        if text.contains("setmaxnreg") {
            return Err(BuildError::RegisterLimit { entry: entry.name.clone(), max_registers: registers });
        }
        bounds += &format!("\n.maxnreg {registers}");
    }
    text.insert_str(head + end + 1, &bounds);
    if text.contains("cp.async.bulk.tensor") {
        // A tensor map is 64-byte aligned (PTX ISA, "Tensormap"), which no type of Rust's says of a by-value parameter.
        let parameters = text[head..head + end].replacen(".param .align 8 ", ".param .align 64 ", 1);
        text.replace_range(head..head + end, &parameters);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        Entry { name: name.into(), arch: "sm_89".into(), threads: 128, min_blocks: 2 }
    }

    const PTX: &str =
        "// head\n.version 7.8\n\n.visible .entry f(\n\t.param .u32 f_param_0 // n\n)\n{\n\tret;\n}\n";

    #[test]
    fn bounds_follow_the_parameters() {
        let want = ".version 7.8\n.visible .entry f(\n\t.param .u32 f_param_0\n)\n\
                    .maxntid 128, 1, 1\n.minnctapersm 2\n{\n\tret;\n}\n";
        assert_eq!(stamp(PTX, &entry("f"), &Options::default()).expect("one entry"), want);
    }

    #[test]
    fn a_register_limit_is_the_last_bound() {
        let options = Options { max_registers: Some(168), ..Options::default() };
        let ptx = stamp(PTX, &entry("f"), &options).expect("one entry");
        assert!(ptx.contains(")\n.maxntid 128, 1, 1\n.minnctapersm 2\n.maxnreg 168\n{"), "{ptx}");
    }

    #[test]
    fn kernels_that_trade_registers_have_no_register_limit() {
        let ptx = PTX.replace("ret;", "setmaxnreg.inc.sync.aligned.u32 232;\n\tret;");
        let options = Options { max_registers: Some(64), ..Options::default() };
        match stamp(&ptx, &entry("f"), &options).expect_err("it would hang") {
            error @ BuildError::RegisterLimit { max_registers: 64, .. } => {
                let said = error.to_string();
                assert!(said.contains("kernel f") && said.contains("leave max_registers out"), "{said}");
            }
            other => panic!("{other}"),
        }
        assert!(stamp(&ptx, &entry("f"), &Options::default()).is_ok());
    }

    #[test]
    fn parameters_with_tensor_maps_are_aligned() {
        let head = ".visible .entry f(\n\t.param .align 8 .b8 f_param_0[664]\n)\n{\n";
        let plain = stamp(&format!("{head}}}\n"), &entry("f"), &Options::default()).expect("one entry");
        assert!(plain.contains(".param .align 8 .b8 f_param_0[664]"), "{plain}");
        let bulk = format!("{head}\tcp.async.bulk.tensor.4d [r];\n}}\n");
        let bulk = stamp(&bulk, &entry("f"), &Options::default()).expect("one entry");
        assert!(bulk.contains(".param .align 64 .b8 f_param_0[664]"), "{bulk}");
    }

    #[test]
    fn another_entry_is_an_error() {
        assert!(stamp(PTX, &entry("g"), &Options::default()).is_err());
        assert!(stamp(".version 7.8\n", &entry("f"), &Options::default()).is_err());
        assert!(stamp(&PTX.repeat(2), &entry("f"), &Options::default()).is_err());
    }
}
