//! What PTX must not contain, and what it must.

use crate::error::{BuildError, Unfitness};
use crate::ptx::Summary;
use crate::ptxas::Resources;

/// Refuses local memory and calls: the one makes a kernel slow, the other does not link.
///
/// # Errors
/// [`BuildError::Unfit`] with the first line that has either.
pub fn local_memory_and_calls(ptx: &str, entry: &str) -> Result<(), BuildError> {
    for (line, text) in ptx.lines().enumerate() {
        let word = |wanted: &str| text.split_whitespace().any(|word| word.starts_with(wanted));
        let why = if word(".local") || text.contains(".local.") {
            Unfitness::LocalMemory
        } else if word("call") || word(".func") {
            Unfitness::Call
        } else {
            continue;
        };
        return Err(BuildError::Unfit { entry: entry.into(), why, line: line + 1, text: text.trim().into() });
    }
    Ok(())
}

/// What a module is expected to say.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    /// The entry's name.
    pub entry: &'a str,
    /// `.target`.
    pub arch: &'a str,
    /// Barriers: the compiler must neither copy nor drop one.
    pub barriers: usize,
    /// `.version`, of a kernel that needs more than [`least_version`].
    pub version: Option<&'a str>,
}

/// In what a module is not as expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Deviation {
    /// `.target`.
    #[error("the target is {got}, not {want}")]
    Target {
        /// What the module says.
        got: String,
        /// What was expected.
        want: String,
    },
    /// The entries' names.
    #[error("the entry is {got}, not {want}")]
    Entry {
        /// What the module has.
        got: String,
        /// What was expected.
        want: String,
    },
    /// Barriers.
    #[error("the number of barriers is {got}, not {want}")]
    Barriers {
        /// How many the module has.
        got: usize,
        /// How many were expected.
        want: usize,
    },
    /// `.version`: older drivers refuse a newer one.
    #[error("the PTX version is {got}, not {want}")]
    Version {
        /// What the module says.
        got: String,
        /// What was expected.
        want: String,
    },
    /// Local memory or a call.
    #[error(transparent)]
    Unfit(BuildError),
    /// The assembler took the module, but not as it was meant.
    #[error("ptxas warns: {warning}")]
    Warning {
        /// Its words.
        warning: String,
    },
}

/// The PTX version that rustc writes for an architecture: the least that has it, so that the oldest drivers load it.
pub fn least_version(arch: &str) -> Option<&'static str> {
    match arch {
        "sm_89" => Some("7.8"),
        "sm_90a" => Some("8.0"),
        "sm_120f" => Some("8.8"),
        _ => None,
    }
}

/// Everything in which a module is not as expected.
pub fn deviations(ptx: &str, expected: &Expected<'_>) -> Vec<Deviation> {
    let summary = Summary::of(ptx);
    let Summary { version, target, entries, .. } = &summary;
    let mut deviations = Vec::new();
    if target != expected.arch {
        deviations.push(Deviation::Target { got: target.clone(), want: expected.arch.into() });
    }
    if entries[..] != [expected.entry] {
        deviations.push(Deviation::Entry { got: entries.join(", "), want: expected.entry.into() });
    }
    let barriers = summary.barriers();
    if barriers != expected.barriers {
        deviations.push(Deviation::Barriers { got: barriers, want: expected.barriers });
    }
    if let Some(want) = expected.version.or(least_version(expected.arch)).filter(|want| want != version) {
        deviations.push(Deviation::Version { got: version.clone(), want: want.into() });
    }
    deviations.extend(local_memory_and_calls(ptx, expected.entry).err().map(Deviation::Unfit));
    deviations
}

/// What the assembler has against a module that it took: an instruction that it ignores, or makes slower than it could be, it
/// only warns of, and no count of registers or spills shows it.
pub fn warnings(resources: &Resources) -> impl Iterator<Item = Deviation> + '_ {
    resources.warnings.iter().map(|warning| Deviation::Warning { warning: warning.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_memory_and_calls_are_found() {
        assert!(local_memory_and_calls("mov.u32 %r1, 0;\nbra $L;\n", "f").is_ok());
        for (ptx, want) in [
            (".local .align 4 .b8 depot[16];", Unfitness::LocalMemory),
            ("\tst.local.u32 [%rd1], 0;", Unfitness::LocalMemory),
            ("\tcall.uni panic, ();", Unfitness::Call),
            (".extern .func panic", Unfitness::Call),
        ] {
            match local_memory_and_calls(&format!("ret;\n{ptx}\n"), "f") {
                Err(BuildError::Unfit { why, line: 2, .. }) => assert_eq!(why, want),
                other => panic!("{ptx}: {other:?}"),
            }
        }
    }

    #[test]
    fn deviations_name_both_values() {
        let ptx = ".version 8.0\n.target sm_89\n.entry f()\n{\nbar.sync 0;\nret;\n}\n";
        let expected = Expected { entry: "f", arch: "sm_89", barriers: 2, version: None };
        let said = |expected: &Expected<'_>| -> Vec<String> {
            deviations(ptx, expected).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            said(&expected),
            ["the number of barriers is 1, not 2", "the PTX version is 8.0, not 7.8"]
        );
        assert!(said(&Expected { barriers: 1, version: Some("8.0"), ..expected.clone() }).is_empty());
        let other = Expected { entry: "g", arch: "sm_90a", barriers: 1, ..expected };
        assert_eq!(said(&other), ["the target is sm_89, not sm_90a", "the entry is f, not g"]);
    }
}
