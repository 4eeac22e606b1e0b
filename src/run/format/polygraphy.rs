//! `RunResults` of Polygraphy: JSON with the outputs of each iteration of each runner, as base64 of `.npy`.
//!
//! In goes the file, out comes a run of the first iteration of the first runner, one layer per output in
//! the file's order. A tensor's bytes are decoded when it is loaded. Format after
//! `polygraphy/comparator/struct.py` and `polygraphy/json/serde.py` of Polygraphy 0.53.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::flat::{self, Entry};
use super::npy::{Header, Trouble};
use super::outline::{self, Node, Text};
use super::{Format, recognise};
use crate::error::{Error, Result};
use crate::run::{Encoding, Run, Stored};
use crate::tensor::DataFile;

pub(super) const FORMAT: Format = Format { recognises, open };

/// Bytes from which the format is recognised.
const HEAD: u64 = 512;

fn recognises(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let head = DataFile::open(path).and_then(|file| file.read(0, file.len().min(HEAD)));
    head.is_ok_and(|head| {
        let names = |part: &[u8]| head.windows(part.len()).any(|window| window == part);
        recognise::content(&head) == Some("a JSON object") && (names(b"\"lst\"") || names(b"polygraphy"))
    })
}

fn open(path: &Path) -> Result<Run> {
    let root = outline::read(path)?;
    let expected = |what: &str| Error::at(path, format_args!("expected {what}, found something else"));
    let runners =
        root.get("lst").and_then(Node::list).ok_or_else(|| expected("Polygraphy RunResults with a list `lst`"))?;
    let mut results = Vec::new();
    for runner in runners {
        let Some([name, iterations]) = runner.list() else {
            return Err(expected("a runner's name and its iterations"));
        };
        let name = name.text().and_then(Text::whole).ok_or_else(|| expected("a runner's name"))?;
        results.push((name, iterations.list().ok_or_else(|| expected("a list of iterations"))?));
    }
    let Some(((runner, iterations), first)) = results.first().and_then(|result| Some((result, result.1.first()?)))
    else {
        return Err(Error::at(path, "expected an iteration of a runner, found none"));
    };
    let Some(Node::Object(outputs)) = first.get("outputs") else {
        return Err(expected("an iteration with `outputs`"));
    };
    let data = DataFile::open(path)?;
    let entries = outputs.iter().map(|(name, output)| {
        let stored = array(&data, output).map_err(|trouble| {
            let error = Error::at(path, format_args!("output `{name}`: {}", trouble.text));
            if trouble.byte == 0 { error } else { error.byte(trouble.byte) }
        })?;
        Ok(Entry { name: name.clone(), op_name: None, stored })
    });
    let entries = entries.collect::<Result<_>>()?;
    let mut warnings = Vec::new();
    if results.len() > 1 || iterations.len() > 1 {
        let all: Vec<String> =
            results.iter().map(|(name, all)| format!("`{name}` ({} iterations)", all.len())).collect();
        warnings.push(format!("holds the runners {}: the first iteration of `{runner}` was read", all.join(", ")));
    }
    let mut run = flat::run(path, "Polygraphy RunResults", vec![path.to_path_buf()], entries, warnings)?;
    run.meta.name = Some((*runner).to_string());
    Ok(run)
}

/// Where the array lies that `output` holds.
fn array(data: &DataFile, output: &Node) -> Result<Stored, Trouble> {
    // Before LazyArray an output was the array itself.
    let value = output.get("values").unwrap_or(output);
    let whole = |text: &str| Trouble { byte: 0, text: text.into() };
    if value.get("tensor").is_some() {
        return Err(whole("expected a numpy array, found a torch tensor: save numpy arrays"));
    }
    let text = value.get("array").and_then(Node::text).ok_or_else(|| whole("expected an `array` as base64 text"))?;
    let refused = |why: String| Trouble { byte: text.offset, text: why };
    let header = Header::read(|bytes| first(data, text, bytes))?.map_err(|trouble| refused(trouble.text))?;
    let read = |offset: u64, len: u64| data.read(offset, len).map_err(|e| refused(e.message().into()));
    let padding = read(text.offset + text.len.saturating_sub(2), text.len.min(2))?;
    let padding = padding.iter().filter(|byte| **byte == b'=').count() as u64;
    let decoded = (text.len / 4 * 3).saturating_sub(padding);
    let expected = header.len.saturating_add(header.data);
    // A string with escapes does not begin where its length says.
    let begins = read(text.offset.saturating_sub(1), 1)? == b"\"";
    if !begins || !text.len.is_multiple_of(4) || decoded != expected {
        let text = format!("expected the base64 text of {expected} bytes, found {} characters", text.len);
        return Err(refused(text));
    }
    Ok(header.stored(0, text.offset, text.len, Encoding::Base64, false))
}

/// The first bytes of what a text encodes.
fn first(data: &DataFile, text: &Text, bytes: u64) -> Result<Vec<u8>, Trouble> {
    let characters = bytes.div_ceil(3).saturating_mul(4).min(text.len);
    let refused = |why: String| Trouble { byte: text.offset, text: why };
    let part = data.read(text.offset, characters).map_err(|e| refused(e.message().into()))?;
    STANDARD.decode(part).map_err(|e| refused(format!("damaged base64 text: {e}")))
}
