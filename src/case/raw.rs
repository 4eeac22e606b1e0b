//! The tree of a case file -> the keys a case has, with the right types; meaning is checked later.

use std::ops::Range;

use super::document::{Node, Value, quote};
use super::frame::Mistake;
use super::tolerance::Metric;

/// A value and the bytes at which it stands.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) span: Range<usize>,
}

/// The value of `schema` that this version reads.
pub(super) const SCHEMA: &str = "goldline.case/1";

/// Keys of each mapping, in the order of the reference.
pub(super) mod keys {
    pub(in crate::case) const CASE: &[&str] = &[
        "schema",
        "name",
        "seed",
        "inputs",
        "golden",
        "candidate",
        "command",
        "expect",
        "precision",
        "layers",
        "rename",
        "valid",
        "shards",
        "tolerance",
    ];
    pub(in crate::case) const EXPECT: &[&str] = &["verdict", "origin"];
    pub(in crate::case) const LAYERS: &[&str] = &["include", "exclude"];
    pub(in crate::case) const RENAME: &[&str] = &["from", "to"];
    pub(in crate::case) const VALID: &[&str] = &["mask"];
    pub(in crate::case) const SHARD: &[&str] = &["match", "dim", "group", "how"];
    pub(in crate::case) const TOLERANCE: &[&str] = &["default", "dtype", "op", "layer"];
}

#[derive(Debug)]
pub(super) struct RawCase {
    pub(super) name: At<String>,
    pub(super) seed: Option<At<i64>>,
    pub(super) inputs: Option<At<String>>,
    pub(super) golden: At<String>,
    pub(super) candidate: Option<At<String>>,
    pub(super) command: Option<At<Vec<At<String>>>>,
    pub(super) expect: Option<RawExpect>,
    pub(super) precision: Option<At<String>>,
    pub(super) layers: RawLayers,
    pub(super) rename: Vec<RawRename>,
    pub(super) valid: Option<At<String>>,
    pub(super) shards: Vec<RawShard>,
    pub(super) tolerance: RawTolerance,
}

#[derive(Debug)]
pub(super) struct RawExpect {
    pub(super) verdict: At<String>,
    pub(super) origin: Option<At<String>>,
}

#[derive(Debug, Default)]
pub(super) struct RawLayers {
    pub(super) include: Option<At<Vec<At<String>>>>,
    pub(super) exclude: Option<At<Vec<At<String>>>>,
}

#[derive(Debug)]
pub(super) struct RawRename {
    pub(super) from: At<String>,
    pub(super) to: At<String>,
}

#[derive(Debug)]
pub(super) struct RawShard {
    pub(super) pattern: At<String>,
    pub(super) dim: Option<At<i64>>,
    pub(super) group: Option<At<RawGroup>>,
    pub(super) how: Option<At<String>>,
}

#[derive(Debug)]
pub(super) enum RawGroup {
    Name(String),
    Ranks(Vec<At<i64>>),
}

/// Limits in the order of the file, each metric at most once.
pub(super) type RawLimits = Vec<(Metric, At<f64>)>;

/// Entries in the order of the file, each key at most once.
pub(super) type RawEntries = Vec<(At<String>, RawLimits)>;

#[derive(Debug, Default)]
pub(super) struct RawTolerance {
    pub(super) default: RawLimits,
    pub(super) dtype: RawEntries,
    pub(super) op: RawEntries,
    pub(super) layer: RawEntries,
}

/// Reads a case's keys; `text` is what `root` was parsed from.
pub(super) fn read(root: &Node, text: &str) -> Result<RawCase, Mistake> {
    if matches!(root.value, Value::Null) {
        return Err(Mistake::new(&(0..0), "the file is empty")
            .help(format!("a case starts with `schema: {SCHEMA}`; `goldline init` writes one")));
    }
    let entries = mapping(root, "a case", "keys such as `name:` and `golden:`")?;
    // Other versions have other keys: the version is judged before any of them.
    check_schema(root, entries)?;
    let table = Table::new(root, "a case", keys::CASE)?;
    Ok(RawCase {
        name: string(table.required("name", "add `name:` and a short name for the case")?, "name")?,
        seed: table.optional("seed").map(|node| integer(node, "seed")).transpose()?,
        inputs: table.optional("inputs").map(|node| string(node, "inputs")).transpose()?,
        golden: string(table.required("golden", "add `golden:` and the directory of the approved run")?, "golden")?,
        candidate: table.optional("candidate").map(|node| string(node, "candidate")).transpose()?,
        command: table.optional("command").map(|node| words(node, text)).transpose()?,
        expect: table.optional("expect").map(expect).transpose()?,
        precision: table.optional("precision").map(|node| string(node, "precision")).transpose()?,
        layers: table.optional("layers").map(layers).transpose()?.unwrap_or_default(),
        rename: table.optional("rename").map(renames).transpose()?.unwrap_or_default(),
        valid: table.optional("valid").map(valid).transpose()?,
        shards: table.optional("shards").map(shards).transpose()?.unwrap_or_default(),
        tolerance: table.optional("tolerance").map(tolerance).transpose()?.unwrap_or_default(),
    })
}

fn check_schema(root: &Node, entries: &[(Node, Node)]) -> Result<(), Mistake> {
    let help = format!("this version reads `schema: {SCHEMA}`");
    let found = entries.iter().find(|(key, _)| matches!(&key.value, Value::Text(text) if text == "schema"));
    let Some((_, node)) = found else {
        return Err(missing(root, "schema", &format!("start the file with `schema: {SCHEMA}`")));
    };
    let schema = string(node, "schema")?;
    if schema.value == SCHEMA {
        return Ok(());
    }
    let title = if schema.value.starts_with("goldline.case/") {
        format!("case files of version {} cannot be read", quote(&schema.value))
    } else {
        format!("{} is no case file", quote(&schema.value))
    };
    Err(Mistake::new(&node.span, title).label(format!("expected `{SCHEMA}`")).help(help))
}

fn expect(node: &Node) -> Result<RawExpect, Mistake> {
    let table = Table::new(node, "`expect`", keys::EXPECT)?;
    Ok(RawExpect {
        verdict: string(table.required("verdict", "say which verdict is expected: `verdict: drift`")?, "verdict")?,
        origin: table.optional("origin").map(|node| string(node, "origin")).transpose()?,
    })
}

fn layers(node: &Node) -> Result<RawLayers, Mistake> {
    let table = Table::new(node, "`layers`", keys::LAYERS)?;
    Ok(RawLayers {
        include: table.optional("include").map(|node| patterns(node, "include")).transpose()?,
        exclude: table.optional("exclude").map(|node| patterns(node, "exclude")).transpose()?,
    })
}

fn renames(node: &Node) -> Result<Vec<RawRename>, Mistake> {
    let items = list(node, "rename", "[{from: '^module\\.', to: ''}]")?;
    items
        .iter()
        .map(|item| {
            let table = Table::new(item, "an entry of `rename`", keys::RENAME)?;
            Ok(RawRename {
                from: string(table.required("from", "`from` is the regular expression to replace")?, "from")?,
                to: string(table.required("to", "`to` takes its place; '' removes the match")?, "to")?,
            })
        })
        .collect()
}

fn valid(node: &Node) -> Result<At<String>, Mistake> {
    let table = Table::new(node, "`valid`", keys::VALID)?;
    string(table.required("mask", "`mask` names the tensor that is true where positions count")?, "mask")
}

fn shards(node: &Node) -> Result<Vec<RawShard>, Mistake> {
    let items = list(node, "shards", "[{match: '*.weight', dim: 0}]")?;
    items
        .iter()
        .map(|item| {
            let table = Table::new(item, "an entry of `shards`", keys::SHARD)?;
            let how = table.optional("how").map(|node| string(node, "how")).transpose()?;
            let dim = table.optional("dim");
            if how.is_none() && dim.is_none() {
                return Err(missing(item, "dim", "`dim` says along which dim the parts lie; or write `how: sum`"));
            }
            Ok(RawShard {
                pattern: string(
                    table.required("match", "`match` is a pattern for names of tensors or layers")?,
                    "match",
                )?,
                dim: dim.map(|node| integer(node, "dim")).transpose()?,
                group: table.optional("group").map(group).transpose()?,
                how,
            })
        })
        .collect()
}

fn group(node: &Node) -> Result<At<RawGroup>, Mistake> {
    let value = match &node.value {
        Value::Text(name) => RawGroup::Name(name.clone()),
        Value::List(ranks) => {
            RawGroup::Ranks(ranks.iter().map(|rank| integer(rank, "group")).collect::<Result<_, _>>()?)
        }
        _ => return Err(wrong_type(node, "`group`", "`all` or a list of ranks")),
    };
    Ok(At { value, span: node.span.clone() })
}

fn tolerance(node: &Node) -> Result<RawTolerance, Mistake> {
    let table = Table::new(node, "`tolerance`", keys::TOLERANCE)?;
    let entries = |key: &str, what: &str, example: &str| match table.optional(key) {
        Some(node) => limit_entries(node, key, what, example),
        None => Ok(Vec::new()),
    };
    Ok(RawTolerance {
        default: table.optional("default").map(default_limits).transpose()?.unwrap_or_default(),
        dtype: entries("dtype", "dtype", "{bfloat16: {rel_l2: 3e-2}}")?,
        op: entries("op", "operator", "{softmax: {max_abs: 1e-3}}")?,
        layer: entries("layer", "layer pattern", "{\"encoder.*.out\": {rel_l2: 5e-3}}")?,
    })
}

fn default_limits(node: &Node) -> Result<RawLimits, Mistake> {
    match &node.value {
        Value::Text(text) if text == "auto" => Ok(Vec::new()),
        Value::Map(_) => limits(node, "`tolerance.default`"),
        _ => Err(Mistake::new(&node.span, "wrong value for `tolerance.default`")
            .label(format!("expected `auto` or metrics, found {}", node.describe()))
            .help("write `default: auto`, or limits such as `default: {rel_l2: 1e-3}`")),
    }
}

fn limit_entries(node: &Node, key: &str, what: &str, example: &str) -> Result<RawEntries, Mistake> {
    let entries = mapping(node, &format!("`tolerance.{key}`"), example)?;
    let mut out = RawEntries::new();
    for (name, value) in entries {
        let name = key_text(name)?;
        if let Some((first, _)) = out.iter().find(|(seen, _)| seen.value == name.value) {
            return Err(duplicate(&name, first, &format!("`tolerance.{key}`")));
        }
        let place = format!("the limits of the {what} {}", quote(&name.value));
        out.push((name, limits(value, &place)?));
    }
    Ok(out)
}

fn limits(node: &Node, place: &str) -> Result<RawLimits, Mistake> {
    let table = Table::new(node, place, &Metric::NAMES)?;
    table
        .entries
        .iter()
        .map(|(name, value)| {
            // The table lets the names of metrics through and nothing else.
            let metric = key_text(name).ok().and_then(|name| Metric::parse(&name.value));
            let metric = metric.ok_or_else(|| Mistake::new(&name.span, "unknown metric"))?;
            Ok((metric, number(value, metric.name())?))
        })
        .collect()
}

/// A mapping whose keys are known beforehand.
struct Table<'a> {
    node: &'a Node,
    entries: &'a [(Node, Node)],
}

impl<'a> Table<'a> {
    fn new(node: &'a Node, place: &str, allowed: &[&str]) -> Result<Self, Mistake> {
        let example = format!("the keys {}", allowed.join(", "));
        let entries = mapping(node, place, &example)?;
        let mut seen: Vec<At<String>> = Vec::new();
        for (key, _) in entries {
            let key = key_text(key)?;
            if !allowed.contains(&key.value.as_str()) {
                return Err(unknown_key(&key, place, allowed));
            }
            if let Some(first) = seen.iter().find(|first| first.value == key.value) {
                return Err(duplicate(&key, first, place));
            }
            seen.push(key);
        }
        Ok(Self { node, entries })
    }

    fn optional(&self, key: &str) -> Option<&'a Node> {
        self.entries
            .iter()
            .find(|(node, _)| matches!(&node.value, Value::Text(text) if text == key))
            .map(|(_, value)| value)
    }

    fn required(&self, key: &str, help: &str) -> Result<&'a Node, Mistake> {
        self.optional(key).ok_or_else(|| missing(self.node, key, help))
    }
}

fn missing(node: &Node, key: &str, help: &str) -> Mistake {
    let start = node.span.start..node.span.start;
    Mistake::new(&start, format!("missing key `{key}`")).label(format!("no `{key}` in this mapping")).help(help)
}

fn unknown_key(key: &At<String>, place: &str, allowed: &[&str]) -> Mistake {
    let what = if allowed == Metric::NAMES { "metric" } else { "key" };
    let mistake = Mistake::new(&key.span, format!("unknown {what} {} in {place}", quote(&key.value)))
        .help(format!("allowed: {}", allowed.join(", ")));
    match nearest(&key.value, allowed.iter().copied()) {
        Some(near) => mistake.label(format!("did you mean `{near}`?")),
        None => mistake.label("not known here"),
    }
}

pub(super) fn duplicate(key: &At<String>, first: &At<String>, place: &str) -> Mistake {
    let title = if key.value == first.value {
        format!("{} stands twice in {place}", quote(&key.value))
    } else {
        format!("{} and {} in {place} mean the same", quote(&first.value), quote(&key.value))
    };
    Mistake::new(&key.span, title).label("second time").first(&first.span).help("keep one of the two")
}

/// The allowed name that `name` was most likely meant to be.
pub(super) fn nearest<'a>(name: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase().replace('-', "_");
    if folded.len() > 64 {
        return None;
    }
    let scored = allowed.into_iter().map(|candidate| {
        let distance = strsim::damerau_levenshtein(&folded, &candidate.to_lowercase());
        (distance, candidate)
    });
    let (distance, best) = scored.min_by_key(|&(distance, _)| distance)?;
    (distance <= (folded.chars().count() / 3).max(1)).then_some(best)
}

fn wrong_type(node: &Node, key: &str, expected: &str) -> Mistake {
    let label = format!("expected {expected}, found {}", node.describe());
    let mistake = Mistake::new(&node.span, format!("wrong type for {key}")).label(label);
    match &node.value {
        Value::Null => mistake.help("give it a value, or remove the key"),
        _ => mistake,
    }
}

fn mapping<'a>(node: &'a Node, place: &str, example: &str) -> Result<&'a [(Node, Node)], Mistake> {
    match &node.value {
        Value::Map(entries) => Ok(entries),
        Value::Null => Err(wrong_type(node, place, "a mapping")),
        _ => Err(wrong_type(node, place, "a mapping").help(format!("it has {example}"))),
    }
}

fn key_text(node: &Node) -> Result<At<String>, Mistake> {
    match &node.value {
        Value::Text(text) => Ok(At { value: text.clone(), span: node.span.clone() }),
        _ => Err(Mistake::new(&node.span, "a key must be text")
            .label(format!("found {}", node.describe()))
            .help("put it in quotes if it is meant as a name")),
    }
}

fn string(node: &Node, key: &str) -> Result<At<String>, Mistake> {
    match &node.value {
        Value::Text(text) => Ok(At { value: text.clone(), span: node.span.clone() }),
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            Err(wrong_type(node, &format!("`{key}`"), "text").help("put it in quotes if it is meant as text"))
        }
        _ => Err(wrong_type(node, &format!("`{key}`"), "text")),
    }
}

fn integer(node: &Node, key: &str) -> Result<At<i64>, Mistake> {
    let Value::Int(value) = node.value else {
        return Err(wrong_type(node, &format!("`{key}`"), "a whole number"));
    };
    let value =
        i64::try_from(value).map_err(|_| {
            Mistake::new(&node.span, format!("`{key}` is out of range"))
                .label("does not fit into 64 bits")
                .help(format!("the range is {} to {}", i64::MIN, i64::MAX))
        })?;
    Ok(At { value, span: node.span.clone() })
}

fn number(node: &Node, key: &str) -> Result<At<f64>, Mistake> {
    let value = match node.value {
        Value::Int(value) => value as f64,
        Value::Float(value) => value,
        _ => return Err(wrong_type(node, &format!("`{key}`"), "a number")),
    };
    Ok(At { value, span: node.span.clone() })
}

fn list<'a>(node: &'a Node, key: &str, example: &str) -> Result<&'a [Node], Mistake> {
    match &node.value {
        Value::List(items) => Ok(items),
        Value::Null => Err(wrong_type(node, &format!("`{key}`"), "a list")),
        _ => Err(wrong_type(node, &format!("`{key}`"), "a list").help(format!("for example `{key}: {example}`"))),
    }
}

fn patterns(node: &Node, key: &str) -> Result<At<Vec<At<String>>>, Mistake> {
    let items = list(node, key, "[\"*.dropout\"]")?;
    let value = items.iter().map(|item| string(item, key)).collect::<Result<_, _>>()?;
    Ok(At { value, span: node.span.clone() })
}

/// The words of a command. Numbers and truth values are taken as they are written, so that
/// `[python, run.py, --steps, 3]` needs no quotes.
fn words(node: &Node, text: &str) -> Result<At<Vec<At<String>>>, Mistake> {
    let items = list(node, "command", "[python, run.py]")?;
    let mut value = Vec::with_capacity(items.len());
    for item in items {
        let word = match &item.value {
            Value::Int(_) | Value::Float(_) | Value::Bool(_) => {
                let written = text.get(item.span.clone()).unwrap_or_default();
                if written.is_empty() || written.starts_with('*') {
                    return Err(wrong_type(item, "`command`", "text").help("put it in quotes"));
                }
                At { value: written.to_string(), span: item.span.clone() }
            }
            _ => string(item, "command")?,
        };
        value.push(word);
    }
    Ok(At { value, span: node.span.clone() })
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_near_name_is_found_and_a_far_one_is_not() {
        let allowed = ["rel_l2", "max_abs", "cosine"];
        assert_eq!(nearest("rel_12", allowed), Some("rel_l2"));
        assert_eq!(nearest("Max-Abs", allowed), Some("max_abs"));
        assert_eq!(nearest("cosnie", allowed), Some("cosine"));
        assert_eq!(nearest("speed", allowed), None);
        assert_eq!(nearest(&"x".repeat(100_000), allowed), None);
    }
}
