//! What reaches a terminal, a pipe that closes, and whether threads change a byte.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::project::{Project, said};

#[test]
fn colour_is_for_terminals_or_on_demand() {
    let project = Project::with_runs();
    let plain = ["diff", "golden", "inf"];
    assert!(!project.goldline(&plain).out.contains('\u{1b}'), "stdout is no terminal");
    for arguments in [
        &["diff", "golden", "inf", "--color", "always"][..],
        &["nan", "inf", "--color", "always"],
        &["bisect", "golden", "drift", "--color", "always"],
        &["inspect", "inf", "--color", "always"],
        &["explain", "golden", "inf", "fc", "--color", "always"],
    ] {
        assert!(project.goldline(arguments).out.contains("\u{1b}["), "{arguments:?}");
    }
    let mut command = project.command(&plain);
    command.env("NO_COLOR", "1").env("CLICOLOR_FORCE", "1");
    assert!(!said(command).out.contains('\u{1b}'));
    // JSON is for programs whatever the colour.
    let json = project.goldline(&["diff", "golden", "inf", "--json", "--color", "always"]);
    assert!(!json.out.contains('\u{1b}'));
    json.json();
}

#[test]
fn threads_do_not_change_a_byte() {
    let project = Project::with_cases(&["inf", "drift", "same"]);
    for arguments in [
        &["diff", "golden", "inf", "--json"][..],
        &["diff", "golden", "drift", "--json"],
        &["verify", "cases", "--json"],
        &["bisect", "golden", "drift", "--json"],
        &["inspect", "inf", "--json"],
        &["nan", "inf", "--json"],
    ] {
        let with = |threads: &str| project.goldline(&[arguments, &["--threads", threads]].concat()).out;
        assert_eq!(with("1"), with("4"), "{arguments:?}");
    }
}

/// Starts the binary and closes its stdout after `read` bytes; status and stderr.
fn closed_after(project: &Project, arguments: &[&str], read: usize) -> (Option<i32>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_goldline"))
        .current_dir(project.path("."))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut vec![0; read]).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_closed_pipe_is_no_error() {
    let project = Project::with_cases(&["inf", "drift"]);
    for arguments in [
        &["diff", "golden", "drift", "--all"][..],
        &["diff", "golden", "drift", "--json"],
        &["diff", "golden", "drift", "--report", "html=-"],
        &["verify", "cases"],
        &["bisect", "golden", "drift"],
        &["nan", "inf"],
        &["inspect", "golden"],
        &["explain", "golden", "drift", "fc"],
        &["blacklist", "golden", "inf"],
        &["schema"],
        &["completions", "bash"],
        &["--help"],
        &["diff", "--help"],
        &["--version"],
    ] {
        for read in [0, 1] {
            let (status, err) = closed_after(&project, arguments, read);
            assert_eq!(err, "", "{arguments:?}");
            assert!(matches!(status, Some(0 | 1)), "{arguments:?}: {status:?}");
        }
    }
}

#[test]
fn a_report_on_a_closed_pipe_still_writes_the_files() {
    let project = Project::with_runs();
    let arguments = ["diff", "golden", "drift", "--json", "--report", "md=a.md"];
    for read in [0, 1] {
        let (status, err) = closed_after(&project, &arguments, read);
        assert_eq!((status, err.as_str()), (Some(1), ""), "what was found stays");
        assert!(project.read("a.md").contains("drift"));
        std::fs::remove_file(project.path("a.md")).unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_stdout_is_an_error() {
    let project = Project::with_runs();
    for arguments in
        [&["diff", "golden", "same", "--json"][..], &["inspect", "golden"], &["schema"], &["--help"], &["--version"]]
    {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_goldline"))
            .current_dir(project.path("."))
            .args(arguments)
            .stdout(full)
            .output()
            .unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
        assert!(err.contains("cannot write"), "{arguments:?}: {err}");
    }
}

#[test]
fn every_verb_explains_itself() {
    let project = Project::empty();
    let help = project.goldline(&["--help"]);
    assert_eq!((help.status, help.err.as_str()), (0, ""));
    for verb in ["record", "verify", "diff", "bisect", "nan", "blacklist", "explain", "inspect", "convert", "report"] {
        assert!(help.out.contains(verb), "{verb} is listed");
        let said = project.goldline(&[verb, "--help"]);
        assert_eq!((said.status, said.err.as_str()), (0, ""));
        assert!(said.out.contains("Example"), "{verb} has an example: {}", said.out);
        assert!(said.out.contains(&format!("goldline {verb} ")), "{verb}: {}", said.out);
    }
    for verb in ["init", "schema", "completions"] {
        let said = project.goldline(&[verb, "--help"]);
        assert_eq!(said.status, 0);
        assert!(said.out.lines().next().is_some_and(|line| line.len() > 20), "{verb}: {}", said.out);
    }
}
