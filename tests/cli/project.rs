//! A directory with runs and cases, and the binary started in it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::compute::product;
use crate::support::{Recorder, Values};

/// What is wrong with the candidate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The linear layer is off by 1 %.
    Drift,
    /// The linear layer makes an Inf, which becomes NaN in the softmax.
    Inf,
    /// Another weight was loaded: the runs cannot be compared.
    Weight,
}

/// Input, weight, linear, relu, softmax.
pub(crate) fn model(fault: Fault) -> Recorder {
    let mut run = Recorder::f32();
    run.input("x", Values::noise(&[4, 8], 1));
    let weight = Values::noise(&[8, 8], 2);
    run.param("fc.weight", if fault == Fault::Weight { weight.map(|v| v * 1.5) } else { weight });
    let product = product(run.value("x"), run.value("fc.weight"));
    let product = match fault {
        Fault::Drift => product.map(|v| v * 1.01),
        Fault::Inf => product.set(3, f64::INFINITY),
        _ => product,
    };
    run.layer("fc", "linear", &["x", "fc.weight"]).with("module", "fc").gives(product.to(goldline::tensor::DType::F32));
    run.apply("act", "relu", "fc", |v| v.max(0.0));
    run.softmax("out", "act");
    run
}

/// The directory.
pub(crate) struct Project(TempDir);

/// What the binary said.
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Stdout as JSON, of which nothing else may be there. NaN is no JSON, so that this refuses it.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {}\n{}", self.out, self.err))
    }

    /// The one line of an error that stops everything.
    #[track_caller]
    pub(crate) fn refusal(&self) -> &str {
        assert_eq!((self.status, self.out.as_str()), (2, ""), "{}", self.err);
        let line = self.err.strip_suffix('\n').expect("a line");
        assert!(!line.contains('\n'), "one line: {line}");
        assert!(!line.contains("panicked"), "{line}");
        line.strip_prefix("error: ").unwrap_or_else(|| panic!("an error: {line}"))
    }
}

impl Project {
    /// Runs `golden`, `same`, `drift`, `inf` and `weight`; no case.
    pub(crate) fn with_runs() -> Self {
        let project = Self::empty();
        let runs = [
            ("golden", Fault::None),
            ("same", Fault::None),
            ("drift", Fault::Drift),
            ("inf", Fault::Inf),
            ("weight", Fault::Weight),
        ];
        for (name, fault) in runs {
            project.run(name, &model(fault));
        }
        project
    }

    /// These runs, the golden recorded, and a case `cases/CANDIDATE.yaml` for each candidate.
    pub(crate) fn with_cases(candidates: &[&str]) -> Self {
        let project = Self::with_runs();
        for candidate in candidates {
            project.case(candidate, "");
        }
        let first = format!("cases/{}.yaml", candidates[0]);
        let said = project.goldline(&["record", &first, "--run", "golden"]);
        assert_eq!(said.status, 0, "{}", said.err);
        project
    }

    pub(crate) fn empty() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn run(&self, name: &str, recorder: &Recorder) {
        recorder.write(&self.path(name));
    }

    /// `cases/NAME.yaml` whose candidate is the run NAME; `keys` are further lines.
    pub(crate) fn case(&self, name: &str, keys: &str) {
        let head = format!("schema: goldline.case/1\nname: {name}\ngolden: ../approved\ncandidate: ../{name}\n");
        self.write(&format!("cases/{name}.yaml"), format!("{head}{keys}\n"));
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("below the project")).expect("a directory");
        std::fs::write(path, content).expect("written");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Names in a directory, sorted.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(name)).expect("listed");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The binary in this directory, not started yet.
    pub(crate) fn command(&self, arguments: &[&str]) -> assert_cmd::Command {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_goldline"));
        command.current_dir(self.0.path()).env_remove("NO_COLOR").env("TERM", "xterm").args(arguments);
        // Far beyond what anything here takes: a hang fails the test rather than the suite.
        command.timeout(Duration::from_secs(300));
        command
    }

    pub(crate) fn goldline(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments))
    }
}

/// Runs a command to its end.
pub(crate) fn said(mut command: assert_cmd::Command) -> Said {
    let output = command.output().expect("the binary starts");
    Said {
        status: output.status.code().unwrap_or_else(|| panic!("no exit status: {output:?}")),
        out: String::from_utf8(output.stdout).expect("stdout is text"),
        err: String::from_utf8(output.stderr).expect("stderr is text"),
    }
}
