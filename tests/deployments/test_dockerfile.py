"""The Dockerfile, by the linter of its kind."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_linter_finds_nothing():
    hadolint = Path(sys.executable).with_name("hadolint")
    found = str(hadolint) if hadolint.exists() else shutil.which("hadolint")
    if not found:
        pytest.skip("hadolint is not installed: pip install 'datamask[dev]'")
    done = subprocess.run([found, str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_copied_path_is_there_and_let_through():
    copied = [
        name
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ")
        for name in line.split()[1:-1]
    ]
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert copied
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in allowed, name
