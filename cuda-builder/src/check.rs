//! What PTX must not contain, and what it must.

use crate::error::{BuildError, Unfitness};
use crate::ptx::Summary;

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
pub fn deviations(ptx: &str, expected: &Expected<'_>) -> Vec<String> {
    let summary = Summary::of(ptx);
    let mut deviations = Vec::new();
    let mut compare = |what: &str, got: String, want: String| {
        if got != want {
            deviations.push(format!("{what} is {got}, not {want}"));
        }
    };
    compare("the target", summary.target.clone(), expected.arch.into());
    compare("the entry", summary.entries.join(", "), expected.entry.into());
    compare("the number of barriers", summary.barriers().to_string(), expected.barriers.to_string());
    if let Some(version) = least_version(expected.arch) {
        compare("the PTX version", summary.version.clone(), version.into());
    }
    if let Err(error) = local_memory_and_calls(ptx, expected.entry) {
        deviations.push(error.to_string());
    }
    deviations
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
        let found = deviations(ptx, &Expected { entry: "f", arch: "sm_89", barriers: 2 });
        assert_eq!(found, ["the number of barriers is 1, not 2", "the PTX version is 8.0, not 7.8"]);
    }
}
