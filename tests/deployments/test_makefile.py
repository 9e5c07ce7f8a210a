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
