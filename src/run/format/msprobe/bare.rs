//! Bare `NaN`, `Infinity` and `-Infinity`, which Python writes into JSON and JSON does not have.
//!
//! In goes a stream of bytes, out comes the same stream with each such token as a string of the same length
//! (`"a"`, `"nfinit"`, `"-nfinit"`), so that lines and columns of errors stay true. Text inside strings is
//! left alone. Memory: one buffer.

use std::io::{self, Read};

/// What a number is that JSON cannot hold, by the string that stands for it.
pub(super) fn special(text: &str) -> Option<f64> {
    match text {
        "a" => Some(f64::NAN),
        "nfinit" => Some(f64::INFINITY),
        "-nfinit" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// Where the stream stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between tokens, or in one that JSON has.
    Outside,
    /// In a string; `true` after a backslash.
    Text(bool),
    /// In a bare token of which so many bytes are left.
    Token(u8),
}

/// Bytes that are looked at in one piece.
const PIECE: usize = 1 << 16;

/// Reads through to `inner`.
pub(super) struct Quoting<R> {
    inner: R,
    state: State,
    /// A piece of `inner`, of which `ready` bytes are quoted and `given` handed out. A minus sign at the end
    /// of a piece waits, for the next byte decides its meaning.
    piece: Vec<u8>,
    ready: usize,
    given: usize,
}

impl<R: Read> Quoting<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, state: State::Outside, piece: Vec::new(), ready: 0, given: 0 }
    }

    /// Takes the next piece; at the end of `inner` nothing is ready.
    fn refill(&mut self) -> io::Result<()> {
        self.piece.drain(..self.ready);
        (self.ready, self.given) = (0, 0);
        loop {
            let kept = self.piece.len();
            self.piece.resize(kept + PIECE, 0);
            let read = self.inner.read(self.piece.get_mut(kept..).unwrap_or_default());
            self.piece.truncate(kept + read.as_ref().map_or(0, |read| *read));
            let at_end = read? == 0;
            let waits = !at_end && self.piece.last() == Some(&b'-');
            self.ready = self.piece.len() - usize::from(waits);
            if self.ready > 0 || at_end {
                break;
            }
        }
        let mut piece = std::mem::take(&mut self.piece);
        self.quote(&mut piece);
        self.piece = piece;
        Ok(())
    }
}

impl<R: Read> Read for Quoting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.ready {
            self.refill()?;
        }
        let ready = self.piece.get(self.given..self.ready).unwrap_or_default();
        let count = ready.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), ready.get(..count)) {
            to.copy_from_slice(from);
        }
        self.given += count;
        Ok(count)
    }
}

impl<R> Quoting<R> {
    fn quote(&mut self, bytes: &mut [u8]) {
        for at in 0..self.ready {
            let next = bytes.get(at + 1).copied();
            let Some(byte) = bytes.get_mut(at) else { return };
            self.state = match (self.state, *byte) {
                (State::Outside, b'"') => State::Text(false),
                (State::Outside, b'N') => {
                    *byte = b'"';
                    State::Token(2)
                }
                (State::Outside, b'I') => {
                    *byte = b'"';
                    State::Token(7)
                }
                (State::Outside, b'-') if next == Some(b'I') => {
                    *byte = b'"';
                    State::Token(8)
                }
                (State::Outside, _) => State::Outside,
                (State::Text(false), b'"') => State::Outside,
                (State::Text(escaped), byte) => State::Text(!escaped && byte == b'\\'),
                (State::Token(1), _) => {
                    *byte = b'"';
                    State::Outside
                }
                // The second byte of `-Infinity` becomes its sign.
                (State::Token(8), _) => {
                    *byte = b'-';
                    State::Token(7)
                }
                // A token that is no such word must not swallow the line's end or a quote.
                (State::Token(left), byte) if byte.is_ascii_alphabetic() => State::Token(left - 1),
                (State::Token(_), byte) => {
                    if byte == b'"' {
                        State::Text(false)
                    } else {
                        State::Outside
                    }
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out pieces of at most `step` bytes.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn quoted(text: &str, step: usize) -> String {
        let mut out = String::new();
        Quoting::new(Pieces(text.as_bytes(), step)).read_to_string(&mut out).unwrap();
        out
    }

    #[test]
    fn bare_tokens_become_strings_of_the_same_length_wherever_a_piece_ends() {
        let text = r#"{"a": NaN, "NaN": [Infinity, -Infinity, -1e-3], "x\"": "Infinity \\", "b":-Infinity}"#;
        let expected = r#"{"a": "a", "NaN": ["nfinit", "-nfinit", -1e-3], "x\"": "Infinity \\", "b":"-nfinit"}"#;
        for step in 1..text.len() {
            assert_eq!(quoted(text, step), expected, "{step}");
        }
        let numbers: Vec<Option<f64>> = ["nfinit", "-nfinit", "x"].iter().map(|text| special(text)).collect();
        assert_eq!(numbers, [Some(f64::INFINITY), Some(f64::NEG_INFINITY), None]);
        assert!(special("a").unwrap().is_nan());
    }

    #[test]
    fn other_text_stays_as_long_as_it_was() {
        for text in ["", "-", "N", "Nx\"y\"", "I\n\n", "--", "\"open", "-I\"a\"", "Infinit", "[1-I]"] {
            for step in 1..4 {
                assert_eq!(quoted(text, step).len(), text.len(), "{text}");
                assert_eq!(quoted(text, step).matches('\n').count(), text.matches('\n').count(), "{text}");
            }
        }
    }
}
