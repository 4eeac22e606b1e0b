//! A Python snippet for torch: the modules of the list run in fp32 under autocast, on any device
//! type. Operators in the forward of a larger module are told in comments with their source line.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::place::{Modules, Place};
use super::{EmitOptions, EmitOutput, why_empty};
use crate::blacklist::{Advice, Entry};
use crate::error::{Result, escape};
use crate::judge::figure;
use crate::pairing::WRAPPERS;
use crate::run::Run;

/// What the snippet does, the same for every list.
const CODE: &str = include_str!("keep_fp32.py");

const HEAD: &str = "\
# Modules that must run in fp32 under autocast, and the evidence for each.
#
#     from keep_fp32 import keep_fp32
#     keep_fp32(model)  # once, before the first forward
#
# Written by goldline; needs Python 3.8 and torch 1.10 or later.

import copy
import difflib
import functools
import types

import torch
";

/// Of the entries of a dictionary.
const INDENT: &str = "    ";

/// What one name is listed for.
type Evidence<'a> = Vec<(&'a Entry, Place)>;

pub(super) fn emit(advice: &Advice, golden: &Run, _: EmitOptions) -> Result<EmitOutput> {
    let modules = Modules::of(golden);
    // By name of the module, in the order of first mention.
    let (mut wrapped, mut blocks, mut loose) = (Named::default(), Named::default(), Evidence::new());
    for entry in &advice.blacklist {
        for place in modules.places(entry) {
            match place.module.clone() {
                Some(module) if place.is_container => blocks.add(module, entry, place),
                Some(module) => wrapped.add(module, entry, place),
                None => loose.push((entry, place)),
            }
        }
    }
    let notes = notes(advice, &wrapped, &blocks, &loose);
    let mut text = HEAD.to_string();
    if advice.blacklist.is_empty() {
        text.push('\n');
        for note in &notes {
            comment(&mut text, "", note);
        }
    }
    text.push_str("\n# Path of the module: the layers that need fp32, and why.\n");
    dictionary(&mut text, "MODULES", &wrapped);
    text.push_str(
        "\n# Blocks whose forward holds such operators between other modules. Wrap the operators alone with\n\
         # run_fp32 (see the comments), or take the whole blocks: keep_fp32(model, whole_blocks=True).\n",
    );
    dictionary(&mut text, "BLOCKS", &blocks);
    if !loose.is_empty() {
        text.push_str("\n# Operators that stand in no named module: wrap each with run_fp32.\n");
        for (entry, place) in &loose {
            evidence(&mut text, "", entry, place);
            wrap_by_hand(&mut text, "", entry, place);
        }
    }
    text.push_str("\n# What wrappers (DDP, FSDP, torch.compile, checkpointing) put into names.\n");
    let wrappers: Vec<String> = WRAPPERS.iter().map(|name| literal(name)).collect();
    let _ = writeln!(text, "WRAPPERS = ({})", wrappers.join(", "));
    text.push_str(CODE);
    Ok(EmitOutput { text, notes })
}

fn notes(advice: &Advice, wrapped: &Named<'_>, blocks: &Named<'_>, loose: &Evidence<'_>) -> Vec<String> {
    if advice.blacklist.is_empty() {
        return why_empty(advice);
    }
    let mut notes = Vec::new();
    let inside: Vec<&Place> = blocks.by_name.values().flatten().chain(loose).map(|(_, place)| place).collect();
    if !inside.is_empty() {
        let names: Vec<String> = inside.iter().map(|place| escape(&place.layer)).collect();
        notes.push(format!(
            "{} operators have no module of their own and need run_fp32 by hand, as the comments say: {}",
            names.len(),
            names.join(", ")
        ));
    }
    if wrapped.order.is_empty() {
        notes.push("no module is named: keep_fp32(model) alone changes nothing".into());
    }
    notes
}

/// Evidence by name, in the order of first mention.
#[derive(Default)]
struct Named<'a> {
    order: Vec<String>,
    by_name: BTreeMap<String, Evidence<'a>>,
}

impl<'a> Named<'a> {
    fn add(&mut self, name: String, entry: &'a Entry, place: Place) {
        if !self.by_name.contains_key(&name) {
            self.order.push(name.clone());
        }
        self.by_name.entry(name).or_default().push((entry, place));
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &Evidence<'a>)> {
        self.order.iter().filter_map(|name| Some((name.as_str(), self.by_name.get(name)?)))
    }
}

fn dictionary(text: &mut String, variable: &str, named: &Named<'_>) {
    if named.order.is_empty() {
        let _ = writeln!(text, "{variable} = {{}}");
        return;
    }
    let _ = writeln!(text, "{variable} = {{");
    for (name, found) in named.iter() {
        for (entry, place) in found {
            evidence(text, INDENT, entry, place);
            if place.is_container {
                wrap_by_hand(text, INDENT, entry, place);
            }
        }
        let layers: Vec<String> = found.iter().map(|(_, place)| literal(&place.layer)).collect();
        let _ = writeln!(text, "{INDENT}{}: [{}],", literal(name), layers.join(", "));
    }
    text.push_str("}\n");
}

fn evidence(text: &mut String, indent: &str, entry: &Entry, place: &Place) {
    let Entry { op, reason, score, why, .. } = entry;
    let score = if score.is_finite() { format!(", score {}", figure(*score)) } else { String::new() };
    comment(text, indent, &format!("{} ({op}): {}{score}: {why}", place.layer, reason.as_str()));
}

fn wrap_by_hand(text: &mut String, indent: &str, entry: &Entry, place: &Place) {
    let at = match (&place.source, &place.module) {
        (Some(source), _) => format!("at {source}"),
        (None, Some(module)) => format!("in the forward of {module}"),
        (None, None) => "in the model's forward".into(),
    };
    comment(text, indent, &format!("  {at} write run_fp32(f, ...) for the {} f(...)", entry.op));
}

/// One line of comment, whatever the text holds: nothing in it ends the line.
fn comment(text: &mut String, indent: &str, content: &str) {
    let _ = writeln!(text, "{indent}# {}", escape(content));
}

/// A Python string literal of printable ASCII alone.
fn literal(name: &str) -> String {
    let mut out = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ if u32::from(c) <= 0xffff => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => {
                let _ = write!(out, "\\U{:08x}", u32::from(c));
            }
        }
    }
    out.push('"');
    out
}
