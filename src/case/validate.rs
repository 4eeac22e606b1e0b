//! The keys of a case file -> a case whose values mean something.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use globset::GlobMatcher;
use regex::RegexBuilder;

use super::document::{self, quote};
use super::filter::{LayerFilter, layer_glob};
use super::frame::{Mistake, Source};
use super::raw::{self, At, RawCase, RawExpect, RawLayers, RawLimits, RawRename, RawTolerance};
use super::rename::{Rename, unknown_group};
use super::shards::shards;
use super::tolerance::{Entry, Metric, OpKey, ToleranceTable};
use super::{Case, Expect, ExpectVerdict, Places, Valid};
use crate::error::{Result, escape};
use crate::tensor::{DType, Kind};

/// Compiled size of one regular expression, in bytes: a rule for names takes a few thousand.
const REGEX_SIZE_LIMIT: usize = 1 << 20;

/// Longest pattern for layer names, in bytes.
const MAX_PATTERN: usize = 1000;

/// Longest name of a case, in characters.
const MAX_NAME: usize = 200;

/// Parses and validates `source`; relative paths are taken from the directory of its path.
pub(super) fn case(source: Source) -> Result<Case> {
    let read = document::parse(source.text()).and_then(|root| raw::read(&root, source.text()));
    match read.and_then(|raw| validate(raw, &source)) {
        Ok((mut case, places)) => {
            case.places = Some(Arc::new(Places { source, ..places }));
            Ok(case)
        }
        Err(mistake) => Err(source.error(&mistake)),
    }
}

type Checked<T> = Result<T, Mistake>;

fn validate(raw: RawCase, source: &Source) -> Checked<(Case, Places)> {
    let base = source.path().parent().unwrap_or(Path::new(""));
    let places = Places {
        source: Source::new(source.path(), ""),
        golden: raw.golden.span.clone(),
        name: raw.name.span.clone(),
        candidate: raw.candidate.as_ref().map(|value| value.span.clone()),
    };
    let case = Case {
        path: source.path().to_path_buf(),
        name: name(raw.name)?,
        seed: raw.seed.map(|seed| seed.value),
        inputs: raw.inputs.map(|value| existing(&value, base, "inputs")).transpose()?,
        golden: golden(&raw.golden, base)?,
        candidate: raw.candidate.map(|value| path(&value, base, "candidate")).transpose()?,
        command: raw.command.map(command).transpose()?,
        expect: raw.expect.map(expect).transpose()?,
        precision: raw.precision.map(precision).transpose()?.flatten(),
        layers: layers(raw.layers)?,
        rename: raw.rename.into_iter().map(rename).collect::<Checked<_>>()?,
        valid: raw.valid.map(|mask| filled(mask, "mask").map(|mask| Valid { mask })).transpose()?,
        shards: shards(raw.shards)?,
        tolerance: tolerance(raw.tolerance)?,
        places: None,
    };
    Ok((case, places))
}

fn name(name: At<String>) -> Checked<String> {
    let span = name.span.clone();
    let name = filled(name, "name")?;
    if name.chars().any(crate::error::is_hidden) {
        return Err(Mistake::new(&span, "control characters in `name`").help("reports print it: use plain text"));
    }
    if name.chars().count() > MAX_NAME {
        return Err(Mistake::new(&span, format!("`name` is longer than {MAX_NAME} characters")).help("shorten it"));
    }
    Ok(name)
}

/// Text that says something.
fn filled(text: At<String>, key: &str) -> Checked<String> {
    if text.value.trim().is_empty() {
        return Err(Mistake::new(&text.span, format!("`{key}` is empty")).help("give it a value, or remove the key"));
    }
    Ok(text.value)
}

fn path(value: &At<String>, base: &Path, key: &str) -> Checked<PathBuf> {
    let text = filled(value.clone(), key)?;
    if text.contains('\0') {
        return Err(Mistake::new(&value.span, format!("`{key}` holds a NUL character")).help("no path can"));
    }
    Ok(base.join(text))
}

/// The golden may not be there yet, because `record` makes it; but it must not be a directory that
/// holds the case itself, because `record --update` replaces it as a whole.
fn golden(value: &At<String>, base: &Path) -> Checked<PathBuf> {
    let resolved = path(value, base, "golden")?;
    let moves_only = Path::new(&value.value).components().all(|part| !matches!(part, Component::Normal(_)));
    if moves_only {
        return Err(Mistake::new(&value.span, "`golden` names a directory that holds more than the golden")
            .help("give the golden a directory of its own, for example `golden: goldens/NAME`"));
    }
    Ok(resolved)
}

fn existing(value: &At<String>, base: &Path, key: &str) -> Checked<PathBuf> {
    let resolved = path(value, base, key)?;
    let trouble = match resolved.try_exists() {
        Ok(true) => return Ok(resolved),
        Ok(false) => "no such file or directory".to_string(),
        Err(error) => error.to_string(),
    };
    Err(Mistake::new(&value.span, format!("`{key}` is not there: {trouble}"))
        .label(format!("looked for {}", quote(&resolved.to_string_lossy())))
        .help("paths are relative to the case file"))
}

fn command(command: At<Vec<At<String>>>) -> Checked<Vec<String>> {
    match command.value.first() {
        Some(program) if !program.value.is_empty() => {}
        _ => {
            return Err(Mistake::new(&command.span, "`command` names no program")
                .help("for example `command: [python, run.py]`"));
        }
    }
    if let Some(word) = command.value.iter().find(|word| word.value.contains('\0')) {
        return Err(Mistake::new(&word.span, "`command` holds a NUL character").help("no argument can"));
    }
    Ok(command.value.into_iter().map(|word| word.value).collect())
}

fn expect(raw: RawExpect) -> Checked<Expect> {
    let Some(verdict) = ExpectVerdict::parse(&raw.verdict.value) else {
        return Err(unknown_name(&raw.verdict, "verdict", "allowed", &ExpectVerdict::NAMES));
    };
    if let (ExpectVerdict::Pass, Some(origin)) = (verdict, &raw.origin) {
        return Err(Mistake::new(&origin.span, "a case that passes has no origin").help("remove `origin`"));
    }
    let origin = raw.origin.map(|origin| filled(origin, "origin")).transpose()?;
    Ok(Expect { verdict, origin })
}

/// `list` says what `names` are: all that is allowed, or the common ones.
fn unknown_name(name: &At<String>, what: &str, list: &str, names: &[&str]) -> Mistake {
    let mistake = Mistake::new(&name.span, format!("unknown {what} {}", quote(&name.value)))
        .help(format!("{list}: {}", names.join(", ")));
    match raw::nearest(&name.value, names.iter().copied()) {
        Some(near) => mistake.label(format!("did you mean `{near}`?")),
        None => mistake.label("not known here"),
    }
}

fn precision(value: At<String>) -> Checked<Option<DType>> {
    const FLOATS: [&str; 6] = ["auto", "float64", "float32", "float16", "bfloat16", "float8_e4m3fn"];
    if value.value == "auto" {
        return Ok(None);
    }
    let dtype = DType::parse(&value.value).ok_or_else(|| unknown_name(&value, "dtype", "for example", &FLOATS))?;
    if dtype.kind() != Kind::Float {
        return Err(Mistake::new(&value.span, format!("{} is no floating-point dtype", quote(&value.value)))
            .label("`precision` is the dtype that the candidate computes in")
            .help(format!("for example: {}", FLOATS.join(", "))));
    }
    Ok(Some(dtype))
}

pub(super) fn glob(pattern: &At<String>) -> Checked<GlobMatcher> {
    if pattern.value.is_empty() {
        return Err(Mistake::new(&pattern.span, "an empty pattern matches no layer").help("\"**\" matches every layer"));
    }
    // Besides being no name, a pattern of a million braces would exhaust the stack of its compiler.
    if pattern.value.len() > MAX_PATTERN {
        return Err(Mistake::new(&pattern.span, format!("the name pattern is longer than {MAX_PATTERN} bytes"))
            .help("layer names are shorter: use several patterns"));
    }
    layer_glob(&pattern.value).map_err(|error| {
        Mistake::new(&pattern.span, format!("bad name pattern: {}", error.kind()))
            .help("`*` stands for any characters, `?` for one, `{a,b}` for either; write `\\[` for a bracket")
    })
}

fn layers(raw: RawLayers) -> Checked<LayerFilter> {
    let include = match raw.include {
        Some(patterns) if patterns.value.is_empty() => {
            return Err(Mistake::new(&patterns.span, "`include` lists no pattern, so no layer would be judged")
                .help("remove `include` to judge every layer"));
        }
        Some(patterns) => Some(patterns.value.iter().map(glob).collect::<Checked<Vec<_>>>()?),
        None => None,
    };
    let exclude = raw.exclude.map(|patterns| patterns.value).unwrap_or_default();
    let exclude = exclude.into_iter().map(|pattern| Ok((glob(&pattern)?, escape(&pattern.value))));
    Ok(LayerFilter::new(include, exclude.collect::<Checked<_>>()?))
}

fn rename(raw: RawRename) -> Checked<Rename> {
    if raw.from.value.is_empty() {
        return Err(Mistake::new(&raw.from.span, "an empty regular expression matches everywhere")
            .help("for example `from: '^module\\.'`"));
    }
    let built = RegexBuilder::new(&raw.from.value).size_limit(REGEX_SIZE_LIMIT).build();
    let regex = built.map_err(|error| {
        Mistake::new(&raw.from.span, format!("bad regular expression: {}", regex_reason(&error)))
            .help("the syntax is that of Rust's regex crate; `\\.` is a dot")
    })?;
    if let Some(group) = unknown_group(&regex, &raw.to.value) {
        let mut mistake = Mistake::new(&raw.to.span, format!("{} is no group of `from`", quote(&format!("${group}"))));
        let digits = group.bytes().take_while(u8::is_ascii_digit).count();
        mistake = match group.split_at_checked(digits) {
            Some((number, rest)) if !number.is_empty() && !rest.is_empty() => {
                mistake.help(format!("write `${{{number}}}{rest}` for group {number} followed by `{rest}`"))
            }
            _ => mistake.help("`$1` is the first group in parentheses; `$$` is a dollar"),
        };
        return Err(mistake);
    }
    Ok(Rename { regex, to: raw.to.value })
}

/// The reason alone; the regex crate's message draws the pattern over several lines.
fn regex_reason(error: &regex::Error) -> String {
    let message = match error {
        regex::Error::CompiledTooBig(_) => "it is too large".to_string(),
        other => other.to_string(),
    };
    let last = message.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it cannot be read");
    last.trim().trim_start_matches("error: ").to_string()
}

fn tolerance(raw: RawTolerance) -> Checked<ToleranceTable> {
    let mut table = ToleranceTable::default();
    if !raw.default.is_empty() {
        table.default = Some(entry("tolerance.default".into(), raw.default)?);
    }
    let mut keys: Vec<At<String>> = Vec::new();
    for (key, limits) in raw.dtype {
        let dtype = DType::parse(&key.value).ok_or_else(|| unknown_dtype(&key))?;
        if let Some(at) = table.dtype.iter().position(|(seen, _)| *seen == dtype) {
            return Err(raw::duplicate(&key, keys.get(at).unwrap_or(&key), "`tolerance.dtype`"));
        }
        table.dtype.push((dtype, entry(format!("tolerance.dtype.{}", escape(&key.value)), limits)?));
        keys.push(key);
    }
    keys.clear();
    for (key, limits) in raw.op {
        let op = OpKey::new(&filled(key.clone(), "operator name")?);
        if let Some(at) = table.op.iter().position(|(seen, _)| seen.matches(&op)) {
            return Err(raw::duplicate(&key, keys.get(at).unwrap_or(&key), "`tolerance.op`"));
        }
        table.op.push((op, entry(format!("tolerance.op.{}", escape(&key.value)), limits)?));
        keys.push(key);
    }
    for (key, limits) in raw.layer {
        let source = format!("tolerance.layer.'{}'", escape(&key.value));
        table.layer.push((glob(&key)?, entry(source, limits)?));
    }
    Ok(table)
}

fn unknown_dtype(key: &At<String>) -> Mistake {
    const COMMON: [&str; 8] =
        ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "int8"];
    unknown_name(key, "dtype", "for example", &COMMON)
}

fn entry(source: String, limits: RawLimits) -> Checked<Entry> {
    let limits = limits.into_iter().map(|(metric, value)| Ok((metric, limit(metric, &value)?)));
    Ok(Entry { source: source.into(), limits: limits.collect::<Checked<_>>()? })
}

/// A limit that a tensor can keep: finite, and in the range of its metric.
fn limit(metric: Metric, limit: &At<f64>) -> Checked<f64> {
    let value = limit.value;
    let name = metric.name();
    let mistake = |title: String| Mistake::new(&limit.span, title);
    if !value.is_finite() {
        return Err(mistake(format!("the limit for `{name}` must be finite"))
            .help("remove the entry to leave the metric to `auto`"));
    }
    match metric {
        Metric::Cosine if !(-1.0..=1.0).contains(&value) => {
            Err(mistake(format!("the limit for `{name}` must lie between -1 and 1"))
                .help("it is the least cosine similarity that is allowed, for example 0.999"))
        }
        Metric::Cosine => Ok(value),
        _ if value < 0.0 => {
            Err(mistake(format!("the limit for `{name}` must not be negative")).help(if metric.is_minimum() {
                "it is the least value that is allowed, in dB"
            } else {
                "it is the largest value that is allowed"
            }))
        }
        Metric::MaxUlp if value.fract() != 0.0 => {
            Err(mistake(format!("the limit for `{name}` must be a whole number"))
                .help("it counts representable values"))
        }
        // A negative zero would print as `-0`.
        _ => Ok(value + 0.0),
    }
}
