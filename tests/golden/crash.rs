//! Recorders that die, disks that are full: the old golden stays whole.

use std::path::Path;
use std::process::{Command, Stdio};

use goldline::golden::{Golden, RecordOptions, RecordOutcome, record, recover};

use crate::fixture::{Model, Project, case_in, check_all, names, refusal, updating};

/// Set for the process that [`child`] is.
const PROJECT: &str = "GOLDLINE_TEST_PROJECT";

/// A process of its own that records `runs/b` and `runs/a` in turns until it fails or is killed.
#[test]
#[ignore = "started by the tests that need a process to lose"]
fn child() {
    let Ok(dir) = std::env::var(PROJECT) else { return };
    let dir = Path::new(&dir);
    let case = case_in(dir);
    loop {
        for run in ["b", "a"] {
            if let Err(error) = record(&case, &[dir.join("runs").join(run)], &updating()) {
                panic!("refused: {error}");
            }
        }
    }
}

/// The child, started by a shell after `before`.
fn start(project: &Project, before: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{before} exec \"$0\" --exact crash::child --ignored --nocapture");
    command.args(["-c", &script]).arg(std::env::current_exe().unwrap());
    command.env(PROJECT, project.dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Large enough that a recording takes a while.
fn large(value: f32) -> Model {
    Model { y: vec![value; 1 << 18], ..Model::default() }
}

fn with_two_large_runs() -> Project {
    let project = Project::new();
    let first = project.run("a", &large(1.0));
    project.run("b", &large(2.0));
    project.record(&[first], &RecordOptions::default()).unwrap();
    project
}

#[cfg(unix)]
#[test]
fn killed_at_any_moment_one_of_the_two_goldens_is_whole() {
    let project = with_two_large_runs();
    let mut left_something = false;
    for round in 0..24 {
        let before = names(&project.path("goldens"));
        let mut child = start(&project, "").spawn().unwrap();
        while names(&project.path("goldens")) == before {
            assert!(child.try_wait().unwrap().is_none(), "the recorder ended by itself");
            std::thread::yield_now();
        }
        // Each round a little later in the recordings that follow each other.
        std::thread::sleep(std::time::Duration::from_micros(1700 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        left_something |= names(&project.path("goldens")).len() > 1;
        let golden = Golden::open(project.golden()).unwrap();
        assert_eq!(check_all(&golden).unwrap(), 5);
        let from = golden.info.recorded_from[0].clone();
        let y = golden.run.load(goldline::run::TensorId(2)).unwrap().unwrap().decode().unwrap();
        assert_eq!(y[0], if from.ends_with("/b") { 2.0 } else { 1.0 }, "{from}");
    }
    assert!(left_something, "no kill met a recording: the test shows nothing");
    let run = project.run("c", &large(3.0));
    assert!(matches!(project.record(&[run], &updating()).unwrap(), RecordOutcome::Replaced(..)));
    assert_eq!(names(&project.path("goldens")), ["g"]);
}

#[cfg(unix)]
#[test]
fn a_full_disk_leaves_the_old_golden() {
    let project = with_two_large_runs();
    // Files of at most 200 blocks of 512 or 1024 bytes; the tensors need a MiB.
    let output = start(&project, "trap '' XFSZ; ulimit -f 200;").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("refused: "), "{error}");
    assert!(error.contains("tensors.safetensors: cannot write: "), "{error}");
    assert_eq!(names(&project.path("goldens")), ["g"]);
    let golden = Golden::open(project.golden()).unwrap();
    assert_eq!(check_all(&golden).unwrap(), 5);
    assert!(golden.info.recorded_from[0].ends_with("/a"));
}

#[test]
fn of_two_recorders_at_once_each_leaves_a_whole_golden() {
    let project = Project::new();
    let runs = ["a", "b", "c"].map(|name| project.run(name, &large(f32::from(name.as_bytes()[0]))));
    let created = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for run in &runs {
            scope.spawn(|| {
                // The first golden is made by one of them; the others find it there, then or before.
                match project.record(std::slice::from_ref(run), &RecordOptions::default()) {
                    Ok(RecordOutcome::Created(_)) => _ = created.fetch_add(1, std::sync::atomic::Ordering::SeqCst),
                    Ok(RecordOutcome::Refused(_)) => {}
                    Err(error) if error.message().contains("appeared") => {}
                    other => panic!("{other:?}"),
                }
            });
        }
    });
    assert_eq!(created.into_inner(), 1);
    assert_eq!(check_all(&Golden::open(project.golden()).unwrap()).unwrap(), 5);
    assert_eq!(names(&project.path("goldens")), ["g"]);
}

#[test]
fn an_interrupted_swap_is_put_back_and_recorded_over() {
    let project = Project::recorded();
    let old = project.path("goldens/.g.old");
    std::fs::rename(project.golden(), &old).unwrap();
    assert_eq!(check_all(&Golden::open(project.golden()).unwrap()).unwrap(), 5);

    std::fs::rename(project.golden(), &old).unwrap();
    let run = project.run("b", &Model { z: vec![1.0; 4], ..Model::default() });
    let refused = project.record(std::slice::from_ref(&run), &RecordOptions::default()).unwrap();
    assert!(matches!(refused, RecordOutcome::Refused(_)), "the golden was there all the time: {refused:?}");
    assert!(matches!(project.record(&[run], &updating()).unwrap(), RecordOutcome::Replaced(..)));
    assert_eq!(names(&project.path("goldens")), ["g"]);
    assert!(!recover(project.golden()).unwrap());
}

#[test]
fn a_golden_that_has_nowhere_to_go_is_an_error() {
    let project = Project::new();
    let run = project.run("a", &Model::default());
    std::fs::write(project.path("goldens"), "").unwrap();
    let error = refusal(project.record(std::slice::from_ref(&run), &RecordOptions::default()));
    assert!(error.contains("goldens"), "{error}");
    std::fs::remove_file(project.path("goldens")).unwrap();
    std::fs::create_dir(project.path("goldens")).unwrap();
    std::fs::write(project.golden(), "").unwrap();
    let error = refusal(project.record(&[run], &updating()));
    assert!(error.contains("found a file: move it away"), "{error}");
}

#[test]
fn a_run_that_breaks_off_while_it_is_copied_leaves_the_old_golden() {
    let project = Project::recorded();
    let run = project.run("b", &Model { z: vec![1.0; 4], ..Model::default() });
    let file = std::fs::OpenOptions::new().write(true).open(run.join("tensors.safetensors")).unwrap();
    let len = file.metadata().unwrap().len();
    // The run is read for its digests, then for what changes, then to be copied: it shrinks as the
    // last pass begins.
    let passes = std::sync::atomic::AtomicU64::new(0);
    let on_progress = |done: u64, _: u64| {
        if done == 1 && passes.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 2 {
            file.set_len(len - 1).unwrap();
        }
    };
    let options = RecordOptions { on_progress: &on_progress, ..updating() };
    let error = refusal(project.record(&[run], &options));
    assert!(error.contains("it has changed since it was opened"), "{error}");
    assert_eq!(names(&project.path("goldens")), ["g"]);
    assert_eq!(check_all(&Golden::open(project.golden()).unwrap()).unwrap(), 5);
}
