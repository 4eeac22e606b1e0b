//! The blacklist as a file for the framework that has to obey it.
//!
//! In go the advice and the golden run that its layer names belong to, out comes the text of a file
//! and the notes that have no place in it. The invariant: the text is valid in its language whatever
//! the names hold, also where the blacklist is empty, and nothing of the list is left out without a
//! note or a comment that says so. Adding a framework is one file and one line of `FORMATS`.

mod ascend;
mod place;
mod torch;

use super::Advice;
use crate::error::{Error, Result, escape};
use crate::run::Run;

/// A file syntax that a blacklist can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Python: a function that runs the named modules in fp32 under `torch.autocast`.
    Torch,
    /// JSON as CANN's `--modify_mixlist` takes it: lists by operator type.
    AscendMixlist,
}

/// What the user allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EmitOptions {
    /// Write a list by operator type although most of what it hits is not on the blacklist.
    pub allow_collateral: bool,
}

/// A file for a framework.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmitOutput {
    /// The file's text, ending with a newline.
    pub text: String,
    /// One line each: what the file cannot say itself (collateral, what was left out, why it is
    /// empty). For a person, not for the file.
    pub notes: Vec<String>,
}

struct Emitter {
    format: Format,
    name: &'static str,
    emit: fn(&Advice, &Run, EmitOptions) -> Result<EmitOutput>,
}

const FORMATS: &[Emitter] = &[
    Emitter { format: Format::Torch, name: "torch", emit: torch::emit },
    Emitter { format: Format::AscendMixlist, name: "ascend-mixlist", emit: ascend::emit },
];

impl Format {
    /// Every format, in the order in which help texts list them.
    pub fn all() -> impl Iterator<Item = Self> {
        FORMATS.iter().map(|emitter| emitter.format)
    }

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|emitter| emitter.format == self).map_or("", |emitter| emitter.name)
    }

    /// The format with this name.
    ///
    /// # Errors
    /// No format has it; the message lists those that there are.
    pub fn parse(name: &str) -> Result<Self> {
        let found = FORMATS.iter().find(|emitter| emitter.name == name);
        found.map(|emitter| emitter.format).ok_or_else(|| {
            let names: Vec<&str> = FORMATS.iter().map(|emitter| emitter.name).collect();
            let name = escape(name);
            Error::new(format_args!("unknown blacklist format `{name}`, expected one of: {}", names.join(", ")))
        })
    }
}

/// Writes the blacklist of `advice` in `format`. `golden` is the run whose layers it names: modules,
/// source lines and what a list by type also hits come from there.
///
/// # Errors
/// A list by operator type would mostly hit layers that are not on the blacklist, and `options` does
/// not allow that.
pub fn emit(format: Format, advice: &Advice, golden: &Run, options: EmitOptions) -> Result<EmitOutput> {
    match FORMATS.iter().find(|emitter| emitter.format == format) {
        Some(emitter) => (emitter.emit)(advice, golden, options),
        None => Err(Error::new(format_args!("no emitter for {format:?}"))),
    }
}

/// Why a blacklist is empty: what helps instead.
fn why_empty(advice: &Advice) -> Vec<String> {
    if advice.remedies.is_empty() {
        return vec!["the blacklist is empty: nothing is out for want of range or precision".into()];
    }
    let remedy = |remedy: &super::Remedy| {
        let layers = if remedy.layers.is_empty() { String::new() } else { format!(" ({})", remedy.layers.join(", ")) };
        let text = format!("{}{layers}: {}", remedy.kind.as_str(), remedy.why);
        format!("the blacklist is empty, for what helps is no list but {}", escape(&text))
    };
    advice.remedies.iter().map(remedy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_a_name_that_finds_it() {
        for format in Format::all() {
            assert_eq!(Format::parse(format.name()).unwrap(), format);
        }
        let error = Format::parse("tor\u{1b}ch").unwrap_err().to_string();
        assert_eq!(error, "unknown blacklist format `tor\\u{1b}ch`, expected one of: torch, ascend-mixlist");
    }
}
