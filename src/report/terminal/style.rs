//! Width and colour: what fits a line, and what is painted.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style as Ansi};
use tabled::grid::util::string::{get_char_width, get_text_width};

use crate::error::legible;
use crate::report::gist::{Line, Piece};

/// The width that is assumed where there is no terminal, in columns.
pub const DEFAULT_WIDTH: usize = 100;
/// Below this nothing can be laid out; a narrower terminal wraps by itself.
const MIN_WIDTH: usize = 40;

/// How a report is shown on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether to paint; without it the output holds no escape byte.
    pub colour: bool,
    /// Columns of a line.
    pub width: usize,
    /// Whether every layer is shown, not those of interest alone.
    pub all: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { colour: false, width: DEFAULT_WIDTH, all: false }
    }
}

/// What a stretch of text means, and hence how it is painted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// In.
    Good,
    /// Out.
    Bad,
    /// Neither: not compared, or to be looked at.
    Doubtful,
    /// Of lesser interest.
    Quiet,
    /// A name that the eye shall find.
    Strong,
    /// As it is.
    Plain,
}

impl Tone {
    /// The tone of a layer's or a case's verdict.
    pub fn of(verdict: &str) -> Self {
        match verdict {
            "pass" => Self::Good,
            "drift" | "nonfinite" | "mismatch" => Self::Bad,
            "missing" | "incomparable" => Self::Doubtful,
            _ => Self::Quiet,
        }
    }

    pub(super) fn ansi(self) -> Ansi {
        let colour = |colour: AnsiColor| Ansi::new().fg_color(Some(colour.into()));
        match self {
            Self::Good => colour(AnsiColor::Green),
            Self::Bad => colour(AnsiColor::Red).bold(),
            Self::Doubtful => colour(AnsiColor::Yellow),
            Self::Quiet => Ansi::new().dimmed(),
            Self::Strong => Ansi::new().bold(),
            Self::Plain => Ansi::new(),
        }
    }
}

impl Style {
    /// The width to lay out for.
    pub(super) fn columns(self) -> usize {
        self.width.max(MIN_WIDTH)
    }

    /// The text, painted where colour was asked for. The text itself must have been escaped.
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        if !self.colour || tone == Tone::Plain || text.is_empty() {
            return text.to_owned();
        }
        let ansi = tone.ansi();
        format!("{ansi}{text}{ansi:#}")
    }

    /// Sets a line in a column that starts at `indent`: words move to the next line where they do
    /// not fit, and later lines are indented alike. Names are painted strong. The first line comes
    /// without its indent; no line feed stands at the end.
    pub(super) fn flow(self, line: &Line, indent: usize) -> String {
        let limit = self.columns();
        let mut out = String::new();
        let mut at = indent;
        for (tone, word, glued) in words(line) {
            let width = width_of(&word);
            let space = usize::from(!glued && at > indent);
            if !glued && at > indent && at + space + width > limit {
                let _ = write!(out, "\n{:indent$}", "");
                at = indent;
            } else if space == 1 {
                out.push(' ');
                at += 1;
            }
            out.push_str(&self.paint(tone, &word));
            at += width;
        }
        out
    }
}

/// The words of a line; `true` where one follows the word before without a space.
fn words(line: &Line) -> Vec<(Tone, String, bool)> {
    let mut words: Vec<(Tone, String, bool)> = Vec::new();
    let mut glued = true;
    for piece in line {
        match piece {
            // A name is one word: a line feed in the middle of it would make two names of it.
            Piece::Name(name) => {
                words.push((Tone::Strong, legible(name), glued));
                glued = true;
            }
            Piece::Text(text) => {
                let text = legible(text);
                for (place, word) in text.split(' ').enumerate() {
                    if place > 0 {
                        glued = false;
                    }
                    if !word.is_empty() {
                        words.push((Tone::Plain, word.to_owned(), glued));
                        glued = true;
                    }
                }
            }
        }
    }
    words
}

/// Columns that the text takes on a terminal.
pub fn width_of(text: &str) -> usize {
    get_text_width(text)
}

/// The text in at most `width` columns: its middle gives way to `…`, the end keeps a little more
/// than the start, for the end of a layer's name says which layer it is.
pub fn shortened(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let head_room = room * 2 / 5;
    let mut head = String::new();
    let mut used = 0;
    for c in text.chars() {
        let w = get_char_width(c);
        if used + w > head_room {
            break;
        }
        head.push(c);
        used += w;
    }
    let mut tail = Vec::new();
    let mut tail_used = 0;
    for c in text.chars().rev() {
        let w = get_char_width(c);
        if used + tail_used + w > room {
            break;
        }
        tail.push(c);
        tail_used += w;
    }
    if width == 0 {
        return String::new();
    }
    head.push('…');
    head.extend(tail.into_iter().rev());
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_middle_of_a_long_name_gives_way() {
        assert_eq!(shortened("encoder.layer.11.output.dense.linear", 20), "encoder…dense.linear");
        assert_eq!(shortened("short", 20), "short");
        assert_eq!(shortened("abc", 1), "…");
        assert_eq!(shortened("abc", 0), "");
    }

    #[test]
    fn prose_wraps_under_its_column_and_names_stay_whole() {
        let style = Style { width: 40, ..Style::default() };
        let line = vec![
            Piece::Text("one two three four five six seven in ".into()),
            Piece::Name("a name with spaces in it".into()),
            Piece::Text(", and more".into()),
        ];
        assert_eq!(
            style.flow(&line, 8),
            "one two three four five six\n        seven in\n        a name with spaces in it, and\n        more"
        );
    }

    proptest! {
        #[test]
        fn a_shortened_name_fits(name in "\\PC{0,80}", width in 1_usize..60) {
            prop_assert!(width_of(&shortened(&name, width)) <= width);
        }
    }
}
