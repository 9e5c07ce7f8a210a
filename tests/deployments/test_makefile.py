"""What `make` hands to the command."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", ["dumps/*.parquet", "/a b/*.parquet", "it's $HOME; x", '"a"'])
def test_a_path_stays_one_path_whatever_is_in_it(tmp_path, path):
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "datamask"
    command.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    command.chmod(0o755)
    (tmp_path / ".core").touch()
    asked = [f"VENV={tmp_path}", f"INPUT={path.replace('$', '$$')}", f"OUT={path.replace('$', '$$')}", "ARGS=--json"]
    done = subprocess.run(["make", "-s", "curate", *asked], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == repr(["curate", "--input", path, "--output", path, "--json"]), done.stderr


def test_an_environment_whose_making_was_interrupted_is_made_whole(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)  # pip comes last
    (python := tmp_path / "python3").write_text('#!/bin/sh\ntest "$1" = -c || { echo "asked: $*"; exit 1; }\n')
    python.chmod(0o755)
    asked = ["make", f"{tmp_path}/.core", f"VENV={tmp_path}", f"PYTHON={python}"]
    assert f"asked: -m venv {tmp_path}" in subprocess.run(asked, cwd=ROOT, capture_output=True, text=True).stdout
