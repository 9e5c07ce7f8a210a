"""While nothing else is said, a command says what it does."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUIET = """
import time
from datamask import silence
silence.FIRST, silence.EACH = 0.2, 0.5
silence.SILENCE.begin("plan: time a sample")
time.sleep(1.2)
print("the result", flush=True)
silence.SILENCE.end()
time.sleep(1)
"""
LOUD = QUIET.replace("0.2, 0.5", "1.0, 1.0").replace(
    "time.sleep(1.2)", "[(print('.', flush=True), time.sleep(0.05)) for _ in range(40)]"
)


def run(code):
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_silent_command_says_what_it_does_and_goes_on_saying_it():
    done = run(QUIET)
    lines = done.stderr.splitlines()
    assert done.stdout == "the result\n" and 2 <= len(lines) <= 3
    assert all(line.startswith("datamask plan: time a sample … ") for line in lines)


def test_a_command_that_says_something_is_left_alone():
    done = run(LOUD)
    assert done.stderr == "" and done.stdout.endswith("the result\n")
