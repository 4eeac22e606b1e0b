//! The one place that renders a mistake in a case file as a source frame.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::error::{Error, escape};

/// Characters of a line that a frame shows before and after the caret; the rest becomes `…`.
const CONTEXT_CHARS: usize = 60;

/// Characters that a caret spans at most, so that the frame stays narrow.
const MAX_CARETS: usize = 60;

/// Text of a case file together with the path that messages show.
#[derive(Debug, Clone)]
pub(super) struct Source {
    path: PathBuf,
    text: String,
}

/// A mistake before it is rendered: what, where, how to put it right.
#[derive(Debug, Clone)]
pub(super) struct Mistake {
    /// Byte range in the text.
    pub(super) span: Range<usize>,
    /// What is wrong, one lower-case fragment.
    pub(super) title: String,
    /// What stands beside the caret; may be empty.
    pub(super) label: String,
    /// Where the same thing stands first, in bytes; the label then names its line.
    pub(super) first: Option<usize>,
    /// What to do.
    pub(super) help: String,
}

impl Mistake {
    pub(super) fn new(span: &Range<usize>, title: impl Into<String>) -> Self {
        Self { span: span.clone(), title: title.into(), label: String::new(), first: None, help: String::new() }
    }

    pub(super) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(super) fn first(mut self, first: &Range<usize>) -> Self {
        self.first = Some(first.start);
        self
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }
}

impl Source {
    pub(super) fn new(path: &Path, text: impl Into<String>) -> Self {
        Self { path: path.to_path_buf(), text: text.into() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Renders `mistake` as an error whose display is the whole frame.
    pub(super) fn error(&self, mistake: &Mistake) -> Error {
        let window = Window::around(&self.text, &mistake.span);
        let title = escape(&mistake.title);
        let path = escape(&self.path.to_string_lossy());
        let mut label = escape(&mistake.label);
        if let Some(first) = mistake.first {
            label.push_str(&format!(", first on line {}", line_of(&self.text, first)));
        }
        let label = (!label.is_empty()).then_some(Cow::Owned(label));
        let snippet = Snippet::source(window.text.as_str())
            .path(path.as_str())
            .line_start(window.line)
            .fold(false)
            .annotation(AnnotationKind::Primary.span(window.carets.clone()).label(label));
        let mut group = Level::ERROR.primary_title(title.as_str()).element(snippet);
        if !mistake.help.is_empty() {
            group = group.element(Level::HELP.message(escape(&mistake.help)));
        }
        // A snippet is cut to its window here, so the renderer must not trim it a second time.
        let frame = Renderer::plain().term_width(4 * (CONTEXT_CHARS + MAX_CARETS)).render(&[group]);
        let frame = with_place(&frame, &format!("{path}:{}:{}", window.line, window.column));
        let line = u64::try_from(window.line).unwrap_or(u64::MAX);
        Error::framed(&self.path, &title, frame).line(line)
    }
}

/// Writes the true place into the arrow line: the renderer counts columns in the window that it was
/// given, in which characters may be left out or escaped.
fn with_place(frame: &str, place: &str) -> String {
    let mut lines: Vec<Cow<'_, str>> = frame.lines().map(|line| Cow::Borrowed(line.trim_end())).collect();
    if let Some(arrow) = lines.iter_mut().find(|line| line.trim_start().starts_with("--> ")) {
        let indent = arrow.len() - arrow.trim_start().len();
        *arrow = Cow::Owned(format!("{}--> {place}", " ".repeat(indent)));
    }
    lines.join("\n")
}

/// The part of one source line that a frame shows, escaped, with the place of the carets in it.
struct Window {
    line: usize,
    column: usize,
    text: String,
    carets: Range<usize>,
}

impl Window {
    fn around(text: &str, span: &Range<usize>) -> Self {
        let start = text.floor_char_boundary(span.start.min(text.len()));
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = text.get(start..).unwrap_or_default();
        let tail = rest.split('\n').next().unwrap_or_default().trim_end_matches('\r');
        let head = before.get(line_start..).unwrap_or_default();

        let wanted = text.ceil_char_boundary(span.end.clamp(start, text.len())) - start;
        let marked: String = tail.get(..wanted).unwrap_or(tail).trim_end().chars().take(MAX_CARETS).collect();
        let after = tail.get(marked.len()..).unwrap_or_default();

        let mut shown = last_chars(head, CONTEXT_CHARS);
        let caret_start = shown.len();
        shown.push_str(&visible(&marked));
        let caret_end = shown.len().max(caret_start + 1);
        shown.push_str(&first_chars(after, CONTEXT_CHARS));
        // A caret past the end of the line needs a character to stand under.
        if shown.len() <= caret_start {
            shown.push(' ');
        }
        let caret_end = shown.ceil_char_boundary(caret_end.min(shown.len()));
        Self {
            line: line_of(text, start),
            column: head.chars().count() + 1,
            text: shown,
            carets: caret_start..caret_end,
        }
    }
}

/// One-based line of a byte.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}

/// Control characters made visible; a tab becomes one blank, because what it would indent by depends
/// on the terminal.
fn visible(text: &str) -> String {
    escape(&text.replace('\t', " "))
}

fn first_chars(text: &str, count: usize) -> String {
    match text.char_indices().nth(count) {
        Some((end, _)) => format!("{}…", visible(text.get(..end).unwrap_or_default())),
        None => visible(text),
    }
}

fn last_chars(text: &str, count: usize) -> String {
    let start = text.char_indices().rev().nth(count.saturating_sub(1)).map_or(0, |(at, _)| at);
    let kept = visible(text.get(start..).unwrap_or_default());
    if start == 0 { kept } else { format!("…{kept}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str, span: Range<usize>) -> String {
        let mistake = Mistake::new(&span, "something is wrong").label("here").help("do better");
        Source::new(Path::new("cases/a.yaml"), text).error(&mistake).to_string()
    }

    #[test]
    fn shows_place_line_and_caret() {
        insta::assert_snapshot!(frame("a: 1\nbé: xyz\n", 10..13), @r#"
        error: something is wrong
         --> cases/a.yaml:2:5
          |
        2 | bé: xyz
          |     ^^^ here
          |
          = help: do better
        "#);
    }

    #[test]
    fn terminal_escapes_are_made_visible() {
        insta::assert_snapshot!(frame("a: \"\u{1b}[31m\u{202e}\" # \u{7}\n", 4..11), @r#"
        error: something is wrong
         --> cases/a.yaml:1:5
          |
        1 | a: "\u{1b}[31m\u{202e}" # \u{7}
          |     ^^^^^^^^^^^^^^^^^^ here
          |
          = help: do better
        "#);
    }

    #[test]
    fn a_long_line_is_cut_around_the_caret_and_keeps_its_column() {
        let text = format!("{}BAD{}", "x".repeat(5000), "y".repeat(5000));
        insta::assert_snapshot!(frame(&text, 5000..5003), @r#"
        error: something is wrong
         --> cases/a.yaml:1:5001
          |
        1 | …xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxBADyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy…
          |                                                              ^^^ here
          |
          = help: do better
        "#);
    }

    #[test]
    fn an_end_of_file_has_a_caret() {
        insta::assert_snapshot!(frame("", 0..0), @r#"
        error: something is wrong
         --> cases/a.yaml:1:1
          |
        1 |
          | ^ here
          |
          = help: do better
        "#);
        insta::assert_snapshot!(frame("a:\r\n", 2..2), @r#"
        error: something is wrong
         --> cases/a.yaml:1:3
          |
        1 | a:
          |   ^ here
          |
          = help: do better
        "#);
    }

    #[test]
    fn spans_out_of_bounds_or_inside_a_character_do_not_panic() {
        for span in [0..0, 1..1, Range { start: 2, end: 1 }, 1..900, 900..901, 3..4] {
            assert!(frame("aé\u{1F600}\r\n\tb", span).contains("something is wrong"));
        }
    }
}
