//! The zip form of `torch.save` (torch 1.6 and later): `NAME/data.pkl` says what is saved, `NAME/data/KEY`
//! are its storages, `NAME/byteorder` says how their numbers lie.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use super::place::{self, Place};
use super::{Fault, listing, pickle};
use crate::error::{Error, Result};
use crate::run::Encoding;
use crate::run::format::archive::Member;
use crate::run::format::container::Found;
use crate::tensor::DataFile;

const PICKLE: &str = "/data.pkl";

/// Whether these are the members of an archive that torch wrote.
pub(in crate::run::format) fn is_archive(members: &[Member]) -> bool {
    members.iter().any(|member| member.name.ends_with(PICKLE))
}

/// The tensors of an archive with these members, to be known as file number `file` of the run.
///
/// # Errors
/// A damaged pickle, or one of more than tensors in plain containers; storages that are not there or too
/// short.
pub(in crate::run::format) fn tensors(data: &DataFile, members: &[Member], file: usize) -> Result<Vec<Found>> {
    let path = data.path();
    let pickles: Vec<&Member> = members.iter().filter(|member| member.name.ends_with(PICKLE)).collect();
    let [pickle] = pickles.as_slice() else {
        return Err(Error::at(path, format_args!("expected one member `data.pkl`, found {}", pickles.len())));
    };
    let root = pickle.name.strip_suffix("data.pkl").unwrap_or_default();
    let by_name: HashMap<&str, &Member> = members.iter().map(|member| (member.name.as_str(), member)).collect();
    let big_endian = match by_name.get(format!("{root}byteorder").as_str()) {
        // Older versions wrote none, and the machines were little-endian.
        None => false,
        Some(member) => is_big_endian(data, member)?,
    };
    let bytes = content(data, pickle, pickle::MAX_BYTES)?;
    let refused = |fault: Fault| located(path, pickle, &fault);
    let graph = pickle::read(&bytes).map_err(refused)?;
    let mut found = Vec::new();
    for listed in listing::tensors(&graph).map_err(refused)? {
        let name = format!("{root}data/{}", listed.view.storage.key);
        let Some(member) = by_name.get(name.as_str()) else {
            let text = format!("{}: expected its storage as member `{name}`, found none", listed.title());
            return Err(refused(Fault::at(listed.view.byte, text)));
        };
        found.push(place::found(listed, place_of(member, big_endian), file).map_err(refused)?);
    }
    Ok(found)
}

fn place_of(member: &Member, big_endian: bool) -> Place {
    Place {
        offset: member.offset,
        span: member.span,
        len: member.len,
        encoding: if member.deflated { Encoding::Deflate } else { Encoding::Plain },
        big_endian,
        // Torch writes 0 where it was told to compute none (`set_crc32_options(False)`).
        crc32: Some(member.crc32).filter(|crc32| *crc32 != 0),
    }
}

fn is_big_endian(data: &DataFile, member: &Member) -> Result<bool> {
    const LONGEST: u64 = 16;
    match content(data, member, LONGEST)?.as_slice() {
        b"little" => Ok(false),
        b"big" => Ok(true),
        other => {
            let found = String::from_utf8_lossy(other);
            let text = format_args!("member `{}`: expected `little` or `big`, found `{found}`", member.name);
            Err(Error::at(data.path(), text).byte(member.offset))
        }
    }
}

/// The unpacked bytes of a member, of which there may be `longest`.
fn content(data: &DataFile, member: &Member, longest: u64) -> Result<Vec<u8>> {
    let refused =
        |text: String| Error::at(data.path(), format_args!("member `{}`: {text}", member.name)).byte(member.offset);
    if member.len > longest || member.span > longest {
        return Err(refused(format!("expected at most {longest} bytes, found {}", member.len.max(member.span))));
    }
    let bytes = data.read(member.offset, member.span)?;
    if !member.deflated {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    flate2::read::DeflateDecoder::new(bytes.as_slice())
        .take(member.len)
        .read_to_end(&mut unpacked)
        .map_err(|e| refused(format!("damaged deflate stream: {e}")))?;
    Ok(unpacked)
}

/// The error for a fault of the pickle. A byte of the file can be named only where the pickle is stored
/// as it is.
fn located(path: &Path, pickle: &Member, fault: &Fault) -> Error {
    let error = Error::at(path, format_args!("byte {} of `{}`: {}", fault.byte, pickle.name, fault.text));
    if pickle.deflated { error } else { error.byte(pickle.offset + fault.byte as u64) }
}
