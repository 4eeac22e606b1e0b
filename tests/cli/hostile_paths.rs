//! Things at a path that are not what was asked for: pipes, devices, loops, closed directories, full
//! disks.
#![cfg(unix)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::project::{Project, said};

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn pipes_and_devices_are_refused_and_never_waited_for() {
    let project = Project::with_cases(&["same"]);
    pipe(&project.path("pipe"));
    pipe(&project.path("cases/pipe.yaml"));
    let run = "expected a run directory (run.json, layers.jsonl, tensors.safetensors), an msprobe dump, a file of tensors (.npy, .npz, .pt, .safetensors) or a directory of such files, a Hugging Face debug tree, Polygraphy RunResults or a run of an RKNN snapshot, found";
    for (arguments, expected) in [
        (&["diff", "pipe", "golden"][..], format!("pipe: {run} a named pipe")),
        (&["inspect", "/dev/zero"], format!("/dev/zero: {run} a device")),
        (&["nan", "golden/run.json"], format!("golden/run.json: {run} a JSON object")),
        (&["record", "cases/same.yaml", "--run", "pipe"], format!("pipe: {run} a named pipe")),
        (&["verify", "cases/same.yaml", "--run", "pipe"], format!("pipe: {run} a named pipe")),
        (&["verify", "cases/pipe.yaml"], "cases/pipe.yaml: expected a case file, found a named pipe".into()),
        (&["verify", "/dev/zero"], "/dev/zero: expected a case file, found a device".into()),
        (&["record", "cases", "--run", "golden"], "cases: expected a case file, found a directory".into()),
    ] {
        assert_eq!(project.goldline(arguments).refusal(), expected);
    }
    // Beside a pipe, the cases of a directory are found.
    assert_eq!(project.goldline(&["verify", "cases"]).status, 0);
}

#[test]
fn loops_of_links_end() {
    let project = Project::with_cases(&["same"]);
    symlink("loop", project.path("loop")).unwrap();
    symlink("..", project.path("cases/up")).unwrap();
    symlink("/dev/zero", project.path("cases/zero.yaml")).unwrap();
    assert!(project.goldline(&["inspect", "loop"]).refusal().starts_with("loop: cannot open: "));
    assert!(project.goldline(&["verify", "loop"]).refusal().starts_with("loop: cannot open "));
    let said = project.goldline(&["verify", "cases", "--json"]);
    assert_eq!((said.status, said.json()["cases"].as_array().map(Vec::len)), (0, Some(1)));
}

#[test]
fn paths_need_not_be_text() {
    let project = Project::with_runs();
    let odd = OsStr::from_bytes(b"r\xffn");
    std::fs::rename(project.path("drift"), project.path(odd)).unwrap();
    let with = |arguments: &[&str], path: &[u8]| {
        let mut command = project.command(arguments);
        command.arg(OsStr::from_bytes(path));
        said(command)
    };
    let compared = with(&["diff", "golden", "--json"], b"r\xffn");
    assert_eq!((compared.status, compared.json()["verdict"].as_str()), (1, Some("drift")));
    assert!(with(&["inspect"], b"\xfe\x1b[2J").refusal().starts_with("\u{fffd}\\u{1b}[2J: cannot open: "));
}

#[test]
fn a_directory_that_may_not_be_written_keeps_what_it_has() {
    let project = Project::with_cases(&["same"]);
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let closed = project.path("closed");
    std::fs::create_dir(&closed).unwrap();
    mode(&closed, 0o555);
    if std::fs::write(closed.join("probe"), "").is_ok() {
        // The superuser may write it all the same: then there is nothing to see here.
        return;
    }
    for arguments in [
        &["diff", "golden", "same", "--report", "html=closed/a.html"][..],
        &["convert", "golden", "closed/run"],
        &["init", "x", "-o", "closed/x.yaml"],
    ] {
        let said = project.goldline(arguments);
        assert!(said.refusal().ends_with("permission denied"), "{}", said.err);
    }
    assert_eq!(project.list("closed"), Vec::<String>::new());
    mode(&closed, 0o000);
    assert!(project.goldline(&["verify", "closed"]).refusal().ends_with("permission denied"));
    mode(&closed, 0o755);
}

/// A limit on the size of files stands for a disk that fills up.
#[test]
fn a_disk_that_fills_up_leaves_nothing_half_written() {
    let project = Project::with_cases(&["same"]);
    let golden = project.read("approved/golden.json");
    let before = project.list(".");
    for arguments in [
        "convert golden copy",
        "record cases/same.yaml --run drift --update",
        "diff golden drift --all --report html=a.html",
        "blacklist golden drift --emit torch -o keep.py",
    ] {
        // Two blocks of 512 or 1024 bytes, by shell; the signal that the limit sends is ignored, so that
        // the write fails as it does on a full disk.
        let script = format!("trap '' XFSZ; ulimit -f 2; exec \"$0\" {arguments}");
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_goldline")])
            .current_dir(project.path("."))
            .output()
            .unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {err}");
        assert!(err.contains("File too large"), "{arguments}: {err}");
        assert_eq!(project.list("."), before, "{arguments}");
    }
    assert_eq!(project.read("approved/golden.json"), golden);
    assert_eq!(project.goldline(&["verify", "cases/same.yaml"]).status, 0);
}
