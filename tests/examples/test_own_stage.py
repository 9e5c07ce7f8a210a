"""A new stage is its module, one line of `pipeline.STAGES` and one field of `ShardFiles`: CONTRIBUTING says so."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.flows.conftest import SMALL, write_shard

ROOT = Path(__file__).parents[2]
STAGE = """        Stage(
            "lines", "shard", "lines", ("convert",), settings=_READING, makes="lines", reading=1,
            run="tests.examples.lines_stage:count_lines",
        ),
"""
# The two other files of datamask, edited as their author would, in a process that imports them so.
EDITED = f"""
import importlib.util, sys
from pathlib import Path

def edit(name, before, added):
    spec = importlib.util.find_spec(name)
    source = Path(spec.origin).read_text("utf8")
    assert source.count(before) == 1, (name, before)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    exec(compile(source.replace(before, added + before), spec.origin, "exec"), module.__dict__)

edit("datamask.pipeline", '        Stage(\\n            "embed",', {STAGE!r})
edit("datamask.stages", "\\n    def joined(", "    lines: Output | None = None\\n")
from datamask.cli import main
main(sys.argv[1:])
"""


def run(inputs: Path, out: Path) -> str:
    arguments = ["curate", "--plain", "--input", str(inputs / "*"), "--output", str(out)]
    settings = [part for setting in SMALL for part in ("--set", setting)]
    command = [sys.executable, "-c", EDITED, *arguments, *settings]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_stage_of_ones_own_runs_is_kept_and_is_shown(tmp_path: Path) -> None:
    for number in range(2):
        write_shard(tmp_path / "corpus", number, count=60)
    said = run(tmp_path / "corpus", tmp_path / "out")
    assert "lines" in said.partition("seconds of work:")[2]
    made = sorted((tmp_path / "out/work/lines").glob("*.parquet"))
    assert len(made) == 2
    for file, path in zip(made, sorted((tmp_path / "corpus").glob("*")), strict=True):
        texts = pq.read_table(path)["text"].to_pylist()
        assert pq.read_table(file)["lines"].to_pylist() == [(text or "").count("\n") + 1 for text in texts]
    times = [file.stat().st_mtime_ns for file in made]
    run(tmp_path / "corpus", tmp_path / "out")
    assert [file.stat().st_mtime_ns for file in made] == times
