//! Names without what wrappers and call counters add.

/// Attribute names under which wrappers hold the model they wrap: DataParallel and DDP (`module`),
/// torch.compile (`_orig_mod`), activation checkpointing, FSDP 1 and its flat parameters, DeepSpeed.
pub const WRAPPERS: &[&str] = &[
    "module",
    "_orig_mod",
    "_checkpoint_wrapped_module",
    "_fsdp_wrapped_module",
    "_fpw_module",
    "_forward_module",
    "_wrapped_module",
];

/// The dotted name without the components that wrappers insert.
pub fn without_wrappers(name: &str) -> String {
    let kept: Vec<&str> = name.split('.').filter(|part| !WRAPPERS.contains(part)).collect();
    if kept.is_empty() { name.to_string() } else { kept.join(".") }
}

/// First parts of the names that msprobe gives to calls.
const MSPROBE: &[&str] = &[
    "Functional",
    "Tensor",
    "Torch",
    "VF",
    "NPU",
    "Aten",
    "Distributed",
    "MindSpeed",
    "Mint",
    "MintFunctional",
    "MintDistributed",
    "Primitive",
    "Jit",
    "Module",
    "Cell",
];

/// The name without the call number that a recorder put into it (`x#1`, `x@2`, msprobe's
/// `Torch.matmul.1.forward` and `Module.x.Linear.forward.2`).
pub fn without_call(name: &str) -> &str {
    if let Some(base) = msprobe_call(name) {
        return base;
    }
    match name.rfind(['#', '@']) {
        Some(at) if at > 0 && at + 1 < name.len() && name[at + 1..].bytes().all(|b| b.is_ascii_digit()) => &name[..at],
        _ => name,
    }
}

/// The name without the counter that tracers append to tell layers of one operator apart (`view`,
/// `view_1`, `view_2` …), or `None` where it bears none.
pub(super) fn without_counter(name: &str) -> Option<&str> {
    let (base, digits) = name.rsplit_once('_')?;
    let is_counter = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    (is_counter && !base.is_empty() && !base.ends_with('.')).then_some(base)
}

fn msprobe_call(name: &str) -> Option<&str> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (family, _) = name.split_once('.')?;
    let (head, last) = name.rsplit_once('.').filter(|_| MSPROBE.contains(&family))?;
    let (base, number) = match last {
        "forward" | "backward" => head.rsplit_once('.')?,
        number => {
            let base = head.strip_suffix(".forward").or(head.strip_suffix(".backward"));
            (base.or(head.ends_with(".parameters_grad").then_some(head))?, number)
        }
    };
    is_number(number).then_some(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_and_calls_come_off() {
        let wrapped = "_orig_mod.module.model.layers.0._checkpoint_wrapped_module.q_proj.weight";
        assert_eq!(without_wrappers(wrapped), "model.layers.0.q_proj.weight");
        assert_eq!(without_wrappers("module"), "module");
        assert_eq!(without_wrappers("my_module.x"), "my_module.x");
        assert_eq!(without_call("a.cast#12"), "a.cast");
        assert_eq!(without_call("a@2"), "a");
        assert_eq!(without_call("a#b"), "a#b");
        assert_eq!(without_call("#1"), "#1");
        assert_eq!(without_counter("a.view_12"), Some("a.view"));
        assert_eq!(without_counter("a.view"), None);
        assert_eq!(without_counter("a.view_0"), None);
        assert_eq!(without_counter("a._1"), None);
        assert_eq!(without_call("Torch.matmul.12.forward"), "Torch.matmul");
        assert_eq!(without_call("Module.layer.0.q.Linear.backward.3"), "Module.layer.0.q.Linear");
        assert_eq!(without_call("Module.q.Linear.parameters_grad.0"), "Module.q.Linear.parameters_grad");
        assert_eq!(without_call("Module.layer.0"), "Module.layer.0");
        assert_eq!(without_call("layer.0.forward"), "layer.0.forward");
    }
}
