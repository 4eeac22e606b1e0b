//! The cases that ship, from a copy, as a user's first command runs them.

use std::path::Path;

use crate::project::Project;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn the_shipped_cases_are_as_expected() {
    let project = Project::empty();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["cases", "goldens"] {
        copy(&root.join(name), &project.path(name));
    }
    let screen = project.goldline(&["verify", "cases"]);
    assert_eq!((screen.status, screen.err.as_str()), (0, ""), "{}", screen.out);
    let suite = project.goldline(&["verify", "cases", "--json", "--threads", "1"]);
    let cases = suite.json()["cases"].as_array().unwrap().clone();
    assert!(cases.len() >= 4);
    assert!(cases.iter().all(|case| case["outcome"] == "expected"), "{}", suite.out);
    assert_eq!(suite.out, project.goldline(&["verify", "cases", "--json", "--threads", "4"]).out);
    // Verifying changes nothing.
    assert_eq!(project.list("goldens/bert").len(), std::fs::read_dir(root.join("goldens/bert")).unwrap().count());
}
