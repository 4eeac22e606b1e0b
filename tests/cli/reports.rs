//! Reports: what goes to stdout, what to files, and that they come back.

use crate::project::{Project, said};

#[test]
fn json_is_the_report_and_nothing_else() {
    let project = Project::with_cases(&["inf", "same"]);
    for arguments in [
        &["diff", "golden", "inf", "--json"][..],
        &["diff", "golden", "inf", "--report", "json=-"],
        &["verify", "cases/inf.yaml", "--json"],
        &["verify", "cases", "--json"],
        &["bisect", "golden", "drift", "--json"],
        &["nan", "inf", "--json"],
        &["inspect", "inf", "--json"],
    ] {
        let said = project.goldline(arguments);
        assert!(said.json().is_object(), "{arguments:?}");
        assert_eq!(said.err, "", "{arguments:?}");
    }
    let (short, long) = (["diff", "golden", "inf", "--json"], ["diff", "golden", "inf", "--report", "json=-"]);
    assert_eq!(project.goldline(&short).out, project.goldline(&long).out);
}

#[test]
fn reports_repeat_and_leave_the_screen_alone() {
    let project = Project::with_runs();
    let arguments =
        ["diff", "golden", "drift", "--report", "html=a.html", "--report", "junit=a.xml", "--report", "md=a.md"];
    let said = project.goldline(&[&arguments[..], &["--report", "csv=a.csv", "--report", "json=a.json"]].concat());
    assert_eq!(said.status, 1);
    assert!(said.out.starts_with("drift"), "the screen is kept: {}", said.out);
    assert!(project.read("a.html").starts_with("<!"), "html");
    assert!(project.read("a.xml").starts_with("<?xml"), "junit");
    assert!(project.read("a.md").contains("drift"), "md");
    assert!(project.read("a.csv").lines().count() > 5, "csv");
    let direct = project.goldline(&["diff", "golden", "drift", "--json"]);
    assert_eq!(project.read("a.json"), direct.out);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(project.path("a.html")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "as readable as any other file");
    }
}

#[test]
fn two_reports_on_stdout_are_refused_before_anything_is_read() {
    let project = Project::empty();
    for arguments in [
        &["diff", "gone", "gone", "--json", "--report", "md=-"][..],
        &["diff", "gone", "gone", "--report", "html=-", "--report", "md=-"],
        &["verify", "gone", "--json", "--report", "json=-"],
    ] {
        assert_eq!(project.goldline(arguments).refusal(), "only one report can go to stdout");
    }
    for (spec, expected) in [("html", "expected FORMAT=FILE"), ("pdf=x", "pdf"), ("html=", "html")] {
        let said = project.goldline(&["diff", "gone", "gone", "--report", spec]);
        assert!(said.refusal().contains(expected), "{spec}: {}", said.err);
    }
    assert!(project.list(".").is_empty(), "nothing was written");
}

#[test]
fn a_report_that_cannot_be_written_is_an_error_and_leaves_nothing() {
    let project = Project::with_runs();
    let before = project.list(".");
    let said = project.goldline(&["diff", "golden", "same", "--report", "html=no/such/dir.html"]);
    assert!(said.refusal().starts_with("no/such/dir.html: cannot create the file: no such file"), "{}", said.err);
    let said = project.goldline(&["diff", "golden", "same", "--report", "html=golden"]);
    assert!(said.refusal().starts_with("golden: "), "{}", said.err);
    assert_eq!(project.list("."), before);
}

#[test]
fn a_report_read_again_says_the_same_with_the_same_status() {
    let project = Project::with_runs();
    for (candidate, status) in [("same", 0), ("drift", 1), ("inf", 1), ("weight", 3)] {
        let file = format!("json={candidate}.json");
        let first = project.goldline(&["diff", "golden", candidate, "--report", &file]);
        let again = project.goldline(&["report", &format!("{candidate}.json")]);
        assert_eq!((again.status, &again.out), (status, &first.out), "{candidate}");
        let json = project.goldline(&["report", &format!("{candidate}.json"), "--json"]);
        assert_eq!(json.out, project.read(&format!("{candidate}.json")));
        let mut piped = project.command(&["report", "-", "--report", "md=-"]);
        piped.write_stdin(json.out);
        let from_stdin = said(piped);
        assert_eq!(from_stdin.status, status);
        assert_eq!(from_stdin.out, project.goldline(&["diff", "golden", candidate, "--report", "md=-"]).out);
    }
}

#[test]
fn a_suite_read_again_keeps_its_errors() {
    let project = Project::with_cases(&["same", "drift"]);
    project.write("cases/torn.yaml", "schema: goldline.case/1\nname: torn\ngolden: ../gone\ncandidate: ../same\n");
    let first = project.goldline(&["verify", "--report", "json=suite.json"]);
    assert_eq!(first.status, 2);
    let suite: serde_json::Value = serde_json::from_str(&project.read("suite.json")).unwrap();
    assert_eq!(suite["totals"]["error"], 1);
    std::fs::remove_file(project.path("cases/same.yaml")).unwrap();
    std::fs::remove_file(project.path("cases/drift.yaml")).unwrap();
    let alone = project.goldline(&["verify", "--json"]).json();
    assert_eq!(alone["verdict"], "incomparable", "what could not be read did not pass");
    let again = project.goldline(&["report", "suite.json"]);
    assert_eq!((again.status, again.out), (2, first.out));
}

#[test]
fn what_lies_is_no_report() {
    let project = Project::with_runs();
    let report = project.goldline(&["diff", "golden", "inf", "--json"]).out;
    let torn = &report[..report.len() / 2];
    let deep = format!("{{\"schema\":\"goldline.report/1\",\"cases\":{}", "[".repeat(200_000));
    for (content, expected) in [
        ("", "empty"),
        ("<html></html>", "HTML"),
        ("nothing", "something else"),
        ("[]", "no schema"),
        ("{}", "schema"),
        (r#"{"schema":"goldline.report/2"}"#, "goldline.report/2"),
        (r#"{"schema":"goldline.report/1"}"#, "missing"),
        (torn, "line"),
        (&report.replace("\"verdict\": \"nonfinite\"", "\"verdict\": NaN"), "line"),
        (&report.replace("\"layers\": 5", "\"layers\": -5"), "line"),
        (&deep, "line"),
    ] {
        project.write("bad.json", content);
        let said = project.goldline(&["report", "bad.json"]);
        let line = said.refusal();
        assert!(line.starts_with("bad.json: ") && line.contains(expected), "{expected}: {line}");
        assert!(line.len() < 500, "{line}");
    }
    project.write("bad.json", [0xff, 0xfe, 0x00]);
    assert!(project.goldline(&["report", "bad.json"]).refusal().starts_with("bad.json: "));
    assert_eq!(project.goldline(&["report", "golden"]).refusal(), "golden: expected a JSON report, found a directory");
    #[cfg(unix)]
    for device in ["/dev/zero", "/dev/null"] {
        let said = project.goldline(&["report", device]);
        assert_eq!(said.refusal(), format!("{device}: expected a JSON report, found a device"));
    }
    assert!(project.goldline(&["report", "gone.json"]).refusal().ends_with("no such file or directory"));
}
