//! The one error type: what was read, where, what was expected, what was found.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

/// Shorthand for results with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation could not be carried out. Every error is one line for a person; the command
/// line prints it and exits with status 2.
#[derive(Debug, Clone)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    path: Option<PathBuf>,
    place: Option<Place>,
    message: String,
    frame: Option<String>,
}

/// Where in a file an error stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Byte offset from the start of the file.
    Byte(u64),
    /// One-based line.
    Line(u64),
}

impl Error {
    /// An error that belongs to no file.
    pub fn new(message: impl fmt::Display) -> Self {
        Self(Box::new(Inner { path: None, place: None, message: message.to_string(), frame: None }))
    }

    /// An error about the file or directory at `path`.
    pub fn at(path: impl AsRef<Path>, message: impl fmt::Display) -> Self {
        let mut error = Self::new(message);
        error.0.path = Some(path.as_ref().to_path_buf());
        error
    }

    /// An input/output error of the operating system at `path`.
    pub fn io(path: impl AsRef<Path>, action: &str, source: &std::io::Error) -> Self {
        Self::at(path, format_args!("cannot {action}: {}", describe_io(source)))
    }

    /// Adds the byte at which the trouble stands.
    #[must_use]
    pub fn byte(mut self, offset: u64) -> Self {
        self.0.place = Some(Place::Byte(offset));
        self
    }

    /// Adds the one-based line at which the trouble stands.
    #[must_use]
    pub fn line(mut self, line: u64) -> Self {
        self.0.place = Some(Place::Line(line));
        self
    }

    /// An error that is shown as a ready-made source frame (rustc style) instead of one line.
    pub fn framed(path: impl AsRef<Path>, message: impl fmt::Display, frame: String) -> Self {
        let mut error = Self::at(path, message);
        error.0.frame = Some(frame);
        error
    }

    /// The file or directory concerned.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Where in the file.
    pub fn place(&self) -> Option<Place> {
        self.0.place
    }

    /// What went wrong, without file and place.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

fn describe_io(source: &std::io::Error) -> String {
    use std::io::ErrorKind as Kind;
    match source.kind() {
        Kind::NotFound => "no such file or directory".into(),
        Kind::PermissionDenied => "permission denied".into(),
        Kind::StorageFull => "no space left on the device".into(),
        Kind::UnexpectedEof => "the file ended early (it may have shrunk while it was read)".into(),
        _ => source.to_string(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(frame) = &self.0.frame {
            return f.write_str(frame);
        }
        if let Some(path) = &self.0.path {
            write!(f, "{}: ", legible(&path.to_string_lossy()))?;
        }
        match self.0.place {
            Some(Place::Byte(byte)) => write!(f, "byte {byte}: ")?,
            Some(Place::Line(line)) => write!(f, "line {line}: ")?,
            None => {}
        }
        f.write_str(&legible(&self.0.message))
    }
}

impl std::error::Error for Error {}

/// Makes text from a file safe to print: characters that are [hidden](is_hidden) become visible
/// `\u{…}` escapes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

/// Whether a character acts on a terminal instead of standing in it: control characters (terminal
/// escapes among them), characters that reorder or join text, and those that show nothing, by which
/// two names that differ look alike.
///
/// Unicode's `Default_Ignorable_Code_Point`, its line separators and interlinear annotation.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Text from a file as a terminal shows it: [escaped](escape), and short enough for a person. A name
/// may be 100 MB long; the middle of a long word, or of the whole, gives way, and how much is said.
pub fn legible(text: &str) -> String {
    clip(&escape(text)).into_owned()
}

/// Characters of one word that a line shows; a path or a layer's name is one word.
const LONGEST_WORD: usize = 240;

/// Characters of a whole message.
const LONGEST_MESSAGE: usize = 1600;

fn clip(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST_WORD {
        return Cow::Borrowed(text);
    }
    let words: Vec<Cow<'_, str>> = text.split(' ').map(|word| clip_to(word, LONGEST_WORD)).collect();
    Cow::Owned(clip_to(&words.join(" "), LONGEST_MESSAGE).into_owned())
}

fn clip_to(text: &str, longest: usize) -> Cow<'_, str> {
    // A character has at least one byte, so that few bytes need no counting.
    if text.len() <= longest {
        return Cow::Borrowed(text);
    }
    let length = text.chars().count();
    if length <= longest {
        return Cow::Borrowed(text);
    }
    let (head, tail) = (longest / 2, longest / 3);
    let at = |character: usize| text.char_indices().nth(character).map_or(text.len(), |(at, _)| at);
    let (head_end, tail_start) = (at(head), at(length - tail));
    let hidden = length - head - tail;
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    Cow::Owned(format!("{}…({hidden} characters)…{}", part(0..head_end), part(tail_start..text.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_length_leave_a_line() {
        let name = "é".repeat(1_000_000);
        let error = Error::at(&name, format_args!("layer `{name}` was already recorded in line 2")).line(3);
        let text = error.to_string();
        assert!(text.chars().count() < 600, "{text}");
        assert!(text.ends_with("é` was already recorded in line 2"), "{text}");
        assert!(text.contains("…(999800 characters)…"), "{text}");
        let words = Error::new("a b ".repeat(100_000)).to_string();
        assert!(words.starts_with("a b a b") && words.chars().count() < 1700, "{words}");
        assert_eq!(Error::new("x".repeat(240)).to_string(), "x".repeat(240));
    }

    #[test]
    fn what_a_terminal_would_act_on_or_not_show_is_escaped() {
        for c in [
            '\u{1b}',
            '\u{9b}',
            '\r',
            '\u{7f}',
            '\u{ad}',
            '\u{61c}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{3164}',
            '\u{e0041}',
        ] {
            assert_eq!(escape(&format!("a{c}b")), format!("a{}b", c.escape_unicode()));
        }
        assert_eq!(escape("é 漢 🙂 `x`"), "é 漢 🙂 `x`");
    }

    #[test]
    fn one_line_with_file_and_place() {
        let error = Error::at("a/b.jsonl", "expected an object, found \u{1b}[31m").line(3);
        assert_eq!(error.to_string(), "a/b.jsonl: line 3: expected an object, found \\u{1b}[31m");
    }
}
