//! `--execute`: the case's own command makes the run.
#![cfg(unix)]

use crate::project::Project;

/// A case whose command copies one of the project's runs to where it is told, and says what it was told.
fn project(source: &str, before: &str) -> Project {
    let project = Project::with_runs();
    let script = format!("{before}\necho told $GOLDLINE_SEED $GOLDLINE_INPUTS\ncp -r ../{source} \"$GOLDLINE_OUT\"\n");
    project.write("cases/make run.sh", script);
    let keys = "seed: 7\ncommand: [sh, make run.sh]";
    project.case("c", keys);
    project
}

#[test]
fn a_command_makes_the_golden_and_the_run_that_is_held_against_it() {
    let project = project("same", "");
    let said = project.goldline(&["record", "cases/c.yaml", "--execute"]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(said.err.contains("told 7"), "what the command prints is shown: {}", said.err);
    assert!(!said.out.contains("told"), "and kept off stdout: {}", said.out);
    let said = project.goldline(&["verify", "cases/c.yaml", "--execute", "--json"]);
    assert_eq!((said.status, said.json()["verdict"].as_str()), (0, Some("pass")), "{}", said.err);
    assert_eq!(project.list("cases/runs"), ["c-1", "c-2"], "every execution keeps its run");
    let said = project.goldline(&["verify", "cases/c.yaml", "--execute", "--out", "here/run"]);
    assert_eq!(said.status, 0, "{}", said.err);
    let said = project.goldline(&["verify", "cases/c.yaml", "--execute", "--out", "here/run"]);
    assert!(said.refusal().contains("a run is never written over"));
}

#[test]
fn a_command_that_fails_or_hangs_is_told_in_one_line_and_what_it_recorded_stays() {
    let project = project("same", "cp -r ../drift \"$GOLDLINE_OUT\"; exit 3");
    let said = project.goldline(&["record", "cases/c.yaml", "--execute"]);
    let refusal = said.refusal();
    assert!(
        refusal.contains("`sh make run.sh` failed (exit status: 3); what it recorded until then is in "),
        "{refusal}"
    );
    assert_eq!(project.list("cases/runs"), ["c-1"]);
    project.write("cases/make run.sh", "exec sleep 250");
    let said = project.goldline(&["record", "cases/c.yaml", "--execute", "--timeout", "0.2"]);
    assert!(said.refusal().contains("was stopped after 0.2 s; it recorded nothing in "), "{}", said.err);
    project.write("cases/make run.sh", "true");
    let said = project.goldline(&["record", "cases/c.yaml", "--execute"]);
    assert!(said.refusal().contains("ended well, yet left no run"), "{}", said.err);
}

#[test]
fn what_cannot_be_executed_is_refused() {
    let project = Project::with_runs();
    project.case("none", "");
    let refusal = |arguments: &[&str]| project.goldline(arguments).refusal().to_string();
    assert!(refusal(&["record", "cases/none.yaml", "--execute"]).contains("--execute needs a `command`"));
    project.case("odd", "command: [no-such-program-anywhere]");
    let odd = refusal(&["record", "cases/odd.yaml", "--execute"]);
    assert!(odd.contains("cannot run `no-such-program-anywhere`: no such program"), "{odd}");
    for timeout in ["0", "-1", "soon", "inf"] {
        let said = project.goldline(&["record", "cases/odd.yaml", "--execute", &format!("--timeout={timeout}")]);
        assert_eq!(said.status, 2);
        assert!(said.err.contains("number of seconds"), "{}", said.err);
    }
    let said = project.goldline(&["record", "cases/odd.yaml", "--timeout", "3"]);
    assert_eq!(said.status, 2, "a limit on nothing");
}

#[test]
fn what_a_stopped_command_started_is_stopped_with_it() {
    let project = project("same", "");
    project.write("cases/make run.sh", "sh -c 'sleep 2; echo late > late' & sleep 100");
    let said = project.goldline(&["record", "cases/c.yaml", "--execute", "--timeout", "0.3"]);
    assert!(said.refusal().contains("was stopped"), "{}", said.err);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert!(!project.path("cases/late").exists(), "its child went on");
}
