//! Exit statuses 0, 1, 2, 3, and which of them stands for several cases.

use crate::project::Project;

#[test]
fn diff_says_pass_drift_nonfinite_and_incomparable() {
    let project = Project::with_runs();
    for (candidate, status, verdict) in
        [("same", 0, "pass"), ("drift", 1, "drift"), ("inf", 1, "nonfinite"), ("weight", 3, "incomparable")]
    {
        let said = project.goldline(&["diff", "golden", candidate]);
        assert_eq!(said.status, status, "{candidate}: {}{}", said.out, said.err);
        assert!(said.out.starts_with(verdict), "{}", said.out);
        assert_eq!(said.err, "");
        let report = project.goldline(&["diff", "golden", candidate, "--json"]);
        assert_eq!((report.status, report.json()["verdict"].as_str()), (status, Some(verdict)));
        assert_eq!(report.err, "");
    }
}

#[test]
fn with_several_cases_2_goes_before_1_before_3_before_0() {
    let project = Project::with_cases(&["same", "drift", "weight"]);
    let verify = |names: &[&str]| {
        let files: Vec<String> = names.iter().map(|name| format!("cases/{name}.yaml")).collect();
        let arguments: Vec<&str> = std::iter::once("verify").chain(files.iter().map(String::as_str)).collect();
        project.goldline(&arguments)
    };
    assert_eq!(verify(&["same"]).status, 0);
    assert_eq!(verify(&["same", "same"]).status, 0);
    assert_eq!(verify(&["same", "weight"]).status, 3);
    assert_eq!(verify(&["weight", "drift", "same"]).status, 1);
    assert_eq!(verify(&["drift", "weight"]).status, 1);
    let torn = verify(&["weight", "gone", "drift", "same"]);
    assert_eq!(torn.status, 2);
    // One case that cannot be read hides none of the others.
    assert!(torn.err.starts_with("error: cases/gone.yaml: "), "{}", torn.err);
    for name in ["weight", "drift", "same", "gone"] {
        assert!(torn.out.contains(name), "{}", torn.out);
    }
    assert_eq!(verify(&["gone"]).refusal().split(": ").next(), Some("cases/gone.yaml"));
}

#[test]
fn a_directory_is_every_case_below_it() {
    let project = Project::with_cases(&["same", "drift"]);
    std::fs::create_dir_all(project.path("cases/deep/er")).unwrap();
    let nested = project.read("cases/same.yaml").replace("../", "../../../");
    project.write("cases/deep/er/nested.yaml", nested.replace("name: same", "name: nested"));
    project.write("cases/compose.yaml", "services: {}\n");
    let said = project.goldline(&["verify", "--json"]);
    let suite = said.json();
    assert_eq!((said.status, suite["schema"].as_str()), (1, Some("goldline.suite/1")));
    let names: Vec<&str> = suite["cases"].as_array().unwrap().iter().filter_map(|c| c["case"].as_str()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in ["same", "drift", "nested"] {
        assert!(names.contains(&name), "{names:?}");
    }
    std::fs::create_dir(project.path("nothing")).unwrap();
    assert!(project.goldline(&["verify", "nothing"]).refusal().starts_with("nothing: no case below this directory"));
}

#[test]
fn a_known_defect_is_expected_until_another_is_found() {
    let project = Project::with_cases(&["drift", "same"]);
    let verify = |name: &str, expect: &str| {
        project.case(name, expect);
        project.goldline(&["verify", &format!("cases/{name}.yaml")])
    };
    let met = verify("drift", "expect: {verdict: drift, origin: fc}");
    assert_eq!(met.status, 0, "{}", met.out);
    assert_eq!(verify("drift", "expect: {verdict: drift}").status, 0);
    for (expect, reason) in [
        ("expect: {verdict: drift, origin: act}", "act"),
        ("expect: {verdict: nonfinite, origin: fc}", "nonfinite"),
        ("expect: {verdict: incomparable}", "incomparable"),
    ] {
        let missed = verify("drift", expect);
        assert_eq!(missed.status, 1, "{}", missed.out);
        let why = missed.out.lines().find(|line| line.contains("expect")).unwrap_or_else(|| panic!("{}", missed.out));
        assert!(why.contains(reason), "{}", missed.out);
    }
    // What was known to fail and passes now is told: the case is out of date.
    assert_eq!(verify("same", "expect: {verdict: drift, origin: fc}").status, 1);
}

#[test]
fn bad_usage_is_2_and_on_stderr() {
    let project = Project::with_cases(&["same", "drift"]);
    for arguments in [
        &["verify", "--no-such-option"][..],
        &["diff", "golden"],
        &["no-such-verb"],
        &["diff", "golden", "same", "--threads", "0"],
        &["diff", "golden", "same", "--color", "sometimes"],
        &["record", "cases/same.yaml"],
        &["completions", "tcsh"],
        &[],
    ] {
        let said = project.goldline(arguments);
        assert_eq!((said.status, said.out.as_str()), (2, ""), "{arguments:?}: {}", said.err);
        assert!(!said.err.is_empty(), "{arguments:?}");
    }
    let several = project.goldline(&["verify", "cases", "--run", "same"]);
    assert!(several.refusal().contains("2 cases"), "{}", several.err);
    let both = project.goldline(&["bisect", "golden", "same", "--run", "drift"]);
    assert!(both.refusal().starts_with("--run goes with a case"), "{}", both.err);
    assert!(project.goldline(&["diff", "golden", "gone"]).refusal().starts_with("gone: "));
    assert!(project.goldline(&["blacklist", "golden", "drift", "--emit", "cobol"]).refusal().contains("cobol"));
}

#[test]
fn run_names_the_candidate_of_one_case() {
    let project = Project::with_cases(&["same"]);
    assert_eq!(project.goldline(&["verify", "cases/same.yaml", "--run", "drift"]).status, 1);
    // A directory that holds one case is that case.
    assert_eq!(project.goldline(&["verify", "cases", "--run", "inf"]).status, 1);
}

#[test]
fn bisect_explain_and_nan_have_the_status_of_what_they_found() {
    let project = Project::with_cases(&["drift"]);
    for (arguments, status, text) in [
        (&["bisect", "golden", "drift"][..], 1, "fc (linear"),
        (&["bisect", "golden", "same"], 0, "loaded"),
        (&["bisect", "golden", "weight"], 3, "fc.weight"),
        (&["bisect", "cases/drift.yaml"], 1, "fc (linear"),
        (&["bisect", "cases/drift.yaml", "--run", "same"], 0, "loaded"),
        (&["explain", "golden", "drift", "fc"], 1, "fc"),
        (&["explain", "golden", "same", "fc"], 0, "fc"),
        (&["nan", "golden"], 0, ""),
        (&["nan", "inf"], 1, "fc"),
        (&["nan", "inf", "--golden", "golden"], 1, "fc"),
        (&["nan", "inf", "--golden", "inf"], 0, ""),
        (&["inspect", "inf"], 0, "fc"),
        (&["blacklist", "golden", "inf"], 0, ""),
        (&["blacklist", "golden", "weight"], 3, ""),
    ] {
        let said = project.goldline(arguments);
        assert_eq!(said.status, status, "{arguments:?}: {}{}", said.out, said.err);
        assert!(said.out.contains(text), "{arguments:?}: {}", said.out);
        assert_eq!(said.err, "", "{arguments:?}");
    }
    let unknown = project.goldline(&["explain", "golden", "drift", "fc.weigth"]);
    assert!(unknown.refusal().ends_with("near: fc.weight, fc"), "names what is near: {}", unknown.err);
}
