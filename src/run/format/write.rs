//! Writes a run in the native format, whatever format it was read from.
//!
//! In goes a [`Run`], out comes a directory that opens as an equal run: all of it, or nothing. One
//! tensor at a time is in memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{manifest, native, safetensors, shards};
use crate::error::{Error, Result};
use crate::run::{Layer, LayerKind, RecordedStats, Run, RunMeta, Stored, TensorId};
use crate::tensor::Tensor;

/// Bytes of tensors above which a further shard is begun.
const SHARD_BYTES: u64 = 4 << 30;

/// Bytes of header above which a further shard is begun, well below the format's limit.
const SHARD_HEADER: u64 = safetensors::MAX_HEADER / 4;

/// Writes `run` to the directory `out_dir` in the native format and shows each stored tensor to
/// `observe` as it passes, in the order in which the files hold them (not that of the ids).
///
/// The directory is made aside and put in place by one rename at the end: a failure leaves nothing
/// behind. Statistics, unknown dtypes and the environment are kept as far as [`Run`] knows them.
///
/// # Errors
/// `out_dir` exists and is no empty directory; a tensor that cannot be read; no space or permission.
pub fn write_run(run: &Run, out_dir: &Path, observe: impl FnMut(TensorId, &Tensor)) -> Result<()> {
    write_sharded(run, out_dir, SHARD_BYTES, observe)
}

fn write_sharded(
    run: &Run,
    out_dir: &Path,
    shard_bytes: u64,
    mut observe: impl FnMut(TensorId, &Tensor),
) -> Result<()> {
    expect_free(out_dir)?;
    let parent = match out_dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(parent).map_err(|e| Error::io(parent, "make the directory", &e))?;
    let staging = stage(parent).map_err(|e| Error::io(parent, "make a directory in it", &e))?;
    let dir = staging.path();
    let plan = plan(run, shard_bytes);
    write_tensors(run, dir, &plan, &mut observe)?;
    write_lines(&dir.join(native::LAYERS), run.layers.iter().map(|layer| LayerLine::of(run, layer)))?;
    let with_stats = run.tensors.iter().filter_map(|t| Some(StatsLine::of(&t.name, t.stats.as_ref()?)));
    if run.tensors.iter().any(|t| t.stats.is_some()) {
        write_lines(&dir.join(native::STATS), with_stats)?;
    }
    // Last, for a directory without it is no run.
    write_json(&dir.join(native::MANIFEST), &manifest_of(&run.meta))?;
    sync_directory(dir)?;
    std::fs::rename(dir, out_dir).map_err(|e| Error::io(out_dir, "put the run in place", &e))?;
    let _ = staging.keep();
    sync_directory(parent)
}

fn expect_free(out_dir: &Path) -> Result<()> {
    match std::fs::read_dir(out_dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => {
                Err(Error::at(out_dir, "expected a new or empty directory to write to, found one with files in it"))
            }
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io(out_dir, "write a run there", &e)),
    }
}

fn stage(parent: &Path) -> std::io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".goldline-run-");
    // A temporary directory is private by default; a run is as readable as any file its user makes.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    builder.tempdir_in(parent)
}

/// Makes what was put into, or out of, a directory outlast a crash.
///
/// # Errors
/// The directory cannot be opened or written.
#[cfg(unix)]
pub(crate) fn sync_directory(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| Error::io(dir, "write", &e))
}

/// Other systems offer nothing of the kind.
#[cfg(not(unix))]
pub(crate) fn sync_directory(_: &Path) -> Result<()> {
    Ok(())
}

/// The stored tensors of each shard, in the order in which they are written.
fn plan(run: &Run, shard_bytes: u64) -> Vec<Vec<(TensorId, &Stored)>> {
    let mut plan: Vec<Vec<(TensorId, &Stored)>> = Vec::new();
    let (mut bytes, mut header) = (0u64, 0u64);
    for (id, info) in (0u32..).map(TensorId).zip(&run.tensors) {
        let Some(stored) = &info.stored else { continue };
        // Each byte of a name may take six in JSON; numbers and punctuation of an entry fit in 200.
        let entry = 200 + 6 * info.name.len() as u64 + 20 * stored.shape.len() as u64;
        let full = bytes.saturating_add(stored.len) > shard_bytes || header + entry > SHARD_HEADER;
        match plan.last_mut() {
            Some(shard) if !full => shard.push((id, stored)),
            _ => {
                plan.push(vec![(id, stored)]);
                (bytes, header) = (0, 0);
            }
        }
        bytes = bytes.saturating_add(stored.len);
        header += entry;
    }
    for shard in &mut plan {
        // Wide elements first, so that each lies at a multiple of its width: some readers view the
        // bytes in place.
        shard.sort_by_key(|(id, stored)| (Reverse(stored.dtype.bits()), *id));
    }
    plan
}

fn write_tensors(
    run: &Run,
    dir: &Path,
    plan: &[Vec<(TensorId, &Stored)>],
    observe: &mut dyn FnMut(TensorId, &Tensor),
) -> Result<()> {
    let mut weight_map = BTreeMap::new();
    let mut total = 0u64;
    for (at, shard) in plan.iter().enumerate() {
        let name = match plan.len() {
            1 => shards::SINGLE.to_string(),
            count => format!("tensors-{:05}-of-{count:05}.safetensors", at + 1),
        };
        let path = dir.join(&name);
        let entries: Vec<_> = shard
            .iter()
            .map(|(id, stored)| (run.tensor(*id).name.as_str(), stored.dtype, stored.shape.as_slice()))
            .collect();
        let header = safetensors::encode_header(&entries).map_err(|text| Error::at(&path, text))?;
        write_file(&path, |out| {
            out.write(&(header.len() as u64).to_le_bytes())?;
            out.write(&header)?;
            for (id, _) in shard {
                let Some(tensor) = run.load(*id)? else { continue };
                out.write(tensor.bytes())?;
                observe(*id, &tensor);
            }
            Ok(())
        })?;
        for (id, stored) in shard {
            weight_map.insert(run.tensor(*id).name.as_str(), name.clone());
            total = total.saturating_add(stored.len);
        }
    }
    if plan.len() > 1 {
        let index = json!({"metadata": {"total_size": total}, "weight_map": weight_map});
        write_json(&dir.join(shards::INDEX), &index)?;
    }
    Ok(())
}

/// A file being written, whose failures name it.
struct Output {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| Error::io(&self.path, "write", &e))
    }
}

fn write_file(path: &Path, content: impl FnOnce(&mut Output) -> Result<()>) -> Result<()> {
    let cannot = |e: std::io::Error| Error::io(path, "write", &e);
    let file = BufWriter::new(File::create_new(path).map_err(cannot)?);
    let mut out = Output { path: path.to_path_buf(), file };
    content(&mut out)?;
    let file = out.file.into_inner().map_err(|e| cannot(e.into_error()))?;
    // A full disk may show only now.
    file.sync_all().map_err(cannot)
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    write_file(path, |out| out.write(format!("{value:#}\n").as_bytes()))
}

fn write_lines<T: Serialize>(path: &Path, lines: impl Iterator<Item = T>) -> Result<()> {
    write_file(path, |out| {
        for line in lines {
            let mut text = serde_json::to_vec(&line).map_err(|e| Error::at(path, format_args!("cannot write: {e}")))?;
            text.push(b'\n');
            out.write(&text)?;
        }
        Ok(())
    })
}

fn manifest_of(meta: &RunMeta) -> Value {
    let mut out = Map::new();
    out.insert("format".into(), manifest::FORMAT.into());
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(key.into(), value);
        }
    };
    put("name", meta.name.clone().map(Value::from));
    put("created", meta.created.clone().map(Value::from));
    put("seed", meta.seed.map(Value::from));
    put("step", meta.step.map(Value::from));
    put("rank", meta.rank.map(Value::from));
    put("world_size", meta.world_size.map(Value::from));
    put("inputs_digest", meta.inputs_digest.clone().map(Value::from));
    let mut precision = Map::new();
    if let Some(dtype) = meta.compute {
        precision.insert("compute".into(), dtype.name().into());
    }
    if let Some(autocast) = meta.autocast {
        precision.insert("autocast".into(), autocast.into());
    }
    if !meta.fp32_ops.is_empty() {
        precision.insert("fp32_ops".into(), meta.fp32_ops.clone().into());
    }
    put("precision", (!precision.is_empty()).then_some(precision.into()));
    // Dotted keys stay dotted: they read back as the same pairs.
    let environment: Map<String, Value> = meta.environment.iter().map(|(k, v)| (k.clone(), v.clone().into())).collect();
    put("environment", (!environment.is_empty()).then_some(environment.into()));
    put("complete", Some(meta.complete.into()));
    out.into()
}

#[derive(Serialize)]
struct LayerLine<'a> {
    name: &'a str,
    op: &'a str,
    kind: &'static str,
    pass: String,
    call: u32,
    inputs: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_names: Option<&'a [String]>,
    outputs: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attrs: Option<&'a crate::run::Attrs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compute: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accumulate: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grad_of: Option<&'a str>,
}

impl<'a> LayerLine<'a> {
    fn of(run: &'a Run, layer: &'a Layer) -> Self {
        let names = |ids: &[TensorId]| ids.iter().map(|id| run.tensor(*id).name.as_str()).collect();
        Self {
            name: &layer.name,
            op: &layer.op_name,
            kind: match layer.kind {
                LayerKind::Operator => "operator",
                LayerKind::Module => "module",
            },
            pass: layer.pass.to_string(),
            call: layer.call,
            inputs: names(&layer.inputs),
            input_names: layer.input_names.as_deref(),
            outputs: names(&layer.outputs),
            attrs: layer.attrs.as_ref(),
            schema: layer.schema.as_deref(),
            module: layer.module.as_deref(),
            source: layer.source.as_deref(),
            compute: layer.compute.map(|dtype| dtype.name()),
            accumulate: layer.accumulate.map(|dtype| dtype.name()),
            device: layer.device.as_deref(),
            grad_of: layer.grad_of.as_deref(),
        }
    }
}

#[derive(Serialize)]
struct StatsLine<'a> {
    tensor: &'a str,
    dtype: Option<&'static str>,
    shape: Option<&'a [usize]>,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    l2: Option<f64>,
    nan: Option<u64>,
    inf: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    specials_uncounted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alias_of: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slice: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<&'a Value>,
}

impl<'a> StatsLine<'a> {
    fn of(tensor: &'a str, stats: &'a RecordedStats) -> Self {
        Self {
            tensor,
            dtype: stats.dtype.map(|dtype| dtype.name()),
            shape: stats.shape.as_deref(),
            min: stats.min,
            max: stats.max,
            mean: stats.mean,
            l2: stats.l2,
            nan: stats.nan,
            inf: stats.inf,
            specials_uncounted: stats.specials_uncounted,
            digest: stats.digest.as_deref(),
            alias_of: stats.alias_of.as_deref(),
            slice: stats.slice.as_ref(),
            samples: stats.samples.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of three stored tensors of 16, 3 and 8 bytes, the second without a layer.
    fn record(dir: &Path) -> Run {
        let entries = [("a", crate::tensor::DType::F32, &[2usize, 2][..]), ("z", crate::tensor::DType::U8, &[3])];
        let header = safetensors::encode_header(&entries).unwrap();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(&header);
        bytes.extend(0u8..19);
        std::fs::write(dir.join("tensors-1.safetensors"), bytes).unwrap();
        let header = safetensors::encode_header(&[("b", crate::tensor::DType::I64, &[][..])]).unwrap();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(&header);
        bytes.extend(0u8..8);
        std::fs::write(dir.join("tensors-2.safetensors"), bytes).unwrap();
        std::fs::write(dir.join("run.json"), "{\"format\":\"goldline.run/1\"}").unwrap();
        std::fs::write(dir.join("layers.jsonl"), "{\"name\":\"l\",\"op\":\"x\",\"outputs\":[\"a\",\"b\"]}\n").unwrap();
        Run::open(dir).unwrap()
    }

    #[test]
    fn shards_are_filled_up_to_the_limit_and_indexed() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let run = record(source.path());
        let out = target.path().join("out");
        let mut seen = Vec::new();
        write_sharded(&run, &out, 24, |id, tensor| seen.push((id, tensor.bytes().len()))).unwrap();
        assert_eq!(seen, [(TensorId(1), 8), (TensorId(0), 16), (TensorId(2), 3)]);
        let again = Run::open(&out).unwrap();
        assert_eq!(again.files.len(), 2);
        assert!(out.join(shards::INDEX).is_file());
        for id in (0..3).map(TensorId) {
            assert_eq!(again.load(id).unwrap(), run.load(id).unwrap());
        }
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let run = record(source.path());
        std::fs::OpenOptions::new()
            .write(true)
            .open(source.path().join("tensors-2.safetensors"))
            .unwrap()
            .set_len(40)
            .unwrap();
        let error = write_run(&run, &target.path().join("out"), |_, _| {}).unwrap_err();
        assert!(error.message().contains("changed since it was opened"), "{error}");
        assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_with_files_in_it_is_not_written_over() {
        let source = tempfile::tempdir().unwrap();
        let run = record(source.path());
        assert!(write_run(&run, source.path(), |_, _| {}).unwrap_err().message().contains("new or empty"));
        let empty = tempfile::tempdir().unwrap();
        write_run(&run, empty.path(), |_, _| {}).unwrap();
        assert!(Run::open(empty.path()).is_ok());
    }
}
