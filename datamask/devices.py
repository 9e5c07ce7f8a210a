"""Which device computes, and in which number format: what `device` and `dtype` of the settings mean here."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from datamask.errors import ConfigError


def pick_device(name: str) -> torch.device:
    """ "auto": CUDA if there is one, else the CPU.

    :raises ConfigError: CUDA is asked for and absent, or the name is unknown.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"unknown device {name!r}; valid: auto, cpu, cuda, cuda:0, …") from error
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ConfigError(
                f"device {name} is asked for, and {count} CUDA devices are here (torch {torch.__version__}); "
                f"use device cpu, or auto"
            )
    elif device.type != "cpu":
        raise ConfigError(f"unknown device {name!r}; valid: auto, cpu, cuda, cuda:0, …")
    return device


def pick_dtype(dtype: str, device: torch.device) -> str:
    """ "auto" to the format the device computes fastest in: bfloat16 with AVX-512 BF16, AMX or a GPU that has it."""
    if dtype != "auto":
        return dtype
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    return "bfloat16" if cpu_has_bfloat16() else "float32"


def cpu_has_bfloat16() -> bool:
    """True when this processor multiplies bfloat16 matrices in hardware (elsewhere it is slower than float32)."""
    with contextlib.suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        return any(flag in flags for flag in ("avx512_bf16", "amx_bf16", " bf16 "))
    return False
