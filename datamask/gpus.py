"""Which of a machine's GPUs a task computes on: a lease, so that no two tasks share a device.

A lease is a locked file per device in the machine's temporary folder: it holds between threads, between the workers of
Dask and Ray, and between runs, and the kernel takes it back from a process that dies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from datamask.config import Config
from datamask.locks import locked
from datamask.surroundings import private_folder

POLL = 0.2  # seconds between looks for a free device


@contextmanager
def on_gpu(stages: Sequence[str], config: Config) -> Iterator[Config]:
    """The configuration with a GPU of its own in `encoder.device` and `select.device`, until the block ends.

    Unchanged where no stage needs one, `run.gpus` is 0, or the machine has none. A device that a setting names by
    its number, and "cpu", stay. Waits while all devices are leased.
    """
    needed = any(needs_gpu(stage, config) for stage in stages)
    devices = visible()[: config.run.gpus] if needed else []
    if not devices:
        yield config
        return
    with leased(devices) as number:
        yield placed(config, number)


def visible() -> list[str]:
    """The machine's names of the GPUs that this process sees; torch calls them cuda:0, cuda:1, …"""
    import torch

    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return [names[i] if i < len(names) else str(i) for i in range(torch.cuda.device_count())]


@contextmanager
def leased(devices: Sequence[str], folder: Path | None = None) -> Iterator[int]:
    """The position of a device that nobody else has a lease on.

    :param devices: the machine's names of the devices.
    :param folder: of the locks; by default one per user in the temporary folder.
    """
    place = folder or private_folder("gpus")
    while True:
        for number, device in enumerate(devices):
            with ExitStack() as held:
                try:
                    held.enter_context(locked(place / f"{device.replace('/', '-')}.lock", wait=False))
                except BlockingIOError:
                    continue
                yield number
                return
        time.sleep(POLL)


def placed(config: Config, number: int) -> Config:
    """The configuration with "auto" and "cuda" replaced by cuda:`number`."""
    name = f"cuda:{number}"

    def of(device: str) -> str:
        return name if device in ("auto", "cuda") else device

    encoder = config.encoder.model_copy(update={"device": of(config.encoder.device)})
    select = config.select.model_copy(update={"device": of(config.select.device)})
    return config.model_copy(update={"encoder": encoder, "select": select})


def needs_gpu(stage: str, config: Config) -> bool:
    """Whether a stage computes on a GPU when the run has some."""
    if stage == "score":
        return any(scorer.kind in ("transformer", "encoder", "prox") for scorer in config.quality.scorers)
    return stage in ("embed", "prices", "mask")
