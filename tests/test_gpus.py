"""Which device a task is given; no GPU is needed to find out."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from datamask import gpus
from datamask.config import Config, RunSettings


def config(gpus_=2, **sections):
    return Config(run=RunSettings(gpus=gpus_), **sections)


@pytest.fixture
def two(monkeypatch, tmp_path):
    """A machine that seems to have GPUs 4 and 7, with leases in a folder of the test."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("visible", "count", "names"),
    [("", 2, ["0", "1"]), ("4,7", 2, ["4", "7"]), ("GPU-1a,", 1, ["GPU-1a"]), ("", 0, [])],
)
def test_devices_have_the_machines_names(monkeypatch, visible, count, names):
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus.visible() == names


def test_two_tasks_at_a_time_have_a_device_each_and_a_third_waits(two):
    together, both = threading.Barrier(2, timeout=20), []
    at_once, most, lock = 0, 0, threading.Lock()

    def first(_):
        with gpus.on_gpu(["embed"], config()) as own:
            together.wait()  # both inside
            both.append((own.encoder.device, own.select.device))

    def later(_):
        nonlocal at_once, most
        with gpus.on_gpu(["embed"], config()):
            with lock:
                at_once += 1
                most = max(most, at_once)
            time.sleep(0.02)
            with lock:
                at_once -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(first, range(2)))
        assert sorted(both) == [("cuda:0", "cuda:0"), ("cuda:1", "cuda:1")]
        list(pool.map(later, range(6)))
    assert 1 <= most <= 2
    assert sorted(path.name for path in two.glob("datamask-gpus-*/*")) == ["4.lock", "7.lock"]


def test_no_more_devices_than_the_run_may_claim(two):
    with gpus.on_gpu(["embed"], config(1)) as own, gpus.leased(["4", "7"]) as other:
        assert own.encoder.device == "cuda:0"
        assert other == 1


def test_a_device_of_a_killed_process_is_free_again(two):
    code = (
        "import time; from datamask.gpus import leased\nwith leased(['4']): print('has it', flush=True); time.sleep(60)"
    )
    environment = os.environ | {"TMPDIR": str(two)}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert process.stdout.readline() == b"has it\n"
    with gpus.leased(["4", "7"]) as number:
        assert number == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    with gpus.leased(["4", "7"]) as number:
        assert number == 0


@pytest.mark.parametrize(
    ("stage", "given"), [("index", config()), ("embed", config(0)), ("score", config()), ("export", config())]
)
def test_stages_without_a_model_and_runs_without_gpus_claim_none(two, stage, given):
    with gpus.on_gpu([stage], given) as own:
        assert own is given
    assert not list(two.iterdir())


def test_a_device_that_is_named_stays(two):
    given = config(encoder={"device": "cpu"}, select={"device": "cuda:1"})
    with gpus.on_gpu(["mask"], given) as own:
        assert (own.encoder.device, own.select.device) == ("cpu", "cuda:1")
