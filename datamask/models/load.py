"""Models into memory: once per process, on the device and in the number format there is, with errors that help."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from datamask.errors import MissingExtraError, ModelError, causes, out_of_memory

T = TypeVar("T")


# ---------------------------------------------------------------- one model per process


class ModelCache:
    """Models by key, each loaded once however many threads ask.

    The least recently used beyond `size` for each GPU of the machine (or for the CPU) is let go.
    """

    def __init__(self, size: int = 3) -> None:
        self._size = size
        self._models: dict[Any, Any] = {}
        self._locks: dict[Any, threading.Lock] = {}
        self._guard = threading.Lock()

    def get(self, key: Any, load: Callable[[], T]) -> T:
        """The model under `key`, loaded by `load` if it is not there."""
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            with self._guard:
                if key in self._models:
                    self._models[key] = self._models.pop(key)  # now the most recently used
                    return self._models[key]
            model = load()
            with self._guard:
                self._models[key] = model
                if len(self._models) > self._size:
                    size = self._size * max(1, _gpus())
                    while len(self._models) > size:
                        self._models.pop(next(iter(self._models)))
        return model


def _gpus() -> int:
    """How many GPUs are in use: none where no module has asked for torch."""
    if "torch" not in sys.modules:
        return 0
    import torch  # another thread may be loading it: this waits until it is there

    return torch.cuda.device_count()


MODELS = ModelCache()


# ---------------------------------------------------------------- errors


@contextlib.contextmanager
def named_errors(what: str, name: str, revision: str | None = None) -> Iterator[None]:
    """Turns a library's failure to load `name` into one ModelError that says where it looked and what to do."""
    try:
        yield
    except (ModelError, MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:  # whatever a hub client, a parser or a model's own code raises
        if out_of_memory(error):
            raise
        raise ModelError(_explain(what, name, revision, error)) from error


@contextlib.contextmanager
def loading(what: str, name: str, revision: str | None = None) -> Iterator[None]:
    """`named_errors`, and the libraries' progress bars off. Loads transformers, which takes seconds."""
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with named_errors(what, name, revision):
            yield
    finally:
        if bars:
            logging.enable_progress_bar()


def _explain(what: str, name: str, revision: str | None, error: Exception) -> str:
    from transformers import __version__ as transformers_version

    text = " ".join(str(error).split())
    at = f" at revision {revision}" if revision else ""
    if "openvino backend requires" in text.lower():
        return str(MissingExtraError(f"{what} {name} with backend openvino", "openvino"))
    if "onnx backend requires" in text.lower():  # no extra: optimum-onnx 0.1 does not install beside transformers 5
        return (
            f"{what} {name}: backend onnx needs `pip install 'optimum-onnx[onnxruntime]'`; where pip finds no version "
            f"for transformers {transformers_version}, use encoder.backend=openvino or torch"
        )
    if isinstance(error, ImportError):
        return f"{what} {name} needs a package that is not installed: {text[:300]}"
    if "trust_remote_code" in text:
        return f"{what} {name} brings its own code; read it, then set encoder.trust_remote_code=true to run it"
    if Path(name).exists():
        reason = f"{type(error).__name__}: {text[:300]}"
        return f"{what} {name}: not a model folder that sentence-transformers can load ({reason})"
    if missing(error):
        from huggingface_hub.constants import HF_HUB_CACHE

        offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")
        hub = "the hub was not asked (HF_HUB_OFFLINE is set)" if offline else f"huggingface.co said: {text[:200]}"
        return (
            f"{what} {name}{at} is not there. Looked for: the folder {Path(name).absolute()}; the cache "
            f"{HF_HUB_CACHE}; {hub}. On a machine with access, run "
            f"`hf download {name} --local-dir models/{name.split('/')[-1]}`, copy the folder here, "
            f"and give its path instead of the name"
        )
    return f"{what} {name}{at} cannot be loaded ({type(error).__name__}: {text[:300]})"


def missing(error: BaseException) -> bool:
    """True when `error` or one of its causes says that a file or repository could not be had."""
    import httpx
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    of_the_hub = HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled
    kinds = *of_the_hub, httpx.HTTPError, FileNotFoundError, ConnectionError
    return any(
        isinstance(cause, kinds) or (isinstance(cause, OSError) and "huggingface" in str(cause))
        for cause in causes(error, handled=True)
    )
