//! Arguments of a call: which tensor is which argument, and what else was given.
//!
//! In go the positional and keyword arguments as msprobe nests them, out come the tensors in the order of the
//! API's signature with their names, and the attributes, complete with defaults or not there at all.

use serde_json::Value;

use super::node::{Node, Recorded};
use super::signatures::{Parameter, Signature};
use crate::run::Attrs;

/// A tensor that a call read or wrote.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Use<'a> {
    /// Argument name, where it is known.
    pub(super) name: Option<String>,
    /// Where in the entry it stands (`input.0`, `kwargs.mask`).
    pub(super) place: String,
    pub(super) tensor: &'a Recorded,
}

/// What a call was given.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Bound<'a> {
    /// Tensors; all have names or none has.
    pub(super) tensors: Vec<Use<'a>>,
    /// Arguments that are no tensors; `None` where they are not all known.
    pub(super) attrs: Option<Attrs>,
    /// The function as schemas name it; `None` where the API is not known.
    pub(super) function: Option<&'static str>,
}

/// An argument as it was given.
struct Given<'a> {
    place: String,
    node: &'a Node,
}

/// The arguments of a call of which nothing is known but their order.
pub(super) fn unnamed<'a>(parts: &[(&str, Option<&'a Node>)]) -> Vec<Use<'a>> {
    let mut tensors = Vec::new();
    for (place, node) in parts {
        if let Some(node) = node {
            collect(node, place, None, &mut tensors);
        }
    }
    tensors
}

fn collect<'a>(node: &'a Node, place: &str, name: Option<&str>, into: &mut Vec<Use<'a>>) {
    match node {
        Node::Tensor(tensor) => {
            into.push(Use { name: name.map(str::to_string), place: place.to_string(), tensor });
        }
        Node::List(nodes) => {
            for (at, node) in nodes.iter().enumerate() {
                collect(node, &format!("{place}.{at}"), name, into);
            }
        }
        Node::Map(nodes) => {
            for (key, node) in nodes {
                collect(node, &format!("{place}.{key}"), name, into);
            }
        }
        Node::Null | Node::Scalar(_) => {}
    }
}

/// Names the arguments by the first of the API's forms into which they fit, else by the first.
pub(super) fn bind<'a>(forms: &[Signature], args: Option<&'a Node>, kwargs: Option<&'a Node>) -> Bound<'a> {
    let mut first = None;
    for form in forms {
        let bound = bind_form(form, args, kwargs);
        if bound.attrs.is_some() {
            return bound;
        }
        first = first.or(Some(bound));
    }
    let unnamed = || unnamed(&[("input", args), ("kwargs", kwargs)]);
    first.unwrap_or_else(|| Bound { tensors: unnamed(), ..Bound::default() })
}

fn bind_form<'a>(signature: &Signature, args: Option<&'a Node>, kwargs: Option<&'a Node>) -> Bound<'a> {
    let positional: Vec<Given<'a>> = match args {
        Some(Node::List(nodes)) => {
            nodes.iter().enumerate().map(|(at, node)| Given { place: format!("input.{at}"), node }).collect()
        }
        Some(node @ Node::Tensor(_)) => vec![Given { place: "input".into(), node }],
        _ => Vec::new(),
    };
    let keywords: &[(String, Node)] = match kwargs {
        Some(Node::Map(nodes)) => nodes,
        _ => &[],
    };
    let mut bound = Bound { tensors: Vec::new(), attrs: Some(Attrs::new()), function: Some(signature.function) };
    let mut positional = positional.into_iter();
    let mut taken = vec![false; keywords.len()];
    for parameter in &signature.parameters {
        if parameter.takes_rest && positional.len() > 0 {
            bound.take_rest(parameter, positional.by_ref().collect());
            continue;
        }
        let keyword = keywords.iter().enumerate().find(|(at, (key, _))| {
            !taken.get(*at).copied().unwrap_or(true)
                && (key == parameter.name || Some(key.as_str()) == parameter.keyword)
        });
        let given = match (keyword, positional.len()) {
            (Some((at, (key, node))), _) => {
                if let Some(taken) = taken.get_mut(at) {
                    *taken = true;
                }
                Some(Given { place: format!("kwargs.{key}"), node })
            }
            (None, _) if parameter.by_name => None,
            (None, 0) => None,
            (None, _) => positional.next(),
        };
        match (given, &parameter.default) {
            (Some(given), _) => {
                bound.take(parameter.name, &given);
                if parameter.is_tensor && given.node.attribute().is_some() {
                    bound.attrs = None;
                }
            }
            (None, Some(default)) => bound.put(parameter.name, default.clone()),
            (None, None) => bound.attrs = None,
        }
    }
    // What the signature does not know: a keyword keeps its name, a further position has none.
    for ((key, node), _) in keywords.iter().zip(&taken).filter(|(_, taken)| !**taken) {
        bound.take(key, &Given { place: format!("kwargs.{key}"), node });
    }
    for given in positional {
        bound.attrs = None;
        bound.take("further", &given);
    }
    bound
}

impl<'a> Bound<'a> {
    fn put(&mut self, name: &str, value: Value) {
        if let Some(attrs) = &mut self.attrs {
            attrs.insert(name.to_string(), value);
        }
    }

    fn take(&mut self, name: &str, given: &Given<'a>) {
        match given.node.attribute() {
            Some(value) => self.put(name, value),
            None => collect(given.node, &given.place, Some(name), &mut self.tensors),
        }
    }

    /// `view(2, 3)` and `view((2, 3))` are one call.
    fn take_rest(&mut self, parameter: &Parameter, rest: Vec<Given<'a>>) {
        let lists = |node: &Node| matches!(node, Node::List(_)) || matches!(node, Node::Scalar(Value::Array(_)));
        if let [one] = rest.as_slice()
            && lists(one.node)
        {
            return self.take(parameter.name, one);
        }
        let values: Option<Vec<Value>> = rest.iter().map(|given| given.node.attribute()).collect();
        match values {
            Some(values) => self.put(parameter.name, values.into()),
            None => {
                rest.iter().for_each(|given| collect(given.node, &given.place, Some(parameter.name), &mut self.tensors))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::signatures::{Dialect, signatures};
    use super::*;

    fn tensor() -> Value {
        json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]})
    }

    fn int(value: i64) -> Value {
        json!({"type": "int", "value": value})
    }

    /// Tensors as `name@place`, then the attributes.
    fn said(api: &str, args: &Value, kwargs: &Value) -> String {
        let node = |value: &Value| serde_json::from_str::<Node>(&value.to_string()).unwrap();
        let (args, kwargs) = (node(args), node(kwargs));
        let bound = bind(signatures(Dialect::Torch, "Functional", api), Some(&args), Some(&kwargs));
        let tensors: Vec<String> =
            bound.tensors.iter().map(|t| format!("{}@{}", t.name.as_deref().unwrap_or("-"), t.place)).collect();
        format!("{} {}", tensors.join(" "), serde_json::to_string(&bound.attrs).unwrap())
    }

    #[test]
    fn positions_and_keywords_get_the_schemas_names_and_defaults() {
        assert_eq!(
            said("linear", &json!([tensor(), tensor(), null]), &json!({})),
            r#"input@input.0 weight@input.1 {"bias":null}"#
        );
        assert_eq!(
            said(
                "layer_norm",
                &json!([tensor(), [int(48)], tensor()]),
                &json!({"eps": {"type": "float", "value": 1e-12}})
            ),
            r#"input@input.0 weight@input.2 {"bias":null,"eps":1e-12,"normalized_shape":[48]}"#
        );
        assert_eq!(
            said("gather", &json!([tensor()]), &json!({"dim": int(1), "index": tensor()})),
            r#"self@input.0 index@kwargs.index {"dim":1,"sparse_grad":false}"#
        );
        assert_eq!(
            said("mul", &json!([]), &json!({"input": tensor(), "other": int(2)})),
            r#"self@kwargs.input {"other":2}"#
        );
    }

    #[test]
    fn lists_and_rests() {
        for args in [json!([tensor(), int(2), int(-1)]), json!([tensor(), [int(2), int(-1)]])] {
            assert_eq!(said("reshape", &args, &json!({})), r#"self@input.0 {"shape":[2,-1]}"#);
        }
        let size = json!({"type": "torch.Size", "value": [2, 1]});
        assert_eq!(said("expand", &json!([tensor(), size]), &json!({})), r#"self@input.0 {"size":[2,1]}"#);
        assert_eq!(
            said("cat", &json!([[tensor(), tensor()], int(1)]), &json!({})),
            r#"tensors@input.0.0 tensors@input.0.1 {"dim":1}"#
        );
        assert_eq!(
            said("einsum", &json!([{"type": "str", "value": "i,i->"}, tensor(), tensor()]), &json!({})),
            r#"tensors@input.1 tensors@input.2 {"equation":"i,i->"}"#
        );
    }

    #[test]
    fn the_form_of_an_api_follows_from_what_was_given() {
        let max = |args: &Value| said("max", args, &json!({}));
        assert_eq!(max(&json!([tensor(), tensor()])), "self@input.0 other@input.1 {}");
        assert_eq!(max(&json!([tensor(), int(-1)])), r#"self@input.0 {"dim":-1,"keepdim":false}"#);
        assert_eq!(max(&json!([tensor()])), "self@input.0 {}");
        assert_eq!(said("arange", &json!([int(7)]), &json!({})), r#" {"dtype":null,"end":7}"#);
        assert_eq!(
            said("arange", &json!([int(1), int(7)]), &json!({})),
            r#" {"dtype":null,"end":7,"start":1,"step":1}"#
        );
        assert_eq!(said("unheard_of", &json!([tensor()]), &json!({"x": tensor()})), "-@input.0 -@kwargs.x null");
    }

    #[test]
    fn what_is_not_complete_says_so() {
        assert_eq!(said("transpose", &json!([tensor(), int(1)]), &json!({})), "self@input.0 null");
        assert_eq!(said("tanh", &json!([tensor(), int(1)]), &json!({})), "self@input.0 null");
        assert_eq!(said("tanh", &json!([tensor()]), &json!({"out": tensor()})), "self@input.0 out@kwargs.out {}");
    }
}
