//! Attention from the command line: reads Q, K and V from a safetensors file, computes, and reports.
//!
//! ```text
//! cargo run --release --example forward                              # a shipped sample of real activations
//! cargo run --release --example forward -- in.safetensors --causal --out out.safetensors
//! cargo run --release --example forward -- --backend emulator --check
//! ```

mod arguments;
mod file;
mod run;

#[path = "../../tests/support/compare.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod compare;
#[path = "../../tests/support/dropout.rs"]
mod dropout;
#[path = "../../tests/support/elements.rs"]
mod elements;
#[path = "../../tests/support/quantized.rs"]
mod quantized;
#[path = "../../tests/support/reference.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod reference;

use std::io::Write;
use std::process::ExitCode;

use arguments::Arguments;
use clap::Parser;

/// What a failure says, in one line.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        // What follows the first paragraph is how to use it.
        Err(error) => return fail(error.to_string().split("\n\n").next().unwrap_or("bad arguments")),
    };
    match run::run(&arguments) {
        Ok(report) => {
            // A reader that went away is no failure.
            let _ = std::io::stdout().write_all(report.text.as_bytes());
            report.wrong.map_or(ExitCode::SUCCESS, |wrong| fail(&wrong))
        }
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(message: &str) -> ExitCode {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    eprintln!("error: {}", message.lines().collect::<Vec<_>>().join(" "));
    ExitCode::FAILURE
}
