"""Targets: texts from outside the pool, on which every choice is judged; and choices of equal bytes.

    targets = read_targets(["tasks/arc_easy.jsonl.gz", "notes.txt"])
    targets[0].items[0].question, targets[0].items[0].answer      # bytes
    cut_texts(texts, 4_600_000)                                   # the choice's bytes, exactly so many

A target is JSON lines with `question` and `answer` (or `text`), or plain text, whose items are its paragraphs, joined
up to PASSAGE bytes. Packed files (.gz, .bz2, .xz, .zst) are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from datamask.corpus.text_files import holds_json_lines, json_objects, read_text_file
from datamask.errors import InputError

BETWEEN = b"\n\n"  # before every document and every item
BYTES = 65_536  # of a target that are read: its items drawn in an order of their own
PASSAGE = 400  # bytes: paragraphs of a plain text are joined up to here
LEAST_ITEMS = 8  # of a target: with fewer, an interval over items says nothing


@dataclass(frozen=True)
class Item:
    """One thing asked: what is given, and what the model is asked for; a plain text has no answer."""

    question: bytes
    answer: bytes = b""

    @property
    def given(self) -> bytes:
        """The question, with a space after it where an answer follows and no white space parts them."""
        apart = b"" if not self.answer or self.question[-1:].isspace() or not self.question else b" "
        return self.question + apart

    @property
    def whole(self) -> bytes:
        return self.given + self.answer


@dataclass(frozen=True)
class Target:
    """A set of items. `own`: held-out documents of the pool itself, shown and never part of a verdict."""

    name: str
    items: tuple[Item, ...]
    own: bool = False

    @property
    def bytes(self) -> int:
        return sum(len(item.whole) for item in self.items)


def read_targets(paths: Iterable[str], limit: int = BYTES, seed: int = 0) -> list[Target]:
    """The targets of files, in their order; of each as many items, drawn by `seed`, as make up `limit` bytes.

    :raises InputError: a file is missing, empty, not UTF-8, or a line is not JSON with question and answer (or text);
        two targets have one name; a target has fewer than LEAST_ITEMS items; no paths.
    """
    found = [target_of(_name(path), _items(path), limit, seed) for path in paths]
    if not found:
        raise InputError(
            "no targets; name files from outside the pool: --targets 'tasks/*.jsonl.gz' --targets notes.txt"
        )
    names = [target.name for target in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"two targets are called {twice[0]}; rename one of the files")
    return found


def target_of(name: str, items: Sequence[Item], limit: int = BYTES, seed: int = 0, own: bool = False) -> Target:
    """A target of as many of the items, in the order drawn by `seed`, as make up `limit` bytes.

    :raises InputError: fewer than LEAST_ITEMS items.
    """
    order = np.random.default_rng([seed, 41]).permutation(len(items))
    taken = [items[row] for row in first_rows(order, [len(item.whole) for item in items], limit)]
    if len(taken) < LEAST_ITEMS:
        raise InputError(
            f"target {name} has {len(taken)} items that hold text; an interval over items needs {LEAST_ITEMS} or more"
        )
    return Target(name, tuple(taken), own)


def cut_texts(texts: Iterable[str | bytes], limit: int, seed: int | Sequence[int] = 0) -> bytes:
    """Exactly `limit` bytes of the texts, in the order drawn by `seed`, BETWEEN before each; the last one is cut.

    Every arm of a comparison is read through this, so that none is judged on more text than another.

    :raises InputError: the texts hold less.
    """
    known = [text.encode("utf-8", "replace") if isinstance(text, str) else text for text in texts]
    order = np.random.default_rng([43, *([seed] if isinstance(seed, int) else seed)]).permutation(len(known))
    sizes = [len(BETWEEN) + len(text) for text in known]
    cut = b"".join(BETWEEN + known[row] for row in first_rows(order, sizes, limit))
    if len(cut) < limit:
        raise InputError(f"the choice holds {len(cut):,} bytes, fewer than the {limit:,} that every choice is read to")
    return cut[:limit]


def first_rows(order: npt.NDArray[np.integer], sizes: Sequence[int], limit: int) -> list[int]:
    """The first rows of an order that hold `limit` bytes together, the last of them in part.

    :param sizes: bytes of each row.
    """
    own = np.asarray(sizes, dtype=np.int64)[order]
    rows: list[int] = order[np.cumsum(own) - own < limit].tolist()
    return rows


def _name(path: str) -> str:
    name = PurePosixPath(path).name
    for ending in (".gz", ".bz2", ".xz", ".zst", ".jsonl", ".ndjson", ".json", ".txt", ".md"):
        name = name.removesuffix(ending)
    return name


def _items(path: str) -> list[Item]:
    text = read_text_file(path, "target")
    if holds_json_lines(path):
        items = [_item(path, number, row) for number, row in json_objects(text, f"target {path}")]
    else:
        items = [Item(passage) for passage in _passages(text)]
    if not any(item.whole.strip() for item in items):
        raise InputError(f"target {path} is empty; give JSON lines with question and answer (or text), or plain text")
    return [item for item in items if item.whole.strip()]


def _item(path: str, number: int, row: Mapping[str, Any]) -> Item:
    if isinstance(row.get("question"), str) and isinstance(row.get("answer"), str):
        return Item(row["question"].encode("utf-8", "replace"), row["answer"].encode("utf-8", "replace"))
    if isinstance(row.get("text"), str):
        return Item(row["text"].encode("utf-8", "replace"))
    raise InputError(
        f"target {path}, line {number}: has {', '.join(sorted(row)) or 'no fields'}; "
        "a target's lines need `question` and `answer`, or `text`, as strings"
    )


def _passages(text: str) -> Iterable[bytes]:
    held = ""
    for paragraph in text.replace("\r\n", "\n").split("\n\n"):
        held = f"{held}\n\n{paragraph}" if held else paragraph
        if len(held.encode()) >= PASSAGE:
            yield held.encode()
            held = ""
    if held.strip():
        yield held.encode()
