//! Runs emitted Python against a stand-in for torch.

use std::path::Path;
use std::process::{Command, Output};

/// Whether there is a Python to run; says so loudly where there is none.
#[expect(clippy::print_stderr, reason = "a test that does not run must say so")]
pub(crate) fn is_there() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("SKIPPED: python3 is not installed, so emitted Python was not run");
    }
    found
}

/// Compiles `snippet` and runs `script` beside it as a module named `keep_fp32`.
pub(crate) fn run(snippet: &str, script: &str) -> Output {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("keep_fp32.py"), snippet).expect("written");
    std::fs::write(file("script.py"), script).expect("written");
    let compiled = python(dir.path(), &["-W", "error", "-m", "py_compile", "keep_fp32.py"]);
    assert!(compiled.status.success(), "{}\n{snippet}", String::from_utf8_lossy(&compiled.stderr));
    python(dir.path(), &["script.py"])
}

fn python(dir: &Path, args: &[&str]) -> Output {
    let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/fake_torch");
    Command::new("python3")
        .args(args)
        .current_dir(dir)
        .env("PYTHONPATH", fake)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 runs")
}

/// Runs `script` and expects it to end well; what it printed.
pub(crate) fn expect(snippet: &str, script: &str) -> String {
    let output = run(snippet, script);
    assert!(output.status.success(), "{}\n{snippet}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
