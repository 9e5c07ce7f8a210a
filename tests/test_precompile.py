"""What is compiled when datamask is installed is all that the default pipeline calls."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from datamask import compiling
from tests.flows.conftest import write_shard

CODE = """
import importlib
import pkgutil
import datamask
from datamask.precompile import precompile
# called by others and compiled with them
INNER = '''
    empty_set set_of slot_of hashed pair_slot mix_hash mix_bits finish_hash counted code_point
    series row_gain move_row allowed book_row rolled repeated read_text
    count_among without pair_lift likely at_home count_kinds hash_windows
    held_by_both missing_runs formula_end own_maximum row_price _within likeness_doubled read_letters dashed
    is_letter
    is_character measured folded of_most_frequent of_repeats place_in_word shape_of bend_of factor_left mix_letter _ones
    beyond link_at
'''.split()
precompile()
for found in pkgutil.walk_packages(datamask.__path__, "datamask."):
    if "@compiled\\n" not in importlib.util.find_spec(found.name).loader.get_source(found.name):
        continue
    print(found.name)
    for name, loop in vars(importlib.import_module(found.name)).items():
        if hasattr(loop, "signatures") and not loop.signatures and name not in INNER:
            print("not compiled:", name)
"""


@pytest.mark.slow  # where nothing is compiled yet
def test_every_loop_is_compiled() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "datamask.selection.cover.compiled\n" in done.stdout
    assert "not compiled" not in done.stdout, done.stdout


@pytest.mark.slow
def test_a_first_run_compiles_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "numba"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, "-m", "datamask.precompile"], env=environment, check=True, cwd=tmp_path)
    made = {path: path.read_bytes() for path in cache.rglob("*.nbi")}
    write_shard(tmp_path / "few", 0, count=90)  # of few documents numbers are computed in float64
    for out, corpus in ("sample", ["--sample"]), ("of few", ["--input", "few"]):
        command = ["-m", "datamask", "curate", "--plain", *corpus, "--output", out]
        subprocess.run([sys.executable, *command], env=environment, check=True, cwd=tmp_path)
    compiled = [path.name for path in cache.rglob("*.nbi") if made.get(path) != path.read_bytes()]
    assert len(made) > 80 and not compiled


def test_threads_that_declare_loops_at_once_leave_numbas_folder_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    """Between two threads the folder was empty for a moment, and a loop's cache lay in the working directory."""
    monkeypatch.chdir(tmp_path)
    before, interval = compiling._CONFIG.CACHE_DIR, sys.getswitchinterval()
    threads = [
        threading.Thread(target=lambda: [compiling.compiled(compiling.blocks_of) for _ in range(40)]) for _ in "ab"
    ]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert before == compiling._CONFIG.CACHE_DIR and not [*tmp_path.iterdir()]
