"""What makes two runs comparable or not: versions, devices, and the switches that change numerics.

Every probe stands alone: what a build of torch does not have is left out, and a probe that fails never fails the
run. Nothing is set, and no device is initialised that the program has not.
"""

import os
import platform
import sys
from typing import Any, Callable, Dict, Optional

import torch

# Environment variables that change what is computed.
VARIABLES = (
    "ASCEND_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING", "HCCL_DETERMINISTIC",
    "INF_NAN_MODE_ENABLE", "INF_NAN_MODE_FORCE_DISABLE", "LCCL_DETERMINISTIC", "MKL_CBWR", "MKL_NUM_THREADS",
    "NCCL_ALGO", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_CUDNN_V8_API_DISABLED",
)  # fmt: skip


def environment(device: Optional[str] = None) -> Dict[str, Any]:
    """`device`, `framework`, versions, and `flags`."""
    found: Dict[str, Any] = {"device": device or default_device(), "framework": "torch %s" % torch.__version__}
    found["python"] = platform.python_version()
    found["platform"] = "%s %s" % (platform.system(), platform.machine())
    _put(found, "threads", torch.get_num_threads)
    _put(found, "cpu_capability", lambda: torch.backends.cpu.get_cpu_capability())
    _put(found, "mkldnn", torch.backends.mkldnn.is_available)
    if found["device"] == "cuda":
        _put(found, "cuda", lambda: torch.version.cuda)
        _put(found, "hip", lambda: getattr(torch.version, "hip", None))
        _put(found, "cudnn", torch.backends.cudnn.version)
        _put(found, "name", torch.cuda.get_device_name)
        _put(found, "capability", lambda: "%d.%d" % torch.cuda.get_device_capability())
        _put(found, "driver", lambda: nvidia_driver())
    if found["device"] == "npu":
        _put_npu(found)
    found["flags"] = flags(found["device"])
    return found


def default_device() -> str:
    """The accelerator that is in use, else `cpu`."""
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_available() and cuda.is_initialized():
        return "cuda"
    npu = getattr(torch, "npu", None)
    if npu is not None and npu.is_available():
        return "npu"
    return "cpu"


def flags(device: str) -> Dict[str, Any]:
    """Switches that change numerics, by name; environment variables that are set."""
    found: Dict[str, Any] = {}
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    _put(found, "allow_tf32", lambda: matmul.allow_tf32)
    _put(found, "cudnn_allow_tf32", lambda: cudnn.allow_tf32)
    _put(found, "fp16_reduced_precision_reduction", lambda: matmul.allow_fp16_reduced_precision_reduction)
    _put(found, "bf16_reduced_precision_reduction", lambda: matmul.allow_bf16_reduced_precision_reduction)
    _put(found, "float32_matmul_precision", torch.get_float32_matmul_precision)
    _put(found, "deterministic_algorithms", torch.are_deterministic_algorithms_enabled)
    _put(found, "cudnn_deterministic", lambda: cudnn.deterministic)
    _put(found, "cudnn_benchmark", lambda: cudnn.benchmark)
    _put(found, "default_dtype", lambda: str(torch.get_default_dtype()).rpartition(".")[2])
    _put(found, "flush_denormal", flushes_denormals)
    if device == "cuda":
        for kind in ("flash", "mem_efficient", "math", "cudnn"):
            _put(found, "sdp_" + kind, getattr(torch.backends.cuda, "%s_sdp_enabled" % kind, lambda: None))
    if device == "npu":
        npu: Any = getattr(torch, "npu", None)
        _put(found, "allow_hf32_matmul", lambda: npu.matmul.allow_hf32)
        _put(found, "allow_hf32_conv", lambda: npu.conv.allow_hf32)
        _put(found, "jit_compile", lambda: not npu.is_jit_compile_false())
        _put(found, "allow_internal_format", lambda: npu.config.allow_internal_format)
        _put(found, "inf_nan_mode", lambda: npu.utils.is_support_inf_nan())
    for name in VARIABLES:
        if name in os.environ:
            found["env." + name] = os.environ[name]
    return found


def flushes_denormals() -> bool:
    """Whether the CPU takes subnormal numbers for zero."""
    return float(torch.tensor(2.0**-149) * 1.0) == 0.0


def precision_of(model: Any) -> Dict[str, Any]:
    """`compute` and `autocast` at this moment: autocast's dtype, else that of most parameters."""
    for kind in ("cuda", "npu", "xpu", "cpu"):
        try:
            if torch.is_autocast_enabled(kind):
                return {"compute": _name(torch.get_autocast_dtype(kind)), "autocast": True}
        except (RuntimeError, TypeError, AttributeError):
            continue
    sizes: Dict[str, int] = {}
    roots = list(model.values()) if isinstance(model, dict) else [model] if model is not None else []
    for root in roots:
        for parameter in root.parameters():
            if parameter.is_floating_point():
                name = _name(parameter.dtype)
                sizes[name] = sizes.get(name, 0) + parameter.numel()
    compute = max(sizes, key=lambda name: sizes[name]) if sizes else _name(torch.get_default_dtype())
    return {"compute": compute, "autocast": False}


def ranks() -> Dict[str, int]:
    """`rank` and `world_size` of a distributed run; empty without one."""
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        try:
            return {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        except ValueError:
            return {}
    return {}


def nvidia_driver() -> Optional[str]:
    """The version that the kernel module states."""
    with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
        words = file.readline().split()
    return next((word for word in words if word.count(".") >= 1 and word[0].isdigit()), None)


def _put_npu(found: Dict[str, Any]) -> None:
    npu: Any = getattr(torch, "npu", None)
    _put(found, "torch_npu", lambda: sys.modules["torch_npu"].__version__)
    _put(found, "name", lambda: npu.get_device_name())
    _put(found, "soc", lambda: npu.utils.get_soc_version())
    _put(found, "cann", lambda: _version_file("ASCEND_TOOLKIT_HOME", "version.cfg", "ascend_toolkit_install.info"))
    _put(found, "driver", lambda: _version_file("ASCEND_DRIVER_PATH", "version.info"))


def _version_file(variable: str, *names: str) -> Optional[str]:
    root = os.environ.get(variable, "/usr/local/Ascend/driver" if "DRIVER" in variable else "")
    for name in names:
        path = os.path.join(root, name)
        if root and os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file if "ersion" in line]
            if lines:
                return lines[0].partition("=")[2].strip() or lines[0]
    return None


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def _put(found: Dict[str, Any], key: str, probe: Callable[[], Any]) -> None:
    try:
        value = probe()
    except Exception:  # noqa: BLE001 - whatever a build lacks, the run goes on
        return
    if value is None:
        return
    found[key] = value if isinstance(value, (bool, int, float, str)) else str(value)
