//! Verbs that write or print files: convert, init, schema, completions.

use crate::project::Project;

#[test]
fn convert_writes_a_run_that_compares_as_equal() {
    let project = Project::with_runs();
    let said = project.goldline(&["convert", "golden", "copy"]);
    assert_eq!((said.status, said.err.as_str()), (0, ""));
    assert_eq!(project.goldline(&["diff", "golden", "copy"]).status, 0);
    let again = project.goldline(&["convert", "golden", "copy"]);
    assert!(again.refusal().starts_with("copy: "), "{}", again.err);
    assert!(project.goldline(&["convert", "gone", "new"]).refusal().starts_with("gone: "));
    assert!(project.goldline(&["convert", "golden", "golden/run.json/x"]).refusal().starts_with("golden/run.json/x: "));
    assert_eq!(project.list(".").len(), 6, "{:?}", project.list("."));
}

#[test]
fn init_writes_a_case_that_loads_once_its_paths_exist() {
    let project = Project::with_runs();
    let said = project.goldline(&["init", "encode"]);
    assert_eq!((said.status, said.err.as_str()), (0, ""));
    assert!(said.out.contains("goldline record cases/encode.yaml --run"), "{}", said.out);
    let record = project.goldline(&["record", "cases/encode.yaml", "--run", "golden"]);
    assert_eq!(record.status, 0, "{}", record.err);
    let verify = project.goldline(&["verify", "cases/encode.yaml", "--run", "same"]);
    assert_eq!(verify.status, 0, "{}{}", verify.out, verify.err);
    let text = project.read("cases/encode.yaml");
    assert!(project.goldline(&["init", "encode"]).refusal().starts_with("cases/encode.yaml: exists already"));
    assert_eq!(project.read("cases/encode.yaml"), text);
    let elsewhere = project.goldline(&["init", "encode", "-o", "deep/er/x.yaml"]);
    assert_eq!(elsewhere.status, 0, "{}", elsewhere.err);
}

#[test]
fn init_takes_no_name_that_leads_elsewhere() {
    let project = Project::empty();
    for name in ["../x", "a/b", "", ".hidden", "a\nb", "a: b", "x\u{1b}[2J", "\u{202e}x"] {
        let said = project.goldline(&["init", name]);
        assert!(said.refusal().contains("cannot name a file"), "{name:?}: {}", said.err);
        assert!(!said.err.contains(['\u{1b}', '\u{202e}']), "{name:?}");
    }
    assert!(project.list(".").is_empty());
}

#[test]
fn the_schema_is_the_one_that_is_checked_in() {
    let said = Project::empty().goldline(&["schema"]);
    let checked_in = concat!(env!("CARGO_MANIFEST_DIR"), "/src/case/case.schema.json");
    assert_eq!((said.status, said.out), (0, std::fs::read_to_string(checked_in).unwrap()));
}

#[test]
fn completions_know_every_verb() {
    let project = Project::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = project.goldline(&["completions", shell]);
        assert_eq!((said.status, said.err.as_str()), (0, ""));
        for verb in ["record", "verify", "bisect", "blacklist"] {
            assert!(said.out.contains(verb), "{shell}: {verb}");
        }
    }
}
