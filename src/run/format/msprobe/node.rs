//! A recorded value: a tensor, a scalar, or lists and maps of them, as msprobe nests arguments.
//!
//! In goes one JSON value of `dump.json`, out comes a [`Node`] in which tensors are told from scalars. Nothing
//! is looked up or opened. Depth is bounded by the JSON reader, order is the file's.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::bare::special;
use crate::tensor::{DType, Shape};

/// A recorded value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// `null`: an argument that was not given, a gradient that was not asked for, or a type that msprobe does
    /// not record.
    Null,
    /// A tensor.
    Tensor(Box<Recorded>),
    /// An argument that is no tensor.
    Scalar(Value),
    /// A list or tuple.
    List(Vec<Node>),
    /// A map, a named tuple or a data class.
    Map(Vec<(String, Node)>),
}

/// What `dump.json` says of one tensor.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Recorded {
    pub(super) dtype: Option<DType>,
    /// `None` where what stands there is no shape.
    pub(super) shape: Option<Shape>,
    /// Over all elements, so NaN where one is.
    pub(super) max: Option<f64>,
    pub(super) min: Option<f64>,
    pub(super) mean: Option<f64>,
    pub(super) norm: Option<f64>,
    /// `md5`: by its length CRC-32, a 64-bit checksum or MD5.
    pub(super) digest: Option<String>,
    /// File in `dump_tensor_data`.
    pub(super) data_name: Option<String>,
}

/// `torch.float32`, `Float32`.
fn dtype(text: &str) -> Option<DType> {
    DType::parse(&text.rsplit('.').next().unwrap_or(text).to_ascii_lowercase())
}

/// A number, or the text that stands for one that JSON does not have.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Value::String(text) => special(text).or_else(|| text.parse().ok()),
        value => value.as_f64(),
    }
}

impl Node {
    /// The tensors in it, in order.
    pub(super) fn tensors(&self) -> Vec<&Recorded> {
        let mut found = Vec::new();
        self.collect(&mut found);
        found
    }

    fn collect<'a>(&'a self, found: &mut Vec<&'a Recorded>) {
        match self {
            Self::Tensor(tensor) => found.push(tensor),
            Self::List(nodes) => nodes.iter().for_each(|node| node.collect(found)),
            Self::Map(nodes) => nodes.iter().for_each(|(_, node)| node.collect(found)),
            Self::Null | Self::Scalar(_) => {}
        }
    }

    /// The value as an attribute, as formats of runs spell it; `None` where a tensor is in it.
    pub(super) fn attribute(&self) -> Option<Value> {
        match self {
            Self::Null => Some(Value::Null),
            Self::Tensor(_) => None,
            Self::Scalar(value) => Some(value.clone()),
            Self::List(nodes) => nodes.iter().map(Self::attribute).collect::<Option<Vec<_>>>().map(Value::Array),
            Self::Map(nodes) => {
                let pair = |(name, node): &(String, Self)| Some((name.clone(), node.attribute()?));
                nodes.iter().map(pair).collect::<Option<_>>().map(Value::Object)
            }
        }
    }

    /// What a JSON object is: a tensor, a scalar, or a map.
    fn from_fields(fields: Vec<(String, Field)>) -> Self {
        let field = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, field)| field);
        if field("dtype").is_some() && field("shape").is_some() {
            return Self::Tensor(Box::new(recorded(fields)));
        }
        if field("type").is_some() && (field("value").is_some() || field("format").is_some() || fields.len() <= 3) {
            let kind = field("type").and_then(Field::text).unwrap_or_default().to_string();
            let value = fields.into_iter().find(|(key, _)| key == "value" || key == "format");
            return Self::Scalar(value.map_or(Value::Null, |(_, field)| scalar(&kind, field.plain())));
        }
        Self::Map(fields.into_iter().map(|(key, field)| (key, field.node())).collect())
    }
}

/// A scalar argument by its Python type, as attributes of runs are written.
fn scalar(kind: &str, value: Value) -> Value {
    match (kind, value) {
        // Numbers that JSON does not have are strings in a run's attributes.
        ("float" | "float16" | "float32" | "float64" | "Tensor", Value::String(text)) => match special(&text) {
            Some(value) if value.is_nan() => "nan".into(),
            Some(value) if value > 0.0 => "inf".into(),
            Some(_) => "-inf".into(),
            None => text.into(),
        },
        ("torch.dtype" | "mindspore.dtype", Value::String(text)) => {
            let name = text.rsplit('.').next().unwrap_or(&text);
            dtype(name).map_or_else(|| name.to_string(), |dtype| dtype.name().to_string()).into()
        }
        ("slice", Value::Array(bounds)) => {
            let mut bounds = bounds.into_iter();
            let mut next = || bounds.next().unwrap_or(Value::Null);
            serde_json::json!({"start": next(), "stop": next(), "step": next()})
        }
        (_, value) => value,
    }
}

fn recorded(fields: Vec<(String, Field)>) -> Recorded {
    let mut recorded = Recorded::default();
    for (key, field) in fields {
        match key.as_str() {
            "dtype" => {
                let text = field.text().unwrap_or_default();
                recorded.dtype = dtype(text);
            }
            "shape" => {
                let value = field.plain();
                let extent = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok());
                recorded.shape = value.as_array().and_then(|list| list.iter().map(extent).collect());
            }
            "Max" => recorded.max = number(&field.plain()),
            "Min" => recorded.min = number(&field.plain()),
            "Mean" => recorded.mean = number(&field.plain()),
            "Norm" => recorded.norm = number(&field.plain()),
            "md5" => recorded.digest = field.text().filter(|text| !text.is_empty()).map(str::to_string),
            "data_name" => recorded.data_name = field.text().filter(|text| *text != "-1").map(str::to_string),
            _ => {}
        }
    }
    recorded
}

/// A JSON value whose objects are already read as nodes.
enum Field {
    Plain(Value),
    List(Vec<Field>),
    Node(Node),
}

impl Field {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Plain(value) => value.as_str(),
            _ => None,
        }
    }

    /// The value without nodes in it.
    fn plain(self) -> Value {
        match self {
            Self::Plain(value) => value,
            Self::List(fields) => Value::Array(fields.into_iter().map(Self::plain).collect()),
            Self::Node(node) => node.attribute().unwrap_or(Value::Null),
        }
    }

    fn node(self) -> Node {
        match self {
            Self::Plain(Value::Null) => Node::Null,
            Self::Plain(value) => Node::Scalar(value),
            Self::List(fields) => Node::List(fields.into_iter().map(Self::node).collect()),
            Self::Node(node) => node,
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Field::deserialize(deserializer).map(Field::node)
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Field;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }
            fn visit_unit<E>(self) -> Result<Field, E> {
                Ok(Field::Plain(Value::Null))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Field, E> {
                Ok(Field::Plain(value.into()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Field, E> {
                Ok(Field::Plain(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Field, E> {
                Ok(Field::Plain(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Field, E> {
                Ok(Field::Plain(value.into()))
            }
            fn visit_str<E>(self, value: &str) -> Result<Field, E> {
                Ok(Field::Plain(value.into()))
            }
            fn visit_string<E>(self, value: String) -> Result<Field, E> {
                Ok(Field::Plain(value.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Field, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = seq.next_element()? {
                    fields.push(field);
                }
                Ok(Field::List(fields))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Field, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Field::Node(Node::from_fields(fields)))
            }
        }
        deserializer.deserialize_any(Fields)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(value: &Value) -> Node {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    #[test]
    fn tensors_scalars_and_maps_are_told_apart() {
        let tensor = json!({"type": "torch.Tensor", "dtype": "torch.bfloat16", "shape": [2, 3], "Max": "nfinit",
            "Min": -1, "Mean": "a", "Norm": null, "requires_grad": true, "data_name": "x.pt", "md5": "0a1b2c3d"});
        let Node::Tensor(found) = node(&tensor) else { panic!("a tensor") };
        assert_eq!((found.dtype, found.shape.as_deref()), (Some(DType::BF16), Some(&[2, 3][..])));
        assert_eq!((found.max, found.min, found.norm), (Some(f64::INFINITY), Some(-1.0), None));
        assert!(found.mean.unwrap().is_nan());
        assert_eq!((found.data_name.as_deref(), found.digest.as_deref()), (Some("x.pt"), Some("0a1b2c3d")));
        let truth = node(&json!({"dtype": "torch.bool", "shape": [], "Max": true, "Min": false, "data_name": "-1"}));
        let Node::Tensor(truth) = truth else { panic!("a tensor") };
        assert_eq!((truth.max, truth.min, truth.data_name), (Some(1.0), Some(0.0), None));
        let nested = node(&json!([{"x": tensor, "cache": null}, [{"type": "int", "value": 3}, tensor]]));
        assert_eq!(nested.tensors().len(), 2);
        assert_eq!(nested.attribute(), None);
    }

    #[test]
    fn scalars_become_attributes_as_runs_write_them() {
        for (value, expected) in [
            (json!({"type": "float", "value": "-nfinit"}), json!("-inf")),
            (json!({"type": "str", "value": "a"}), json!("a")),
            (json!({"type": "torch.dtype", "value": "torch.float16"}), json!("float16")),
            (json!({"type": "torch.Size", "value": [2, 4]}), json!([2, 4])),
            (json!({"type": "slice", "value": [null, 5, null]}), json!({"start": null, "stop": 5, "step": null})),
            (json!({"type": "torch.memory_format", "format": "channels_last"}), json!("channels_last")),
            (json!([{"type": "int", "value": 48}]), json!([48])),
            (json!(null), Value::Null),
        ] {
            assert_eq!(node(&value).attribute(), Some(expected), "{value}");
        }
    }
}
