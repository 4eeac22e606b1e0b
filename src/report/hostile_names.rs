//! Names from files that try to act: no renderer lets them.

use super::model::Report;
use super::terminal::{self, Style};
use super::{Document, Format, example};

const HOSTILE: [&str; 9] = [
    "</script><script>alert(1)</script>",
    "a|b|c",
    "two\nlines\r\n# heading",
    "\u{1b}[31mred\u{1b}[0m\u{9b}32m\u{7}",
    "=cmd|' /C calc'!A0",
    "`]]><b onload=\"x\">&amp;'",
    "\u{202e}reversed\u{200b}",
    "soft\u{ad}hyphen\u{61c}\u{2060}\u{3164}\u{e0041}",
    "@someone [link](http://example.com) ![i](x)",
];

/// A report in which `name` stands wherever a report may hold text from a file.
fn poisoned(name: &str) -> Report {
    let mut report = example::nonfinite();
    report.signatures = example::drift().signatures;
    let own = || name.to_owned();
    report.case = Some(own());
    report.verdict = own();
    report.why = own();
    report.outcome = own();
    report.outcome_why = Some(own());
    for side in [&mut report.golden, &mut report.candidate] {
        side.path = own();
        side.compute = Some(own());
        side.environment.insert("device".into(), own());
    }
    report.differences = vec![own()];
    report.notes = vec![own()];
    if let Some(first) = &mut report.first_drift {
        (first.layer, first.op, first.pass, first.candidate_layer) = (own(), own(), own(), Some(own()));
    }
    for origin in &mut report.origins {
        (origin.layer, origin.op, origin.pass, origin.why) = (format!("{name}2"), own(), own(), own());
        (origin.side, origin.role, origin.candidate_layer) = (own(), own(), Some(own()));
    }
    for birth in &mut report.nonfinite_origins {
        (birth.layer, birth.op, birth.pass, birth.why) = (own(), own(), own(), format!("{name}!"));
        (birth.side, birth.kind, birth.cause, birth.tensor) = (own(), own(), own(), own());
        (birth.cause_layer, birth.first_nan_layer, birth.ended) = (Some(own()), Some(format!("{name}3")), Some(own()));
        birth.candidate_layer = Some(own());
        birth.reached = vec![own()];
    }
    for entry in &mut report.blacklist {
        (entry.op, entry.layers, entry.reason, entry.grade) = (own(), vec![own()], own(), own());
        (entry.why, entry.modules) = (own(), vec![own()]);
    }
    for remedy in &mut report.remedies {
        (remedy.kind, remedy.layers, remedy.why) = (own(), vec![own()], own());
    }
    for signature in &mut report.signatures {
        (signature.layer, signature.kind, signature.why) = (own(), own(), own());
    }
    for (at, row) in report.layers.iter_mut().enumerate() {
        (row.layer, row.op, row.pass, row.why) = (own(), own(), own(), own());
        (row.role, row.paired_by, row.candidate_layer) = (Some(own()), Some(own()), Some(own()));
        row.inputs = vec![own()];
        // One row keeps its verdict, so that those that show only layers that are out show it.
        if at > 1 {
            row.verdict = own();
        }
        for output in &mut row.outputs {
            (output.tensor, output.verdict, output.detail) = (own(), own(), Some(own()));
            output.dtype = [Some(own()), Some(own())];
            output.metrics.insert(own(), Some(2.0));
            for limit in output.limits.values_mut() {
                limit.why = own();
            }
            let limit = super::model::Limit { value: 1e-9, why: own() };
            output.limits.insert(own(), limit);
        }
    }
    report
}

fn poisoned_suite(name: &str) -> Document {
    let mut suite = example::suite();
    suite.cases.push(super::model::SuiteEntry::Report(Box::new(poisoned(name))));
    suite.cases.push(super::model::SuiteEntry::Failed { case: name.into(), error: name.into() });
    suite.first = Some(name.into());
    if let Some(place) = &mut suite.first_drift {
        (place.layer, place.op) = (name.into(), name.into());
    }
    for found in &mut suite.disagreements {
        (found.layer, found.op, found.tensor, found.why) = (name.into(), name.into(), name.into(), name.into());
        found.case = Some(name.into());
    }
    suite.verdict = name.into();
    suite.totals.insert(name.into(), 1);
    suite.into()
}

fn every_output(name: &str) -> Vec<(String, String)> {
    let mut outputs = Vec::new();
    let report = poisoned(name);
    let found = terminal::explain::find(&report, name).unwrap();
    let mut story = Vec::new();
    terminal::explain::write(&report, &found, Style::default(), &mut story).unwrap();
    outputs.push(("explain".to_owned(), String::from_utf8(story).unwrap()));
    for document in [Document::from(report), poisoned_suite(name)] {
        for format in Format::ALL {
            let mut out = Vec::new();
            format.write(&document, &mut out).unwrap();
            outputs.push((format.name().to_owned(), String::from_utf8(out).unwrap()));
        }
        for style in [Style::default(), Style { all: true, width: 200, colour: false }] {
            let mut out = Vec::new();
            terminal::write(&document, style, &mut out).unwrap();
            outputs.push(("terminal".to_owned(), String::from_utf8(out).unwrap()));
        }
    }
    outputs
}

#[test]
fn no_control_character_reaches_any_output() {
    for name in HOSTILE {
        for (format, text) in every_output(name) {
            for c in text.chars() {
                let line_end = c == '\n' || (c == '\r' && format == "csv");
                assert!(line_end || !crate::error::is_hidden(c), "{format}: {c:?} of {name:?}");
            }
        }
    }
}

#[test]
fn no_name_makes_a_line_of_its_own() {
    let lines = |name: &str, format: &str| -> Vec<usize> {
        every_output(name).iter().filter(|(f, _)| f == format).map(|(_, text)| text.lines().count()).collect()
    };
    for format in ["json", "html", "junit", "csv", "md"] {
        assert_eq!(lines("two\nlines\r\n# heading", format), lines("harmless", format), "{format}");
    }
}

#[test]
fn no_name_becomes_an_element() {
    for name in HOSTILE {
        for (format, text) in every_output(name) {
            if ["html", "junit", "md", "json"].contains(&format.as_str()) {
                assert!(!text.contains("</script>"), "{format}");
            }
            if ["html", "junit", "md"].contains(&format.as_str()) {
                assert!(!text.contains("<script") && !text.contains("<b onload"), "{format}");
            }
            if format == "html" || format == "junit" {
                assert!(!text.contains("onload=\"x\""), "{format}");
            }
        }
    }
}

#[test]
fn markdown_tables_keep_their_columns_and_mention_nobody() {
    for name in HOSTILE {
        for (_, text) in every_output(name).iter().filter(|(format, _)| format == "md") {
            for line in text.lines().filter(|line| line.starts_with('|')) {
                let cells = line.matches('|').count();
                assert!(cells == 10 || cells == 5, "{cells} bars in {line}");
            }
            assert!(!text.contains("@someone") && !text.contains("](http"), "{text}");
        }
    }
}

#[test]
fn csv_cells_are_no_formulas_and_records_keep_their_length() {
    for name in HOSTILE {
        for (_, text) in every_output(name).iter().filter(|(format, _)| format == "csv") {
            let lengths: Vec<usize> =
                text.split("\r\n").filter(|line| !line.is_empty()).map(|l| cells(l).len()).collect();
            assert!(lengths.windows(2).all(|pair| pair[0] == pair[1]), "{lengths:?}");
            for cell in text.split("\r\n").flat_map(cells) {
                let formula =
                    cell.starts_with(['=', '+', '@', '\t']) || (cell.starts_with('-') && cell.parse::<f64>().is_err());
                assert!(!formula, "{cell}");
            }
        }
    }
}

/// The cells of one record, by RFC 4180.
fn cells(record: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut chars = record.chars().peekable();
    while let Some(c) = chars.next() {
        let cell = cells.last_mut().unwrap();
        match (c, quoted) {
            ('"', true) if chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            ('"', _) => quoted = !quoted,
            (',', false) => cells.push(String::new()),
            (c, _) => cell.push(c),
        }
    }
    cells
}

#[test]
fn no_line_of_the_table_is_wider_than_the_terminal() {
    let long = "encoder.".repeat(40);
    for name in [long.as_str(), "短い名前の層".repeat(10).as_str(), "x"] {
        let mut report = example::drift();
        for (at, row) in report.layers.iter_mut().enumerate() {
            row.layer = format!("{name}{at}");
        }
        for width in [40, 60, 80, 100, 200] {
            let mut out = Vec::new();
            terminal::write(&report.clone().into(), Style { all: true, width, colour: false }, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            let table = text.split("\n\n").nth(1).unwrap();
            for line in table.lines() {
                assert!(terminal::width_of(line) <= width, "{width}: {line}");
            }
        }
    }
}
