//! README's table of measured speeds, from the newest results.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::{Failure, root};

const BEGIN: &str = "<!-- measured: written by `cargo xtask readme` -->";
const END: &str = "<!-- end of measured -->";

/// Competitors in the results, and what README calls them.
const PEERS: [(&str, &str); 4] = [
    ("sdpa_flash", "SDPA FlashAttention-2"),
    ("sdpa_cudnn", "SDPA cuDNN"),
    ("sdpa_efficient", "SDPA memory-efficient"),
    ("ffpa_triton", "FFPA Triton"),
];

/// The newest file of `benches/results`, whose names begin with their date.
fn newest() -> Result<PathBuf, Failure> {
    let mut files: Vec<PathBuf> = fs::read_dir(root().join("benches/results"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, Failure>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.pop().ok_or_else(|| "benches/results is empty".into())
}

/// The table.
///
/// # Errors
/// If the results cannot be read.
pub fn table() -> Result<String, Failure> {
    let path = newest()?;
    let results: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let text = |value: &Value| value.as_str().unwrap_or("?").to_string();
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let mut table = format!(
        "One {} (driver {}), {}, bf16, batch 1, length 8192, 32 heads (16 above head dim 256), TFLOPS sustained; ×: ffpa's \
         speed over the other's, median of interleaved rounds. Raw numbers: [`benches/results/{file}`](benches/results/{file}).\n\n\
         | head dim | mask | kernel | ffpa | {} |\n|---|---|---|---|{}\n",
        text(&results["device"]),
        text(&results["driver"]),
        text(&results["date"]),
        PEERS.map(|(_, name)| format!("{name} | ×")).join(" | "),
        "---|---|".repeat(PEERS.len()),
    );
    for case in results["cases"].as_array().into_iter().flatten() {
        let number = |name: &str, field: &str| case["competitors"][name]["sustained"][field].as_f64();
        let tflops = |name: &str| number(name, "tflops").map_or("–".into(), |x| format!("{x:.0}"));
        let ratio = |name: &str| number(name, "ffpa_ratio").map_or("–".into(), |x| format!("{x:.2}"));
        writeln!(
            table,
            "| {} | {} | `{}` | {} | {} |",
            case["d"],
            if case["causal"] == true { "causal" } else { "none" },
            text(&case["kernel"]),
            tflops("ffpa"),
            PEERS.map(|(peer, _)| format!("{} | {}", tflops(peer), ratio(peer))).join(" | "),
        )?;
    }
    Ok(table)
}

/// README with the table in its place.
fn readme() -> Result<(String, String), Failure> {
    let old = fs::read_to_string(root().join("README.md"))?;
    let (head, rest) = old.split_once(BEGIN).ok_or("README has no place for the table")?;
    let (_, tail) = rest.split_once(END).ok_or("README has no end of the table")?;
    let new = format!("{head}{BEGIN}\n{}{END}{tail}", table()?);
    Ok((old, new))
}

/// Writes the table into README.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write_readme() -> Result<(), Failure> {
    Ok(fs::write(root().join("README.md"), readme()?.1)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn readme_shows_the_newest_results() {
        let (old, new) = super::readme().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(old, new, "run `cargo xtask readme`");
    }
}
