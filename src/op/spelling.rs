//! From a framework's spelling to the canonical operator.
//!
//! A spelling is reduced to a key before it is looked up: prefix (`aten::`, `torch.nn.functional.`),
//! overload (`.Tensor`), in-place underscore, case, inner underscores and CANN's version suffix
//! (`V2`) do not distinguish operators.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::{Op, table};

/// Overload names of ATen that are words of their own elsewhere.
const OVERLOADS: &[&str] = &[
    "Tensor", "Scalar", "default", "out", "int", "dim", "self", "other", "dtype", "Dimname", "device", "aten", "torch",
];

static KEYS: LazyLock<HashMap<String, Op>> = LazyLock::new(|| {
    let mut keys = HashMap::new();
    for (at, row) in (0u16..).zip(table::rows()) {
        for spelling in [&row.name].into_iter().chain(row.spellings) {
            keys.entry(squeeze(spelling)).or_insert(Op(at));
        }
        // CANN's own names come after the frameworks': several operators share one CANN type.
        if let Some(cann) = row.cann {
            keys.entry(squeeze(cann)).or_insert(Op(at));
            keys.entry(without_version(&squeeze(cann)).to_string()).or_insert(Op(at));
        }
    }
    keys
});

pub(super) fn resolve(spelling: &str) -> Op {
    let spelling = spelling.rsplit("::").next().unwrap_or(spelling);
    // `aten.add.Tensor` and `add.Tensor`: the overload follows the name; `torch.nn.functional.gelu`,
    // `Tensor.__mul__`: the name comes last. Try the last part, then the ones before it.
    let parts: Vec<&str> = spelling.split('.').filter(|part| !part.is_empty()).collect();
    for part in parts.iter().rev().filter(|part| !(parts.len() > 1 && OVERLOADS.contains(part))).take(3) {
        let key = squeeze(part);
        for key in [key.as_str(), without_version(&key), key.strip_prefix("npu").unwrap_or(&key)] {
            if let Some(&op) = KEYS.get(key) {
                return op;
            }
        }
    }
    Op::UNKNOWN
}

/// Lower-case letters and digits alone.
fn squeeze(spelling: &str) -> String {
    spelling.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// `layernormv3` -> `layernorm`.
fn without_version(key: &str) -> &str {
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    match stem.strip_suffix('v') {
        Some(stem_without) if stem.len() < key.len() && stem_without.len() > 2 => stem_without,
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frameworks_meet_in_one_name() {
        for (spelling, name) in [
            ("aten::addmm", "linear"),
            ("aten.add.Tensor", "add"),
            ("add_", "add"),
            ("Functional.layer_norm", "layer_norm"),
            ("torch.nn.functional.scaled_dot_product_attention", "attention"),
            ("Tensor.__mul__", "mul"),
            ("LayerNormV3", "layer_norm"),
            ("BatchMatMulV2", "matmul"),
            ("npu_rms_norm", "rms_norm"),
            ("Conv2d", "conv"),
            ("conv2d", "conv"),
            ("max_pool2d_with_indices", "max_pool2d"),
            ("_softmax", "softmax"),
            ("aten::_to_copy", "cast"),
            ("RealDiv", "div"),
        ] {
            assert_eq!(Op::named(spelling).name(), name, "{spelling}");
        }
        assert_eq!(Op::named("fused_qkv_rope"), Op::UNKNOWN);
        assert_eq!(Op::named("\u{1b}[31m::..."), Op::UNKNOWN);
    }

    #[test]
    fn no_spelling_stands_in_two_rows() {
        let mut seen: HashMap<String, &str> = HashMap::new();
        for row in table::rows() {
            for spelling in [&row.name].into_iter().chain(row.spellings) {
                if let Some(other) = seen.insert(squeeze(spelling), row.name) {
                    assert_eq!(other, row.name, "`{spelling}` stands in two rows");
                }
            }
        }
    }
}
