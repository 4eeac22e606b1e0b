//! msprobe: `dump.json` with `dump_tensor_data/*.pt` (PyTorch) or `*.npy` (MindSpore), `construct.json` and
//! `stack.json`, as mindstudio-probe writes them.
//!
//! In goes a dump, out comes a run: each recorded call is a layer, parameters and inputs of the model are
//! sources, arguments that are no tensors are attributes by the names of the API's schema. `place` finds the
//! directory that is meant, `dump` (over `bare` and `node`) reads the entries, `key`, `signatures` and `precision`
//! say what they are, `arguments` and `backward` what went in, `payload` where tensors lie, `edges` which of them
//! are one, and `connect` puts the layers together. What later code relies on: tensors of equal content (dtype, shape, CRC-32) that flow from one
//! call to another have one id, an edge never leads back in time, and nothing outside the dump was read.
//!
//! Sources: the public mindstudio-probe 26.2 (PyPI) and its documentation of the format.

mod arguments;
mod backward;
mod bare;
mod connect;
mod dump;
mod edges;
mod key;
mod layers;
mod node;
mod payload;
pub(in crate::run) mod place;
mod precision;
mod signatures;
mod statistics;
mod surroundings;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::Path;

use super::Format;
use crate::error::{Error, Result};
use crate::run::assemble::Parts;
use crate::run::{Run, RunMeta};
use crate::tensor::DType;
use connect::Connecting;
use dump::Dump;
use edges::Content;
use layers::Reading;
use node::{Node, Recorded};
use payload::Payloads;
use precision::Precision;
use surroundings::Surroundings;

pub(super) const FORMAT: Format = Format { recognises, open };

fn recognises(path: &Path) -> bool {
    place::directory(path).is_some()
}

fn open(path: &Path) -> Result<Run> {
    let directory = place::directory(path).ok_or_else(|| Error::at(path, "expected one `dump.json`, found none"))?;
    let file = directory.join(place::DUMP);
    let dump = dump::read(&file)?;
    if dump.entries.is_empty() {
        return Err(Error::at(&file, "expected at least one recorded call below `data`, found none"));
    }
    let mut warnings = Vec::new();
    let around = Surroundings::read(&directory, &mut warnings);
    let names = tensors(&dump).filter_map(|tensor| tensor.data_name.as_deref());
    let mut payloads = Payloads::open(&directory, names, &mut warnings);
    payloads.digest(&alike(&dump, &payloads));

    let reading = Reading::new(&dump, &around);
    let payload = |tensor: &Recorded| payloads.get(tensor.data_name.as_deref()?);
    let inputs = reading.model_inputs(&|tensor| Content::of(tensor, payload(tensor)));
    let mut connecting = Connecting::new(&reading, &payloads);
    for draft in reading.layers(&inputs) {
        connecting.add(draft);
    }
    let (layers, named) = connecting.finish();
    let (mut stored, mut stats) = (Vec::new(), Vec::new());
    for named in named {
        match payload(named.recorded) {
            Some(payload) => stored.push((named.id, payload.stored.clone())),
            None => stats.extend(statistics::of(named.recorded, None).map(|stats| (named.id, stats))),
        }
    }
    let meta = meta(&dump, &directory, &reading.precision);
    Parts { path: path.to_path_buf(), meta, layers_file: file, layers, files: payloads.files, stored, stats, warnings }
        .assemble()
}

/// All tensors of a dump.
fn tensors(dump: &Dump) -> impl Iterator<Item = &node::Recorded> {
    dump.entries.iter().flat_map(|entry| &entry.parts).flat_map(|(_, node): &(String, Node)| node.tensors())
}

/// Names of files whose contents may be equal and whose digest is not known, in groups.
fn alike(dump: &Dump, payloads: &Payloads) -> Vec<Vec<String>> {
    type Group = (DType, usize, [Option<u64>; 2]);
    let mut groups: HashMap<Group, Vec<String>> = HashMap::new();
    for tensor in tensors(dump) {
        let Some(name) = &tensor.data_name else { continue };
        let Some(payload) = payloads.get(name).filter(|payload| payload.crc32.is_none()) else { continue };
        let elements = payload.stored.shape.iter().product();
        let extremes = [tensor.max, tensor.min].map(|value| value.map(f64::to_bits));
        groups.entry((payload.stored.dtype, elements, extremes)).or_default().push(name.clone());
    }
    groups.into_values().collect()
}

/// What is known of the run as a whole.
fn meta(dump: &Dump, directory: &Path, precision: &Precision<'_>) -> RunMeta {
    let setting = |name: &str| dump.setting(name).map(|value| (name.to_string(), value.to_string()));
    let mut environment: Vec<(String, String)> =
        ["framework", "level", "task"].iter().filter_map(|name| setting(name)).collect();
    environment.push(("recorder".into(), "msprobe".into()));
    environment.sort();
    RunMeta {
        format: "msprobe".into(),
        step: place::numbered(directory, "step"),
        rank: place::numbered(directory, "rank"),
        compute: precision.compute,
        autocast: precision.autocast(),
        environment,
        complete: true,
        ..RunMeta::default()
    }
}
