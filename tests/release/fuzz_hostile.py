"""Hostile releases: a manifest's values exchanged for what does harm elsewhere, files cut, exchanged, linked.

What is done with each (`verify`, `explain`, `diff`, `push`) ends in a result or one of our messages, and nothing
appears or changes outside the folder it was to write to.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from datamask.errors import DatamaskError
from datamask.release.compare import compare
from datamask.release.explain import explain
from datamask.release.manifest import release_key, render_manifest
from datamask.release.push import upload_release
from datamask.release.release_folder import ReleaseFolder, find_release
from datamask.release.verify import verify

SECRET = b"the user's own\n"
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 10**30, 1.0, -0.0, 1e308, "", "x", ".", "..", "../..",
    "../../secret.txt", "../secret.txt", "/etc/passwd", "~/secret", "a/../b",
    "a//b", "a\\b", "a\x00b", "a\nb", "\x1b[2J",
    "\u202e", "x" * 5000, "%s", "{0}", "$(touch new)", "'; DROP TABLE published; --",
    "s3://bucket/x", "file:///etc/passwd",
    "http://127.0.0.1:9/x", "hf://datasets/a/b", [], {}, [[]], [{}], {"..": 1}, [0, 0], [5, 1], [0, 10**9], "0" * 16,
    "f" * 64, "0001-" + "0" * 16, "decisions/s0.parquet", "README.md", "data/x/y.parquet", "manifest.json", "S0", "s0",
]  # fmt: skip
KEYS = ["..", "../../secret.txt", "/etc/passwd", "", "a\x00b", "s9", "S0", "__proto__", "x" * 300, "\x1b[2J"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every path to a value inside."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from places(inner, (*path, name))


def mutate_manifest(manifest: dict[str, Any], rng: random.Random) -> None:
    """One to three changes anywhere."""
    for _ in range(rng.randint(1, 3)):
        *parents, last = rng.choice(list(places(manifest)))
        holder: Any = manifest
        for name in parents:
            holder = holder[name]
        change = rng.random()
        if change < 0.55:
            holder[last] = copy.deepcopy(rng.choice(VALUES))
        elif change < 0.7:
            del holder[last]
        elif change < 0.85 and isinstance(holder, dict):
            holder[rng.choice(KEYS)] = holder.pop(last)
        elif isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(rng.choice([holder[last], rng.choice(VALUES)])))
        elif isinstance(holder[last], str):
            holder[last] = rng.choice(["../", "/", "\x00", "..", "é"]) + holder[last]


def mutate_file(root: Path, rng: random.Random, secret: Path) -> Path:
    """One of the release's files cut, flipped, exchanged, linked, emptied, made a pipe or a folder."""
    path = rng.choice(sorted(p for p in root.rglob("*") if p.is_file() and p.name != "manifest.json"))
    other = rng.choice(sorted(p for p in root.rglob("*.parquet") if p != path))
    data = bytearray(path.read_bytes())
    path.unlink()
    match rng.choice(
        ["cut", "flip", "footer", "other", "link", "circle", "pipe", "folder", "empty", "gone", "columns"]
    ):
        case "cut":
            path.write_bytes(data[: rng.randrange(len(data) + 1)])
        case "flip":
            for _ in range(rng.randint(1, 8)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        case "footer":
            for _ in range(rng.randint(1, 8)):
                data[-1 - rng.randrange(min(len(data), 1500))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        case "other":
            path.write_bytes(other.read_bytes())
        case "link":
            path.symlink_to(secret)
        case "circle":
            path.symlink_to(path)
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
            (path / "x").write_bytes(data)
        case "empty":
            path.touch()
        case "columns":
            table = pq.read_table(other)
            names = table.column_names
            table = table.select(rng.sample(names, rng.randint(1, len(names))))
            pq.write_table(table.slice(0, rng.randrange(table.num_rows + 1)), path)
    return path


def redescribe(manifest: dict[str, Any], root: Path, path: Path) -> None:
    """What someone who knows the format does after changing a file."""
    if not path.is_file():
        return
    data = path.read_bytes()
    for item in manifest["files"]:
        if item["path"] == path.relative_to(root).as_posix():
            item |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            with contextlib.suppress(Exception):
                item["rows"] = pq.read_metadata(path).num_rows


def make(original: Path, box: Path, rng: random.Random) -> Path:
    """A hostile copy of the release at `original`, in `box`."""
    root = box / "out" / "releases" / original.name
    shutil.copytree(original, root)
    secret = box / "secret.txt"
    secret.write_bytes(SECRET)
    manifest = json.loads((root / "manifest.json").read_text())
    if rng.random() < 0.4:
        path = mutate_file(root, rng, secret)
        if rng.random() < 0.7:
            redescribe(manifest, root, path)
    if rng.random() < 0.75:
        mutate_manifest(manifest, rng)
    with contextlib.suppress(Exception):
        if rng.random() < 0.3:
            key = release_key(manifest["inputs"], manifest["settings"], manifest["provenance"])
            manifest |= {"key": key, "version": f"0001-{key}"}
    text = render_manifest(manifest) if rng.random() < 0.85 else json.dumps(manifest).encode()
    if rng.random() < 0.1:
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice([b"", b"\xff", b"[" * 5000, b"\\ud800", b"9" * 5000, b"NaN"]) + text[place:]
    (root / "manifest.json").write_bytes(text)
    return root


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(p.relative_to(folder)): (p.lstat().st_ino, p.lstat().st_mtime_ns) for p in folder.rglob("*")}


def attempt(root: Path, good: ReleaseFolder, corpus: Path, target: Path) -> dict[str, str]:
    """The outcome of each command, in a word.

    :raises AssertionError: an outcome that is neither a result nor a message. Other exceptions are defects.
    """

    def run(what: Any) -> str:
        try:
            found = what()
        except DatamaskError as error:
            assert str(error).strip(), "an error without a message"
            return type(error).__name__
        return "refused" if getattr(found, "problems", None) else "passed"

    def release() -> ReleaseFolder:
        return find_release(str(root))

    return {
        "verify": run(lambda: verify(release(), [str(corpus)])),
        "explain": run(lambda: explain(release(), "s0/3")),
        "explain all": run(lambda: [explain(release(), f"s1/{n}") for n in (0, 5, 11)]),
        "diff": run(lambda: compare(good, release())),
        "diff back": run(lambda: compare(release(), good)),
        "push": run(lambda: upload_release(release(), str(target))),
    }


def check_hostile(original: ReleaseFolder, corpus: Path, box: Path, number: int) -> dict[str, str]:
    """Makes hostile release `number` and tries everything on it.

    :raises AssertionError: something appeared, changed or was sent that must not be.
    """
    rng = random.Random(number)
    root = make(Path(original.path), box, rng)
    target = box / "target"
    before = snapshot(box)
    outcomes = attempt(root, original, corpus, target)
    after = {
        name: facts for name, facts in snapshot(box).items() if name != "target" and not name.startswith("target/")
    }
    assert after == before, f"files appeared or changed: {set(after) ^ set(before) or 'times'}"
    for path in target.rglob("*"):
        assert not path.is_symlink() and (not path.is_file() or path.read_bytes() != SECRET), f"{path} was sent"
    return outcomes
