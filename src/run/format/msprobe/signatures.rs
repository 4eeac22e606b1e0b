//! The one table of API signatures: how an API names its arguments, in order, with their defaults.
//!
//! msprobe records positional arguments without names. In goes an API as a dump spells it, out comes its
//! [`Signature`]: the function that replay knows it by, and its parameters under the names of that function's
//! schema. Names and defaults follow the public documentation of PyTorch, torch_npu and MindSpore. An API that
//! is not here keeps its tensors, without names and attributes.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

/// A parameter of an API.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parameter {
    /// Its name in the schema of the function.
    pub(super) name: &'static str,
    /// The name under which a caller may give it, where that differs.
    pub(super) keyword: Option<&'static str>,
    /// What it is where it was not given; `None` where it must be.
    pub(super) default: Option<Value>,
    /// Takes all positional arguments that are left (`view(*size)`).
    pub(super) takes_rest: bool,
    /// Must be a tensor, which tells two forms of one API apart (`max(self, other)`, `max(self, dim)`).
    pub(super) is_tensor: bool,
    /// Can be given by name alone.
    pub(super) by_name: bool,
}

/// How an API is called.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Signature {
    /// The function as schemas name it.
    pub(super) function: &'static str,
    pub(super) parameters: Vec<Parameter>,
}

/// Whose APIs a dump holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Dialect {
    /// PyTorch's, and MindSpore's `mint`, which has the same.
    Torch,
    /// MindSpore's `ops`, `nn` and primitives.
    MindSpore,
}

/// Names of one function, alone or with their family (`Tensor.softmax`), then `function(parameters)`: `name`,
/// `name=default`, `name/keyword`, `*name` for the rest, `@name` for what must be a tensor, `!name`
/// for what must be given by name. An API with several
/// forms stands in several rows; the first into which a call fits is meant.
type Row = (&'static str, &'static str);

/// PyTorch and torch_npu.
const TORCH: &[Row] = &[
    // Sums of products.
    ("linear", "linear(input, weight, bias=null)"),
    ("matmul __matmul__ __imatmul__", "matmul(self, other)"),
    ("__rmatmul__", "matmul(other, self)"),
    ("mm", "mm(self, mat2)"),
    ("bmm", "bmm(self, mat2)"),
    ("mv", "mv(self, vec)"),
    ("dot vdot", "dot(self, other/tensor)"),
    ("outer ger", "outer(self, vec2)"),
    ("addmm", "addmm(self, mat1, mat2, beta=1, alpha=1)"),
    ("addmv", "addmv(self, mat, vec, beta=1, alpha=1)"),
    ("addr", "addr(self, vec1, vec2, beta=1, alpha=1)"),
    ("baddbmm", "baddbmm(self, batch1, batch2, beta=1, alpha=1)"),
    ("addbmm", "addbmm(self, batch1, batch2, beta=1, alpha=1)"),
    ("einsum", "einsum(equation, *tensors/operands)"),
    ("conv1d", "conv1d(input, weight, bias=null, stride=1, padding=0, dilation=1, groups=1)"),
    ("conv2d", "conv2d(input, weight, bias=null, stride=1, padding=0, dilation=1, groups=1)"),
    ("conv3d", "conv3d(input, weight, bias=null, stride=1, padding=0, dilation=1, groups=1)"),
    (
        "scaled_dot_product_attention",
        "scaled_dot_product_attention(query, key, value, attn_mask=null, dropout_p=0.0, is_causal=false, scale=null, enable_gqa=false)",
    ),
    (
        "npu_fusion_attention",
        "npu_fusion_attention(query, key, value, head_num, input_layout, pse=null, padding_mask=null, atten_mask=null, scale=1.0, keep_prob=1.0, pre_tockens=2147483647, next_tockens=2147483647, inner_precise=0, prefix=null, actual_seq_qlen=null, actual_seq_kvlen=null, sparse_mode=0, gen_mask_parallel=true, sync=false)",
    ),
    ("npu_linear", "npu_linear(input, weight, bias=null)"),
    // Norms and softmax.
    ("layer_norm", "layer_norm(input, normalized_shape, weight=null, bias=null, eps=1e-05)"),
    ("npu_layer_norm_eval", "npu_layer_norm_eval(input, normalized_shape, weight=null, bias=null, eps=1e-05)"),
    ("rms_norm", "rms_norm(input, normalized_shape, weight=null, eps=null)"),
    ("npu_rms_norm", "npu_rms_norm(self, gamma, epsilon=1e-06)"),
    ("npu_add_rms_norm", "npu_add_rms_norm(x1, x2, gamma, epsilon=1e-06)"),
    ("group_norm", "group_norm(input, num_groups, weight=null, bias=null, eps=1e-05)"),
    (
        "batch_norm",
        "batch_norm(input, running_mean, running_var, weight=null, bias=null, training=false, momentum=0.1, eps=1e-05)",
    ),
    (
        "instance_norm",
        "instance_norm(input, running_mean=null, running_var=null, weight=null, bias=null, use_input_stats=true, momentum=0.1, eps=1e-05)",
    ),
    ("softmax", "softmax(self/input, dim=null, _stacklevel=3, dtype=null)"),
    ("Tensor.softmax Torch.softmax Mint.softmax", "softmax(self/input, dim, dtype=null)"),
    ("Tensor.log_softmax Torch.log_softmax Mint.log_softmax", "log_softmax(self/input, dim, dtype=null)"),
    ("softmin", "softmin(self/input, dim=null, _stacklevel=3, dtype=null)"),
    ("log_softmax", "log_softmax(self/input, dim=null, _stacklevel=3, dtype=null)"),
    ("_softmax", "_softmax(self, dim, half_to_float)"),
    ("_log_softmax", "_log_softmax(self, dim, half_to_float)"),
    ("logsumexp", "logsumexp(self/input, dim, keepdim=false)"),
    // Activations.
    ("gelu", "gelu(self/input, approximate='none')"),
    ("npu_gelu", "gelu(self, approximate='none')"),
    ("fast_gelu npu_fast_gelu", "fast_gelu(self)"),
    ("silu", "silu(self/input, inplace=false)"),
    ("relu", "relu(self/input, inplace=false)"),
    ("relu6", "relu6(self/input, inplace=false)"),
    ("leaky_relu", "leaky_relu(self/input, negative_slope=0.01, inplace=false)"),
    ("elu", "elu(self/input, alpha=1.0, inplace=false)"),
    ("hardswish", "hardswish(self/input, inplace=false)"),
    ("hardsigmoid", "hardsigmoid(self/input, inplace=false)"),
    ("mish", "mish(self/input, inplace=false)"),
    ("hardtanh", "hardtanh(self/input, min_val=-1.0, max_val=1.0, inplace=false)"),
    ("softplus", "softplus(self/input, beta=1.0, threshold=20.0)"),
    ("sigmoid", "sigmoid(self/input)"),
    ("logsigmoid", "log_sigmoid(self/input)"),
    ("tanh", "tanh(self/input)"),
    ("glu", "glu(self/input, dim=-1)"),
    ("npu_swiglu", "npu_swiglu(self, dim=-1)"),
    ("npu_rotary_mul", "npu_rotary_mul(input, r1, r2, rotary_mode='half')"),
    ("dropout", "dropout(input, p=0.5, training=true, inplace=false)"),
    // Arithmetic.
    ("add __add__ __iadd__", "add(self/input, other, alpha=1)"),
    ("__radd__", "add(self, other, alpha=1)"),
    ("sub subtract __sub__ __isub__", "sub(self/input, other, alpha=1)"),
    ("rsub __rsub__", "rsub(self, other, alpha=1)"),
    ("mul multiply __mul__ __imul__ __rmul__", "mul(self/input, other)"),
    ("div divide true_divide __truediv__ __div__ __itruediv__ __idiv__", "div(self/input, other, rounding_mode=null)"),
    ("__rtruediv__ __rdiv__", "div(other, self, rounding_mode=null)"),
    ("floor_divide __floordiv__", "floor_divide(self/input, other)"),
    ("remainder __mod__", "remainder(self/input, other)"),
    ("fmod", "fmod(self/input, other)"),
    ("pow __pow__ __ipow__", "pow(self/input, exponent)"),
    ("__rpow__", "pow(exponent, self)"),
    ("maximum", "maximum(self/input, other)"),
    ("minimum", "minimum(self/input, other)"),
    ("addcmul", "addcmul(self, tensor1, tensor2, value=1)"),
    ("addcdiv", "addcdiv(self, tensor1, tensor2, value=1)"),
    ("lerp", "lerp(self, end, weight)"),
    ("clamp clip", "clamp(self/input, min=null, max=null)"),
    ("clamp_min", "clamp_min(self, min)"),
    ("clamp_max", "clamp_max(self, max)"),
    ("round", "round(self/input, decimals=0)"),
    ("nan_to_num", "nan_to_num(self/input, nan=null, posinf=null, neginf=null)"),
    ("exp", "exp(self/input)"),
    ("exp2", "exp2(self/input)"),
    ("expm1", "expm1(self/input)"),
    ("log", "log(self/input)"),
    ("log2", "log2(self/input)"),
    ("log10", "log10(self/input)"),
    ("log1p", "log1p(self/input)"),
    ("sin", "sin(self/input)"),
    ("cos", "cos(self/input)"),
    ("tan", "tan(self/input)"),
    ("asin", "asin(self/input)"),
    ("acos", "acos(self/input)"),
    ("atan", "atan(self/input)"),
    ("sinh", "sinh(self/input)"),
    ("cosh", "cosh(self/input)"),
    ("erf", "erf(self/input)"),
    ("sqrt", "sqrt(self/input)"),
    ("rsqrt", "rsqrt(self/input)"),
    ("square", "square(self/input)"),
    ("reciprocal", "reciprocal(self/input)"),
    ("neg negative __neg__", "neg(self/input)"),
    ("abs absolute __abs__", "abs(self/input)"),
    ("sign", "sign(self/input)"),
    ("floor", "floor(self/input)"),
    ("ceil", "ceil(self/input)"),
    ("trunc", "trunc(self/input)"),
    // Comparisons and logic.
    ("eq __eq__", "eq(self/input, other)"),
    ("ne not_equal __ne__", "ne(self/input, other)"),
    ("lt less __lt__", "lt(self/input, other)"),
    ("le less_equal __le__", "le(self/input, other)"),
    ("gt greater __gt__", "gt(self/input, other)"),
    ("ge greater_equal __ge__", "ge(self/input, other)"),
    ("logical_and", "logical_and(self/input, other)"),
    ("logical_or", "logical_or(self/input, other)"),
    ("logical_xor", "logical_xor(self/input, other)"),
    ("logical_not", "logical_not(self/input)"),
    ("bitwise_and __and__ __iand__ __rand__", "bitwise_and(self/input, other)"),
    ("bitwise_or __or__ __ior__ __ror__", "bitwise_or(self/input, other)"),
    ("bitwise_xor __xor__ __ixor__ __rxor__", "bitwise_xor(self/input, other)"),
    ("bitwise_not __invert__", "bitwise_not(self/input)"),
    ("isnan", "isnan(self/input)"),
    ("isinf", "isinf(self/input)"),
    ("isfinite", "isfinite(self/input)"),
    ("all", "all(self/input, dim=null, keepdim=false)"),
    ("any", "any(self/input, dim=null, keepdim=false)"),
    // Reductions and choices.
    ("sum", "sum(self/input, dim=null, keepdim=false, dtype=null)"),
    ("mean", "mean(self/input, dim=null, keepdim=false, dtype=null)"),
    ("prod", "prod(self/input, dim=null, keepdim=false, dtype=null)"),
    ("amax", "amax(self/input, dim=null, keepdim=false)"),
    ("amin", "amin(self/input, dim=null, keepdim=false)"),
    ("max", "max(self/input, @other)"),
    ("max", "max(self/input, dim, keepdim=false)"),
    ("max", "max(self/input)"),
    ("min", "min(self/input, @other)"),
    ("min", "min(self/input, dim, keepdim=false)"),
    ("min", "min(self/input)"),
    ("argmax", "argmax(self/input, dim=null, keepdim=false)"),
    ("argmin", "argmin(self/input, dim=null, keepdim=false)"),
    ("cumsum", "cumsum(self/input, dim, dtype=null)"),
    ("cumprod", "cumprod(self/input, dim, dtype=null)"),
    ("topk", "topk(self/input, k, dim=-1, largest=true, sorted=true)"),
    ("sort", "sort(self/input, dim=-1, descending=false, stable=false)"),
    ("argsort", "argsort(self/input, dim=-1, descending=false, stable=false)"),
    // Losses.
    (
        "cross_entropy",
        "cross_entropy(self/input, target, weight=null, size_average=null, ignore_index=-100, reduce=null, reduction='mean', label_smoothing=0.0)",
    ),
    (
        "nll_loss",
        "nll_loss(self/input, target, weight=null, size_average=null, ignore_index=-100, reduce=null, reduction='mean')",
    ),
    ("mse_loss", "mse_loss(self/input, target, size_average=null, reduce=null, reduction='mean')"),
    ("l1_loss", "l1_loss(self/input, target, size_average=null, reduce=null, reduction='mean')"),
    (
        "smooth_l1_loss",
        "smooth_l1_loss(self/input, target, size_average=null, reduce=null, reduction='mean', beta=1.0)",
    ),
    ("huber_loss", "huber_loss(self/input, target, reduction='mean', delta=1.0)"),
    (
        "binary_cross_entropy_with_logits",
        "binary_cross_entropy_with_logits(self/input, target, weight=null, size_average=null, reduce=null, reduction='mean', pos_weight=null)",
    ),
    ("kl_div", "kl_div(self/input, target, size_average=null, reduce=null, reduction='mean', log_target=false)"),
    // Moving elements.
    ("view", "view(self, *size)"),
    ("reshape", "reshape(self/input, *shape)"),
    ("view_as", "view_as(self, other)"),
    ("flatten", "flatten(self/input, start_dim=0, end_dim=-1)"),
    ("unflatten", "unflatten(self/input, dim, sizes)"),
    ("squeeze", "squeeze(self/input, dim=null)"),
    ("unsqueeze", "unsqueeze(self/input, dim)"),
    ("transpose swapaxes swapdims", "transpose(self/input, dim0, dim1)"),
    ("permute", "permute(self/input, *dims)"),
    ("t", "t(self/input)"),
    ("movedim moveaxis", "movedim(self/input, source, destination)"),
    ("expand", "expand(self, *size)"),
    ("expand_as", "expand_as(self, other)"),
    ("broadcast_to", "broadcast_to(self/input, size)"),
    ("repeat", "repeat(self, *repeats)"),
    ("tile", "tile(self/input, *dims)"),
    ("repeat_interleave", "repeat_interleave(self/input, repeats, dim=null, output_size=null)"),
    ("cat concat concatenate", "cat(tensors, dim=0)"),
    ("stack", "stack(tensors, dim=0)"),
    ("split", "split(self/tensor, split_size/split_size_or_sections, dim=0)"),
    ("chunk", "chunk(self/input, chunks, dim=0)"),
    ("unbind", "unbind(self/input, dim=0)"),
    ("narrow", "narrow(self/input, dim, start, length)"),
    ("select", "select(self/input, dim, index)"),
    ("getitem __getitem__", "getitem(self, index)"),
    ("diagonal", "diagonal(self/input, offset=0, dim1=0, dim2=1)"),
    ("tril", "tril(self/input, diagonal=0)"),
    ("triu", "triu(self/input, diagonal=0)"),
    ("flip", "flip(self/input, *dims)"),
    ("roll", "roll(self/input, shifts, dims=null)"),
    ("pad", "pad(self/input, pad, mode='constant', value=null)"),
    ("gather", "gather(self/input, dim, index, sparse_grad=false)"),
    ("take_along_dim", "take_along_dim(self/input, indices, dim=null)"),
    ("index_select", "index_select(self/input, dim, index)"),
    ("scatter", "scatter(self/input, dim, index, src, reduce=null)"),
    ("scatter_add", "scatter_add(self/input, dim, index, src)"),
    ("index_add", "index_add(self/input, dim, index, source, alpha=1)"),
    (
        "embedding",
        "embedding(indices/input, weight, padding_idx=null, max_norm=null, norm_type=2.0, scale_grad_by_freq=false, sparse=false)",
    ),
    ("one_hot", "one_hot(self/input, num_classes=-1)"),
    ("where", "where(condition, self/input, other)"),
    ("masked_fill", "masked_fill(self/input, mask, value)"),
    ("masked_select", "masked_select(self/input, mask)"),
    ("masked_scatter", "masked_scatter(self, mask, source)"),
    ("clone", "clone(self/input, memory_format=null)"),
    ("contiguous", "contiguous(self, memory_format=null)"),
    ("detach", "detach(self)"),
    ("copy", "copy(self, src, non_blocking=false)"),
    ("to", "to(self, *target)"),
    ("type", "to(self, dtype=null, non_blocking=false)"),
    ("type_as", "to(self, other)"),
    ("float", "float(self, memory_format=null)"),
    ("half", "half(self, memory_format=null)"),
    ("bfloat16", "bfloat16(self, memory_format=null)"),
    ("double", "double(self, memory_format=null)"),
    ("int", "int(self, memory_format=null)"),
    ("long", "long(self, memory_format=null)"),
    ("bool", "bool(self, memory_format=null)"),
    ("npu_format_cast", "npu_format_cast(self, acl_format)"),
    ("npu_dtype_cast", "npu_dtype_cast(self, dtype)"),
    // Tensors from arguments alone.
    ("zeros", "zeros(*size, dtype=null)"),
    ("ones", "ones(*size, dtype=null)"),
    ("full", "full(size, fill_value, dtype=null)"),
    ("zeros_like", "zeros_like(self/input, dtype=null)"),
    ("ones_like", "ones_like(self/input, dtype=null)"),
    ("full_like", "full_like(self/input, fill_value, dtype=null)"),
    ("new_zeros", "new_zeros(self, *size, dtype=null)"),
    ("new_ones", "new_ones(self, *size, dtype=null)"),
    ("fill", "fill(self/input, value)"),
    ("zero", "zero(self)"),
    ("arange", "arange(end, !dtype=null)"),
    ("arange", "arange(start, end, step=1, !dtype=null)"),
    ("eye", "eye(n, m=null, dtype=null)"),
    ("linspace", "linspace(start, end, steps, dtype=null)"),
    // Pooling and interpolation.
    ("adaptive_avg_pool1d", "adaptive_avg_pool1d(self/input, output_size)"),
    ("adaptive_avg_pool2d", "adaptive_avg_pool2d(self/input, output_size)"),
    (
        "avg_pool1d",
        "avg_pool1d(self/input, kernel_size, stride=null, padding=0, ceil_mode=false, count_include_pad=true)",
    ),
    (
        "avg_pool2d",
        "avg_pool2d(self/input, kernel_size, stride=null, padding=0, ceil_mode=false, count_include_pad=true, divisor_override=null)",
    ),
    (
        "max_pool2d",
        "max_pool2d(self/input, kernel_size, stride=null, padding=0, dilation=1, ceil_mode=false, return_indices=false)",
    ),
    (
        "interpolate",
        "interpolate(self/input, size=null, scale_factor=null, mode='nearest', align_corners=null, recompute_scale_factor=null, antialias=false)",
    ),
    ("pixel_shuffle", "pixel_shuffle(self/input, upscale_factor)"),
];

/// MindSpore, where it differs: `ops`, `Tensor` methods and primitives. Parameters of a primitive's constructor
/// are not recorded, so that only primitives without any stand here.
const MINDSPORE: &[Row] = &[
    ("matmul __matmul__", "matmul(self/input, other)"),
    ("bmm batchmatmul", "bmm(self/input_x, mat2)"),
    ("softmax", "softmax(self/input, dim/axis=-1, dtype=null)"),
    ("log_softmax", "log_softmax(self/logits, dim/axis=-1)"),
    ("layer_norm", "layer_norm(input, normalized_shape, weight=null, bias=null, eps=1e-05)"),
    ("rms_norm", "npu_rms_norm(self/x, gamma, epsilon=1e-06)"),
    ("gelu", "gelu(self/input, approximate='none')"),
    ("silu swish", "silu(self/input)"),
    ("relu", "relu(self/input)"),
    ("sigmoid", "sigmoid(self/input)"),
    ("tanh", "tanh(self/input)"),
    ("add __add__ tensor_add tensoradd", "add(self/input, other)"),
    ("sub __sub__", "sub(self/input, other)"),
    ("mul __mul__", "mul(self/input, other)"),
    ("div __truediv__ realdiv", "div(self/input, other)"),
    ("pow __pow__", "pow(self/input, exponent)"),
    ("exp", "exp(self/input)"),
    ("log", "log(self/input)"),
    ("sqrt", "sqrt(self/x)"),
    ("rsqrt", "rsqrt(self/input)"),
    ("square", "square(self/input)"),
    ("neg", "neg(self/input)"),
    ("abs", "abs(self/input)"),
    ("maximum", "maximum(self/input, other)"),
    ("minimum", "minimum(self/input, other)"),
    ("reshape", "reshape(self/input, *shape)"),
    ("transpose permute", "permute(self/input, *dims/input_perm)"),
    ("cast astype", "to(self/input, dtype)"),
    ("expand_dims", "unsqueeze(self/input_x, dim/axis)"),
    ("mean", "mean(self/x, dim/axis=null, keepdim/keep_dims=false)"),
    ("sum", "sum(self/input, dim=null, keepdim=false, dtype=null)"),
    ("select", "where(condition, self/input, other)"),
    ("masked_fill", "masked_fill(self/input_x, mask, value)"),
];

/// Forms by spelling.
type Table = HashMap<&'static str, Vec<Signature>>;

static SIGNATURES: LazyLock<[Table; 2]> = LazyLock::new(|| {
    [TORCH, MINDSPORE].map(|rows| {
        let mut table = Table::new();
        for (names, text) in rows {
            for name in names.split(' ') {
                table.entry(name).or_default().push(read(text));
            }
        }
        table
    })
});

/// How the API of a family is called, in each of its forms; `name` may be an in-place form.
pub(super) fn signatures(dialect: Dialect, family: &str, name: &str) -> &'static [Signature] {
    let name = if name.ends_with("__") { name } else { name.trim_end_matches('_') };
    let full = format!("{family}.{name}");
    let lower = name.to_ascii_lowercase();
    let [torch, mindspore] = &*SIGNATURES;
    let table = if dialect == Dialect::Torch { torch } else { mindspore };
    let found = [full.as_str(), name, lower.as_str()].iter().find_map(|name| table.get::<str>(name));
    found.map_or(&[], Vec::as_slice)
}

/// Reads a row of the table, which the tests hold to its form.
fn read(text: &'static str) -> Signature {
    let (function, rest) = text.split_once('(').unwrap_or((text, ""));
    let parameters = rest.trim_end_matches(')').split(", ").filter(|part| !part.is_empty());
    Signature { function, parameters: parameters.map(parameter).collect() }
}

fn parameter(text: &'static str) -> Parameter {
    let (name, default) = match text.split_once('=') {
        Some((name, default)) => (name, Some(default)),
        None => (text, None),
    };
    let (name, takes_rest) = name.strip_prefix('*').map_or((name, false), |name| (name, true));
    let (name, by_name) = name.strip_prefix('!').map_or((name, false), |name| (name, true));
    let (name, is_tensor) = name.strip_prefix('@').map_or((name, false), |name| (name, true));
    let (name, keyword) = match name.split_once('/') {
        Some((name, keyword)) => (name, Some(keyword)),
        None => (name, None),
    };
    let value = |text: &str| match text.strip_prefix('\'') {
        Some(text) => Value::from(text.trim_end_matches('\'')),
        None => serde_json::from_str(text).unwrap_or(Value::Null),
    };
    Parameter { name, keyword, default: default.map(value), takes_rest, is_tensor, by_name }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::op::Op;

    #[test]
    fn every_row_has_its_form_and_every_function_a_place_in_the_registry() {
        for (names, text) in TORCH.iter().chain(MINDSPORE) {
            assert!(text.ends_with(')') && text.contains('('), "{text}");
            let signature = read(text);
            for parameter in &signature.parameters {
                let plain =
                    |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                assert!(plain(parameter.name) && parameter.keyword.is_none_or(plain), "{text}: {parameter:?}");
            }
            for default in text.split('=').skip(1) {
                let default = default.split([',', ')']).next().unwrap();
                assert!(
                    default.starts_with('\'') || serde_json::from_str::<Value>(default).is_ok(),
                    "{text}: {default}"
                );
            }
            assert!(names.split(' ').all(|name| !name.is_empty()), "{names}");
            assert_ne!(Op::named(signature.function), Op::UNKNOWN, "{}", signature.function);
        }
        for (name, forms) in SIGNATURES.iter().flatten().filter(|(_, forms)| forms.len() > 1) {
            assert!(["max", "min", "arange"].contains(name), "{name} stands in several rows: {forms:?}");
        }
    }

    #[test]
    fn spellings_meet_in_one_function() {
        let function = |name| signatures(Dialect::Torch, "Tensor", name).first().map(|found| found.function);
        assert_eq!(function("__truediv__"), Some("div"));
        assert_eq!(function("masked_fill_"), Some("masked_fill"));
        assert_eq!(function("unheard_of"), None);
        let signature = |family, name| &signatures(Dialect::Torch, family, name)[0];
        assert_eq!(signature("Tensor", "softmax").parameters.len(), 3);
        let softmax = signature("Functional", "softmax");
        let first = &softmax.parameters[0];
        assert_eq!((first.name, first.keyword, &first.default), ("self", Some("input"), &None));
        assert_eq!(softmax.parameters[3].default, Some(Value::Null));
        let gelu = signature("Functional", "gelu");
        assert_eq!(gelu.parameters[1].default, Some(json!("none")));
        assert!(signature("Torch", "reshape").parameters[1].takes_rest);
        assert_eq!(signatures(Dialect::MindSpore, "Primitive", "BatchMatMul")[0].function, "bmm");
    }
}
