//! The names that a pickle of tensors may use, and why others are refused.
//!
//! A name is looked up when the pickle mentions it, whether or not it is called afterwards.

use crate::tensor::DType;

/// What an allowed name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Global {
    /// A class of dicts (`collections.OrderedDict` …).
    Dict,
    /// A class whose one argument holds its elements (`torch.Size`, `set` …).
    Sequence,
    /// Something that makes values which matter to no tensor (`torch.device`, numpy's scalars …).
    Scalar,
    /// The class of a tensor (`torch.Tensor`, `torch.nn.Parameter`).
    Class,
    /// A class of storages.
    Storage(Element),
    /// A dtype.
    DType(Element),
    /// One of torch's functions that rebuild tensors.
    Rebuild(Rebuild),
}

/// Functions that rebuild a tensor; the comment gives their arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rebuild {
    /// storage, offset, size, stride, and for newer ones requires_grad, hooks, metadata.
    View,
    /// storage, offset, size, stride, requires_grad, hooks, dtype, metadata.
    ViewOfBytes,
    /// storage, offset, size, stride, requires_grad, hooks, and the memory format that it had on the NPU
    /// (its storage was brought to the plain format before it was written).
    OnNpu,
    /// The first argument is the tensor; what follows (requires_grad, hooks, state, device) is no data.
    Wrapped,
    /// A function of this list, class, its arguments, state.
    FromType,
}

/// Element type of a storage, or a dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    /// One that Goldline knows.
    Known(DType),
    /// None: the storage holds bytes, the tensor says what they are.
    Bytes,
    /// Two 64-bit floats, which Goldline does not read.
    Complex128,
    /// Two 16-bit floats, which Goldline does not read.
    Complex32,
    /// Torch's integers and floats of other widths (`uint4`, `bits8`, `float4_e2m1fn_x2` …).
    Packed,
    /// A quantised type.
    Quantised,
}

impl Element {
    /// The type, where Goldline reads it.
    ///
    /// # Errors
    /// What it is instead, in words.
    pub(super) fn known(self) -> Result<DType, &'static str> {
        match self {
            Self::Known(dtype) => Ok(dtype),
            Self::Bytes => Err("bytes without a dtype"),
            Self::Complex128 => Err("complex128"),
            Self::Complex32 => Err("complex32"),
            Self::Packed => Err("a type whose elements share bytes"),
            Self::Quantised => Err("a quantised type"),
        }
    }

    /// Bytes of one element of a storage of this type.
    pub(super) fn bytes(self) -> Option<u64> {
        match self {
            Self::Known(dtype) => dtype.byte_len(1).and_then(|n| u64::try_from(n).ok()),
            Self::Bytes => Some(1),
            Self::Complex128 | Self::Complex32 | Self::Packed | Self::Quantised => None,
        }
    }
}

impl Global {
    /// What it is, in words.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Dict | Self::Sequence | Self::Scalar | Self::Class => "a class",
            Self::Storage(_) => "a class of storages",
            Self::DType(_) => "a dtype",
            Self::Rebuild(_) => "a function",
        }
    }
}

/// What the name `module.name` stands for.
///
/// # Errors
/// Why it is refused.
pub(super) fn lookup(module: &str, name: &str) -> Result<Global, String> {
    let known = match module {
        "collections" => matches!(name, "OrderedDict" | "defaultdict" | "Counter").then_some(Global::Dict),
        "__builtin__" | "builtins" => builtin(name),
        "_codecs" => (name == "encode").then_some(Global::Scalar),
        "numpy" => (name == "dtype").then_some(Global::Scalar),
        "numpy.core.multiarray" | "numpy._core.multiarray" => (name == "scalar").then_some(Global::Scalar),
        "torch" => torch(name),
        "torch.cuda" | "torch.npu" | "torch.xpu" | "torch.storage" | "torch_npu" | "torch_npu.npu" => storage(name),
        "torch.serialization" => (name == "_get_layout").then_some(Global::Scalar),
        "torch.nn.parameter" => matches!(name, "Parameter" | "Buffer").then_some(Global::Class),
        "torch._utils" | "torch._tensor" => rebuild(name).map(Global::Rebuild),
        "torch_npu.npu._format" => (name == "Format").then_some(Global::Scalar),
        // It moved between modules from release to release.
        npu if npu.starts_with("torch_npu.") && name == "_rebuild_npu_tensor" => Some(Global::Rebuild(Rebuild::OnNpu)),
        _ => None,
    };
    known.ok_or_else(|| refusal(module, name))
}

fn builtin(name: &str) -> Option<Global> {
    match name {
        "set" | "frozenset" | "list" | "tuple" => Some(Global::Sequence),
        "dict" => Some(Global::Dict),
        "complex" | "bytearray" | "bytes" | "slice" | "range" | "xrange" | "int" | "float" | "bool" | "str" => {
            Some(Global::Scalar)
        }
        _ => None,
    }
}

fn torch(name: &str) -> Option<Global> {
    match name {
        "Size" => Some(Global::Sequence),
        "device" => Some(Global::Scalar),
        "Tensor" => Some(Global::Class),
        _ => storage(name).or_else(|| dtype(name).map(Global::DType)),
    }
}

/// Torch's name of a dtype; `float32` and the like, no abbreviations.
fn dtype(name: &str) -> Option<Element> {
    if let Some(dtype) = DType::all().find(|dtype| dtype.name() == name) {
        // Two of these lie in one byte, which torch counts as one element.
        return Some(if dtype.bits() < 8 { Element::Packed } else { Element::Known(dtype) });
    }
    let numbered = |prefix: &str| name.strip_prefix(prefix).is_some_and(|n| n.parse::<u8>().is_ok());
    match name {
        "complex32" => Some(Element::Complex32),
        "complex128" => Some(Element::Complex128),
        "qint8" | "quint8" | "qint32" | "quint4x2" | "quint2x4" => Some(Element::Quantised),
        _ if ["uint", "int", "bits"].into_iter().any(numbered) => Some(Element::Packed),
        _ => None,
    }
}

fn storage(name: &str) -> Option<Global> {
    let element = match name.strip_suffix("Storage")? {
        "Double" => Element::Known(DType::F64),
        "Float" => Element::Known(DType::F32),
        "Half" => Element::Known(DType::F16),
        "BFloat16" => Element::Known(DType::BF16),
        "Long" => Element::Known(DType::I64),
        "Int" => Element::Known(DType::I32),
        "Short" => Element::Known(DType::I16),
        "Char" => Element::Known(DType::I8),
        "Byte" => Element::Known(DType::U8),
        "Bool" => Element::Known(DType::Bool),
        "ComplexFloat" => Element::Known(DType::C64),
        "Untyped" => Element::Bytes,
        "ComplexDouble" => Element::Complex128,
        "QInt8" | "QUInt8" | "QInt32" | "QUInt4x2" | "QUInt2x4" => Element::Quantised,
        _ => return None,
    };
    Some(Global::Storage(element))
}

fn rebuild(name: &str) -> Option<Rebuild> {
    Some(match name {
        "_rebuild_tensor" | "_rebuild_tensor_v2" => Rebuild::View,
        "_rebuild_tensor_v3" => Rebuild::ViewOfBytes,
        "_rebuild_parameter" | "_rebuild_parameter_with_state" | "_rebuild_device_tensor_from_cpu_tensor" => {
            Rebuild::Wrapped
        }
        "_rebuild_from_type" | "_rebuild_from_type_v2" => Rebuild::FromType,
        _ => return None,
    })
}

/// Why a name is refused.
fn refusal(module: &str, name: &str) -> String {
    let what = match (module, name) {
        ("torch._utils", "_rebuild_qtensor") => "a quantised tensor",
        ("torch._utils", "_rebuild_sparse_tensor" | "_rebuild_sparse_csr_tensor") => "a sparse tensor",
        ("torch._utils", "_rebuild_nested_tensor") => "a nested tensor",
        ("torch._utils", "_rebuild_meta_tensor_no_storage") => "a tensor without data (device `meta`)",
        ("torch._utils", "_rebuild_wrapper_subclass") => "a tensor of a class of its own",
        ("numpy.core.multiarray" | "numpy._core.multiarray", _) | ("numpy", "ndarray") => "a numpy array",
        _ => {
            return format!(
                "expected tensors in plain containers (dict, list, tuple), found `{module}.{name}`: nothing of it was \
                 executed; save the tensors alone"
            );
        }
    };
    format!("expected dense tensors, found {what} (`{module}.{name}`)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_the_list_are_refused_by_name() {
        for (module, name) in [
            ("os", "system"),
            ("posix", "system"),
            ("__builtin__", "eval"),
            ("builtins", "getattr"),
            ("torch", "load"),
            ("torch.hub", "load"),
            ("torch.storage", "_load_from_bytes"),
            ("torch_npu.evil", "run"),
            ("numpy", "load"),
            ("numpy.testing._private.utils", "runstring"),
            ("collections", "namedtuple"),
            ("", ""),
        ] {
            let reason = lookup(module, name).unwrap_err();
            assert!(reason.contains(&format!("`{module}.{name}`")), "{reason}");
        }
    }

    #[test]
    fn dtypes_are_known_by_torchs_names_alone() {
        assert_eq!(lookup("torch", "float32"), Ok(Global::DType(Element::Known(DType::F32))));
        assert_eq!(lookup("torch", "float4_e2m1fn_x2"), Ok(Global::DType(Element::Packed)));
        assert_eq!(lookup("torch", "complex128"), Ok(Global::DType(Element::Complex128)));
        assert_eq!(lookup("torch", "uint3"), Ok(Global::DType(Element::Packed)));
        assert_eq!(lookup("torch", "qint8"), Ok(Global::DType(Element::Quantised)));
        assert!(lookup("torch", "F32").is_err());
        assert!(lookup("torch", "half").is_err());
    }
}
