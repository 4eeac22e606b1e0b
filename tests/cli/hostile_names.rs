//! Names that try to act on a terminal, lead elsewhere or flood the screen.

use goldline::error::is_hidden;
use goldline::tensor::DType;
use serde_json::json;

use crate::project::{Project, Said};
use crate::support::{Recorder, Values};

const HOSTILE: [&str; 8] = [
    "\u{1b}[2J\u{1b}]0;title\u{7}",
    "\u{1b}]8;;http://example.com\u{1b}\\link\u{1b}]8;;\u{1b}\\",
    "\u{202e}reversed\u{2066}",
    "a\u{61c}b\u{2060}c\u{ad}d\u{3164}e\u{e0041}",
    "\u{9b}31m\u{85}",
    "two\r\nlines\tand\u{2028}more",
    "../../../../etc/passwd",
    "\"]\n}\nimport os # ' \\",
];

/// A run whose every text is `name`, its last layer an Inf.
fn poisoned(name: &str, last: f64) -> Recorder {
    let mut run = Recorder::new(DType::F32)
        .meta("name", json!(name))
        .meta("environment", json!({"device": name, name: {name: last.to_string()}}))
        .meta("precision", json!({"compute": name, "fp32_ops": [name]}));
    run.input(&format!("x{name}"), Values::new(&[2], [1.0, 2.0]));
    run.layer(&format!("z{name}"), &format!("op{name}"), &[&format!("x{name}")])
        .with("module", name)
        .with("source", name)
        .with("schema", name)
        .with("device", name)
        .with("attrs", json!({name: name}))
        .gives(Values::new(&[2], [1.0, last]));
    run
}

#[track_caller]
fn is_clean(said: &Said, what: &str) {
    assert!((0..4).contains(&said.status), "{what}: {}", said.err);
    for text in [&said.out, &said.err] {
        let bad = text.chars().find(|c| is_hidden(*c) && *c != '\n');
        assert_eq!(bad, None, "{what}: {text}");
    }
}

#[test]
fn no_verb_prints_what_a_terminal_would_obey() {
    for name in HOSTILE {
        let project = Project::with_runs();
        project.run("a", &poisoned(name, 1.0));
        project.run("b", &poisoned(name, f64::INFINITY));
        let layer = format!("z{name}");
        for arguments in [
            &["diff", "a", "b"][..],
            &["diff", "a", "b", "--all"],
            &["diff", "golden", "b"],
            &["diff", "a", "b", "--json"],
            &["diff", "a", "b", "--report", "md=-"],
            &["diff", "a", "b", "--report", "junit=-"],
            &["diff", "a", "b", "--report", "html=-"],
            &["bisect", "a", "b"],
            &["bisect", "a", "b", "--json"],
            &["nan", "b"],
            &["nan", "b", "--json"],
            &["nan", "b", "--golden", "a"],
            &["blacklist", "a", "b"],
            &["blacklist", "a", "b", "--emit", "torch"],
            &["blacklist", "a", "b", "--emit", "ascend-mixlist"],
            &["inspect", "b", "--all"],
            &["inspect", "b", "--json"],
            &["explain", "a", "b", &layer],
        ] {
            is_clean(&project.goldline(arguments), &format!("{arguments:?}"));
        }
        let csv = project.goldline(&["diff", "a", "b", "--report", "csv=-"]);
        assert!(!csv.out.chars().any(|c| is_hidden(c) && !matches!(c, '\r' | '\n')), "{}", csv.out);
    }
}

#[test]
fn arguments_are_made_harmless_too() {
    let project = Project::with_runs();
    for name in HOSTILE {
        for arguments in [
            &["diff", "golden", name][..],
            &["report", name],
            &["verify", name],
            &["explain", "golden", "drift", name],
            &["blacklist", "golden", "drift", "--emit", name],
            &["diff", "golden", "drift", "--report", &format!("{name}=x")],
            &["init", name],
            &[name],
            &["diff", "golden", "drift", "--threads", name],
            &["completions", name],
        ] {
            let said = project.goldline(arguments);
            assert_eq!(said.status, 2, "{arguments:?}");
            is_clean(&said, &format!("{arguments:?}"));
        }
    }
}

#[test]
fn a_long_name_floods_nothing() {
    let project = Project::with_runs();
    let long = "n".repeat(8 << 20);
    let run = |last| {
        let mut run = Recorder::f32();
        run.input("x", Values::new(&[2], [1.0, 2.0]));
        run.layer(&long, "sigmoid", &["x"]).gives(Values::new(&[2], [1.0, last]));
        run
    };
    project.run("a", &run(1.0));
    project.run("b", &run(f64::INFINITY));
    for arguments in [
        &["diff", "a", "b"][..],
        &["diff", "golden", "b"],
        &["bisect", "a", "b"],
        &["nan", "b"],
        &["inspect", "b"],
        &["explain", "a", "b", "nnnn"],
        &["explain", "a", "b", "m"],
        &["blacklist", "a", "b"],
    ] {
        let said = project.goldline(arguments);
        assert!((0..4).contains(&said.status), "{arguments:?}: {}", said.err);
        let printed = said.out.len() + said.err.len();
        assert!(printed < 20_000, "{arguments:?}: {printed} bytes");
    }
    let line = format!("{{\"name\":\"{long}\",\"op\":\"relu\",\"outputs\":[\"x\"],\"call\":0}}\n");
    project.write("a/layers.jsonl", line.repeat(2));
    let said = project.goldline(&["inspect", "a"]);
    let text = said.refusal();
    assert!(text.starts_with("a/layers.jsonl: line 2: layer `nnn") && text.len() < 1000, "{text}");
    assert!(text.ends_with("was already recorded in line 1: expected each name, pass and call once"), "{text}");
}
