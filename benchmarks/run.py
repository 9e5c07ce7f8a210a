"""Runs the benchmark behind a table of RESULTS.md and replaces the table in place.

    python benchmarks/run.py --list
    python benchmarks/run.py prices_parts --with out/real=/data/out
    python benchmarks/run.py prices_parts --dry-run        # what would be run

A table stands between two markers, which name it and its command; a name may have several tables, the first, second, …
that the command prints. What the command needs and only you know (a corpus, a file of embeddings) is given by --with.
Below each table that was run stands the version it was measured with, the day and the machine. Nothing is written
unless the command ends well and prints as many tables as the name has.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from datamask import __version__

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
MARKED = re.compile(
    r"<!-- table (?P<name>[\w-]+) (?P<number>\d+): (?P<command>.+?) -->\n"
    r"(?P<body>.*?)<!-- end (?P=name) (?P=number) -->",
    re.DOTALL,
)
TABLE = re.compile(r"(?:^\|.*\|[ ]*\n)+", re.MULTILINE)


def commands(text: str) -> dict[str, str]:
    """The command of each name, in the order of the page."""
    return {found["name"]: " ".join(found["command"].split()) for found in MARKED.finditer(text)}


def tables(printed: str) -> list[str]:
    """The tables of a command's output: runs of lines that begin and end with |, with a line of dashes."""
    return [
        found[0] for found in TABLE.finditer(printed + "\n") if re.search(r"^\|[-| :]+\|[ ]*$", found[0], re.MULTILINE)
    ]


def replaced(text: str, name: str, printed: str, measured: str) -> str:
    """The page with the tables of `name` as they were printed.

    :raises ValueError: the command did not print as many.
    """
    found = tables(printed)
    wanted = [int(place["number"]) for place in MARKED.finditer(text) if place["name"] == name]
    if len(found) < max(wanted, default=1):
        raise ValueError(f"{name} has {max(wanted, default=1)} table(s) on the page, the command printed {len(found)}")

    def place(old: re.Match[str]) -> str:
        if old["name"] != name:
            return old[0]
        head = old[0][: old.start("body") - old.start()]
        end = old[0][old.end("body") - old.start() :]
        return f"{head}{found[int(old['number']) - 1]}\n*{measured}*\n{end}"

    return MARKED.sub(place, text)


def measured() -> str:
    """Version, day and machine."""
    version = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)

    return (
        f"Measured with {__version__} ({version.stdout.strip() or 'no commit'}), {datetime.now(UTC):%Y-%m-%d}; "
        f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f} at the end"
    )


def publish(text: str) -> None:
    """Replaces the page at once, or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=RESULTS.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(RESULTS)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--list", action="store_true", help="names and commands")
    parser.add_argument("--with", dest="given", action="append", default=[], metavar="WORD=VALUE")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    known = commands(RESULTS.read_text(encoding="utf-8"))
    if options.list or not options.name:
        print("\n".join(f"{name:24} {command}" for name, command in known.items()))
        return
    if options.name not in known:
        parser.error(f"no table {options.name}; there are: {', '.join(known)}")
    given = dict(word.split("=", 1) for word in options.given)
    words = [given.get(word, word) for word in shlex.split(known[options.name])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    words = [sys.executable if word == "python" else word for word in words]
    print(shlex.join(words), file=sys.stderr)
    if options.dry_run:
        return
    with subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        printed = "".join(line for line in run.stdout if not print(line, end="", file=sys.stderr))
    if run.returncode:
        sys.exit(f"the command ended with {run.returncode}; {RESULTS.name} is as it was")
    try:  # the page is read again: another run may have replaced its own table meanwhile
        publish(replaced(RESULTS.read_text(encoding="utf-8"), options.name, printed, measured()))
    except ValueError as error:
        sys.exit(f"{error}; {RESULTS.name} is as it was")


if __name__ == "__main__":
    main()
