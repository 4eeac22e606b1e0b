//! The `goldline` binary: hands the arguments to [`goldline::cli`] and exits with its status.

use std::process::ExitCode;

fn main() -> ExitCode {
    goldline::cli::main()
}
