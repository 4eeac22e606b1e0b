//! YAML text -> a tree of values, each with the bytes it stands at.
//!
//! The tree keeps every entry of a mapping, repeated keys included, so that the reader above it can
//! say in one voice what is wrong with a key or a value.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::budget::BudgetBreach;
use serde_yaml::{DuplicateKeyPolicy, Location, MergeKeyPolicy, NonFiniteFloatPolicy, Spanned};

use super::frame::Mistake;

/// Deepest nesting of lists and mappings; a case needs four levels.
const MAX_DEPTH: usize = 16;

/// Most values in a file, aliases expanded: far beyond any tolerance table a person writes.
const MAX_NODES: usize = 50_000;

/// A value and the bytes at which it stands (an alias: where it is used).
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) span: Range<usize>,
}

/// What YAML can say.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl Node {
    /// What the value is, in words for a message.
    pub(super) fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".into(),
            Value::Bool(value) => format!("the truth value {value}"),
            Value::Int(value) => format!("the number {value}"),
            Value::Float(value) => format!("the number {value}"),
            Value::Text(text) => format!("the text {}", quote(text)),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a mapping".into(),
        }
    }
}

/// Text from a file as a message quotes it: cut where it is long.
pub(super) fn quote(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("`{}…`", text.get(..end).unwrap_or_default()),
        None => format!("`{text}`"),
    }
}

/// Parses one YAML document; an empty file is [`Value::Null`].
pub(super) fn parse(text: &str) -> Result<Node, Mistake> {
    let options = serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_documents: 1,
        },
        alias_limits: serde_yaml::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: MAX_DEPTH,
        },
        emit_comments: false,
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    serde_yaml::from_str_with_options::<Node>(text, options).map_err(|error| explain(text, &error))
}

/// A mistake of the parser in the words of this tool.
fn explain(text: &str, error: &serde_yaml::Error) -> Mistake {
    use serde_yaml::Error as Yaml;
    let error = error.without_snippet();
    let span = error.location().map_or(0..0, |location| span_of(text, location));
    let (title, help) = match error {
        Yaml::AliasError { error: inner, .. } => {
            let mut mistake = explain(text, inner);
            mistake.span = span;
            return mistake;
        }
        Yaml::UnknownAnchor { .. } => (
            "an unquoted value that starts with `*` is a YAML alias, and no anchor has this name".into(),
            "a name pattern needs quotes: \"*.dropout\"",
        ),
        Yaml::MergeKeyNotAllowed { .. } => {
            ("YAML merge keys (`<<`) are not supported".into(), "write the entries out at their place")
        }
        Yaml::MultipleDocuments { .. } | Yaml::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            ("more than one YAML document in the file".into(), "keep one case per file and remove `---`")
        }
        Yaml::UnsupportedTag { tag, .. } => {
            (format!("the YAML tag {} is not supported", quote(tag)), "remove the tag and keep the value")
        }
        Yaml::RecursiveReferencesRequireWeakTypes { .. } => {
            ("a YAML alias refers to a value that contains it".into(), "write the value out instead")
        }
        Yaml::Budget { .. }
        | Yaml::AliasReplayLimitExceeded { .. }
        | Yaml::AliasExpansionLimitExceeded { .. }
        | Yaml::AliasReplayCounterOverflow { .. }
        | Yaml::AliasReplayStackDepthExceeded { .. } => (
            "the YAML is nested too deeply or expands to too many values for a case".into(),
            "a case needs four levels of nesting, and no aliases",
        ),
        // The scanner's own limit on nesting comes before the budget's.
        Yaml::ExternalMessage { msg, .. } if msg.contains("recursion limit") => {
            ("the YAML is nested too deeply for a case".into(), "a case needs four levels of nesting")
        }
        Yaml::Eof { .. } => ("the YAML ends before a value is complete".into(), "complete the value"),
        other => {
            let message = other.render_with_formatter(&serde_yaml::UserMessageFormatter);
            (format!("invalid YAML: {}", first_line(&message)), syntax_help(&message))
        }
    };
    Mistake::new(&span, title).help(help)
}

fn first_line(message: &str) -> String {
    let line = message.lines().find(|line| !line.trim().is_empty()).unwrap_or("it cannot be read").trim();
    // The place stands in the frame; the parser's own suffix would say it twice.
    let line = line.split(" at line ").next().unwrap_or(line);
    line.trim_start_matches("error: ").to_string()
}

fn syntax_help(message: &str) -> &'static str {
    if message.contains("escape") {
        "between double quotes a backslash starts an escape; put a regular expression in single quotes"
    } else if message.contains("tab") {
        "indent with blanks, not with tabs"
    } else {
        "check quotes, brackets and indentation; text with `: `, `#`, `*`, `[` or `{` needs quotes"
    }
}

/// Bytes of a location; the parser counts lines and characters where it has no byte offset.
fn span_of(text: &str, location: Location) -> Range<usize> {
    let (offset, len) = (location.span().byte_offset(), location.span().byte_len());
    if let Some(start) = offset.and_then(|offset| usize::try_from(offset).ok()).filter(|&start| start <= text.len()) {
        let len = len.and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
        return start..start.saturating_add(len).min(text.len());
    }
    let line = usize::try_from(location.line()).unwrap_or(1).max(1);
    let column = usize::try_from(location.column()).unwrap_or(1).max(1);
    let line_start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let rest = text.get(line_start..).unwrap_or_default();
    let start = line_start + rest.char_indices().nth(column - 1).map_or(rest.len(), |(at, _)| at);
    start..start
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        let span = spanned.referenced.span();
        let start = span.byte_offset().and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
        let len = span.byte_len().and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
        Ok(Self { value: spanned.value, span: start..start.saturating_add(len) })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(i128::try_from(value).map_or(Value::Float(value as f64), Value::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_string()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Value, E> {
        Ok(Value::Text(String::from_utf8_lossy(value).into_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(text: &'a str, node: &Node) -> &'a str {
        text.get(node.span.clone()).unwrap_or("?")
    }

    #[test]
    fn keys_and_values_know_their_bytes() {
        let text = "é: 'x y'\nlist: [1, -2.5e3, .inf, no, ~]\nlist: {k: v}\n";
        let Value::Map(entries) = parse(text).unwrap().value else { panic!("a mapping") };
        assert_eq!(entries.len(), 3, "repeated keys are kept");
        assert_eq!(at(text, &entries[0].0), "é");
        assert_eq!(at(text, &entries[0].1), "'x y'");
        let Value::List(items) = &entries[1].1.value else { panic!("a list") };
        assert_eq!(at(text, &items[1]), "-2.5e3");
        assert!(matches!(items[0].value, Value::Int(1)));
        assert!(matches!(items[2].value, Value::Float(f) if f.is_infinite()));
        assert!(matches!(&items[3].value, Value::Text(t) if t == "no"));
        assert!(matches!(items[4].value, Value::Null));
        assert_eq!(at(text, &entries[2].0), "list");
        assert!(text[entries[2].1.span.clone()].starts_with('{') || entries[2].1.span.is_empty());
        assert_eq!(entries[2].1.span.start, text.rfind('{').unwrap(), "a mapping stands at its first key or bracket");
    }

    #[test]
    fn an_alias_stands_where_it_is_used() {
        let text = "a: &x 5\nb: *x\n";
        let Value::Map(entries) = parse(text).unwrap().value else { panic!("a mapping") };
        assert_eq!(at(text, &entries[1].1), "*x");
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let refs = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{refs}]\n"));
        }
        let mistake = parse(&text).unwrap_err();
        assert!(mistake.title.contains("too many values"), "{mistake:?}");
    }

    #[test]
    fn deep_nesting_is_refused() {
        for text in ["[".repeat(100_000), format!("{}x", "- ".repeat(100_000))] {
            let mistake = parse(&text).unwrap_err();
            assert!(mistake.title.contains("nest"), "{mistake:?}");
        }
    }
}
