//! Each renderer's output for the example reports, held against stored files.

use super::terminal::{self, Style};
use super::{Document, Format, example};

fn examples() -> [(&'static str, Document); 4] {
    [
        ("pass", example::pass().into()),
        ("drift", example::drift().into()),
        ("nonfinite", example::nonfinite().into()),
        ("suite", example::suite().into()),
    ]
}

fn written(write: impl Fn(&mut Vec<u8>)) -> String {
    let mut first = Vec::new();
    write(&mut first);
    let mut second = Vec::new();
    write(&mut second);
    assert_eq!(first, second, "the same document gives the same bytes");
    String::from_utf8(first).unwrap()
}

#[test]
fn file_formats() {
    for (name, document) in examples() {
        for format in Format::ALL {
            let text = written(|out| format.write(&document, out).unwrap());
            insta::assert_snapshot!(format!("{name}.{}", format.name()), text);
        }
    }
}

#[test]
fn terminal() {
    for (name, document) in examples() {
        let text = written(|out| terminal::write(&document, Style::default(), out).unwrap());
        assert!(!text.contains('\u{1b}'));
        insta::assert_snapshot!(format!("{name}.terminal"), text);
    }
}

#[test]
fn terminal_with_every_layer() {
    let style = Style { all: true, width: 120, ..Style::default() };
    let text = written(|out| terminal::write(&example::pass().into(), style, out).unwrap());
    insta::assert_snapshot!("pass.terminal-all", text);
}

#[test]
fn terminal_in_colour() {
    let style = Style { colour: true, ..Style::default() };
    let text = written(|out| terminal::write(&example::nonfinite().into(), style, out).unwrap());
    insta::assert_snapshot!("nonfinite.terminal-colour", text.replace('\u{1b}', "␛"));
}

#[test]
fn stories_of_layers() {
    for (name, report, layer) in [
        ("drift.explain-origin-in-two-passes", example::drift(), "dense.linear"),
        ("nonfinite.explain-birth", example::nonfinite(), "ln.pow"),
        ("nonfinite.explain-end", example::nonfinite(), "rsqrt"),
        ("pass.explain-skipped", example::pass(), "dropout"),
    ] {
        let rows = terminal::explain::find(&report, layer).unwrap();
        let text = written(|out| terminal::explain::write(&report, &rows, Style::default(), out).unwrap());
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn a_narrow_terminal() {
    let style = Style { width: 60, ..Style::default() };
    let text = written(|out| terminal::write(&example::drift().into(), style, out).unwrap());
    insta::assert_snapshot!("drift.terminal-narrow", text);
}
