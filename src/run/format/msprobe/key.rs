//! Keys of `dump.json`: what ran, which call of it, in which pass.
//!
//! In goes a key (`Torch.matmul.0.forward`, `Module.encoder.0.Linear.forward.1`,
//! `Module.encoder.0.Linear.parameters_grad.0`), out comes a [`Key`]. A key of no known form is one operator
//! of that name; nothing is refused.

use crate::run::{LayerKind, Pass};

/// Prefixes of modules; all else is an API.
const MODULES: &[&str] = &["Module", "Cell"];

/// A key, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key<'a> {
    /// `Functional`, `Tensor`, `Module` …; empty where the key has no known form.
    pub(super) family: &'a str,
    /// The API's name (`layer_norm`, `fft.fft`) or the module's class.
    pub(super) name: &'a str,
    /// Path of the module in the model; for MindSpore's primitives that of the cell that holds them.
    pub(super) path: &'a str,
    pub(super) kind: LayerKind,
    pub(super) pass: Pass,
    /// What was recorded are the gradients of a module's parameters.
    pub(super) parameter_gradients: bool,
    /// The number of the call, where the key has one.
    pub(super) call: Option<u32>,
}

/// What the last parts of a key say.
#[derive(Clone, Copy)]
struct Ending {
    pass: Pass,
    parameter_gradients: bool,
}

fn ending(word: &str) -> Option<Ending> {
    Some(match word {
        // Recomputation in the backward pass runs the forward again.
        "forward" | "recompute" => Ending { pass: Pass::Forward, parameter_gradients: false },
        "backward" => Ending { pass: Pass::Backward, parameter_gradients: false },
        "parameters_grad" => Ending { pass: Pass::Backward, parameter_gradients: true },
        _ => return None,
    })
}

fn number(word: &str) -> Option<u32> {
    word.parse().ok().filter(|_| word.bytes().all(|b| b.is_ascii_digit()))
}

/// Takes a key apart.
pub(super) fn parse(key: &str) -> Key<'_> {
    parts(key).unwrap_or(Key {
        family: "",
        name: key,
        path: "",
        kind: LayerKind::Operator,
        pass: Pass::Forward,
        parameter_gradients: false,
        call: None,
    })
}

fn parts(key: &str) -> Option<Key<'_>> {
    let (family, rest) = key.split_once('.')?;
    let (head, last) = rest.rsplit_once('.')?;
    if MODULES.contains(&family) {
        // `path.Class.forward.0`; early versions leave out the number.
        let (head, end, call) = match (number(last), head.rsplit_once('.')) {
            (Some(call), Some((head, word))) => (head, ending(word)?, Some(call)),
            _ => (head, ending(last)?, None),
        };
        let (path, name) = head.rsplit_once('.').unwrap_or(("", head));
        return Some(Key {
            family,
            name,
            path,
            kind: LayerKind::Module,
            pass: end.pass,
            parameter_gradients: end.parameter_gradients,
            call,
        });
    }
    // `name.0.forward`; early versions write `name.0_forward`.
    let (head, call, end) =
        match (last.split_once('_').and_then(|(n, word)| Some((number(n)?, ending(word)?))), ending(last)) {
            (Some((call, end)), _) => (head, Some(call), end),
            (None, Some(end)) => match head.rsplit_once('.').and_then(|(head, n)| Some((head, number(n)?))) {
                Some((head, call)) => (head, Some(call), end),
                None => (head, number(head), end),
            },
            // `Jit.name.forward.0`: numbered like a module.
            (None, None) => {
                let (head, word) = head.rsplit_once('.')?;
                (head, Some(number(last)?), ending(word)?)
            }
        };
    // `Primitive.cell.path.MatMul`: where it stands, then its type.
    let (path, name) = match head.rsplit_once('.') {
        Some((path, name)) if family == "Primitive" => (path, name),
        _ => ("", head),
    };
    Some(Key { family, name, path, kind: LayerKind::Operator, pass: end.pass, parameter_gradients: false, call })
}

impl Key<'_> {
    /// The forward key to which this backward key belongs.
    pub(super) fn forward_of(key: &str) -> Option<String> {
        let at = key.rfind("backward")?;
        let (head, tail) = key.split_at_checked(at)?;
        Some(format!("{head}forward{}", tail.strip_prefix("backward")?))
    }

    /// The in-place form of an API: its first argument is what it wrote.
    pub(super) fn is_in_place(&self) -> bool {
        let name = self.name;
        let arithmetic = name
            .strip_prefix("__i")
            .is_some_and(|rest| ["add__", "sub__", "mul__", "div__", "truediv__", "pow__"].contains(&rest));
        self.kind == LayerKind::Operator && (arithmetic || name.ends_with('_') && !name.ends_with("__"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apis_modules_and_gradients_are_told_apart() {
        let said = |key: &str| {
            let key = parse(key);
            let kind = if key.kind == LayerKind::Module { "module" } else { "operator" };
            let pass = if key.parameter_gradients { "gradients".to_string() } else { key.pass.to_string() };
            format!("{}|{}|{}|{kind} {pass} {:?}", key.family, key.path, key.name, key.call)
        };
        for (key, expected) in [
            ("Torch.matmul.0.forward", "Torch||matmul|operator forward Some(0)"),
            ("Torch.fft.fft.12.backward", "Torch||fft.fft|operator backward Some(12)"),
            ("Tensor.__mul__.3.forward", "Tensor||__mul__|operator forward Some(3)"),
            ("Functional.linear.0_forward", "Functional||linear|operator forward Some(0)"),
            ("Functional.linear.0.recompute", "Functional||linear|operator forward Some(0)"),
            ("Primitive.net.dense.MatMul.2.forward", "Primitive|net.dense|MatMul|operator forward Some(2)"),
            ("Jit.step.forward.1", "Jit||step|operator forward Some(1)"),
            ("Module.layer.0.q.Linear.forward.1", "Module|layer.0.q|Linear|module forward Some(1)"),
            ("Module.Net.forward.0", "Module||Net|module forward Some(0)"),
            ("Cell.net.Dense.backward.0", "Cell|net|Dense|module backward Some(0)"),
            ("Module.a.Linear.parameters_grad.0", "Module|a|Linear|module gradients Some(0)"),
            ("Module.a.Linear.parameters_grad", "Module|a|Linear|module gradients None"),
            ("optimizer", "||optimizer|operator forward None"),
            ("Functional.x.y", "||Functional.x.y|operator forward None"),
            ("", "|||operator forward None"),
            ("...", "||...|operator forward None"),
        ] {
            assert_eq!(said(key), expected, "{key}");
        }
        assert_eq!(Key::forward_of("Torch.matmul.0.backward").as_deref(), Some("Torch.matmul.0.forward"));
        assert_eq!(Key::forward_of("Module.a.L.backward.2").as_deref(), Some("Module.a.L.forward.2"));
        assert_eq!(Key::forward_of("Torch.matmul.0.forward"), None);
        let in_place = |key| parse(key).is_in_place();
        assert!(in_place("Tensor.add_.0.forward") && in_place("Tensor.__iadd__.0.forward"));
        assert!(!in_place("Tensor.__add__.0.forward") && !in_place("Tensor.__invert__.0.forward"));
    }
}
