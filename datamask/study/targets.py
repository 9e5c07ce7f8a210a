"""Targets: texts from outside the pool, on which every choice is judged; and choices of equal bytes.

    targets = read_targets(["tasks/arc_easy.jsonl.gz", "notes.txt"])
    targets[0].items[0].question, targets[0].items[0].answer      # bytes
    cut_texts(texts, 4_600_000)                                   # the choice's bytes, exactly so many

A target is JSON lines with `question` and `answer` (or `text`), or plain text, whose items are its paragraphs, joined
up to PASSAGE bytes. Packed files (.gz, .bz2, .xz, .zst) are read as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from datamask.config import ResolvedSelect
from datamask.corpus.text_files import holds_json_lines, json_objects, read_text_file
from datamask.errors import InputError

BETWEEN = b"\n\n"  # before every document and every item
BYTES = 65_536  # of a target that are read: its items drawn in an order of their own
PASSAGE = 400  # bytes: paragraphs of a plain text are joined up to here
LEAST_ITEMS = 8  # of a target: with fewer, an interval over items says nothing
RANDOM, SHUFFLED, JUNK, CLEAN = "random", "random, words shuffled", "planted junk", "planted junk left out"
CONTROLS = (SHUFFLED, JUNK, CLEAN)
SHARE = 0.3  # of the documents that a control spoils
_WORDS = re.compile(rb"(\s+)")
_BOILERPLATE = (
    b"Home | About us | Contact | Log in | Register | Cart (0)",
    b"This site uses cookies. By continuing to browse you agree to our use of cookies. Accept all | Settings",
    b"Share this: Facebook Twitter Pinterest WhatsApp Email Print",
    b"Copyright (c) All rights reserved. Terms of use | Privacy policy | Sitemap",
    b"Click here to subscribe to our newsletter and never miss an update!",
    b"Related posts: Read more >> Load more comments Leave a reply Cancel reply",
)
Mask = npt.NDArray[Any]  # (N,) bool, or how often each document is taken


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


# ---------------------------------------------------------------- choices of a pool
# The arms, random draws, and two controls that are made from the draws. SHUFFLED: the words of 30 % of a draw's
# documents in another order. JUNK: a pool in which 30 % of the documents were replaced by boilerplate, garble, lines
# that break off, and near-copies of a few others, from which a draw is taken; CLEAN: a draw from the rest of that pool.


def choices(
    texts: Sequence[bytes],
    arms: Mapping[str, Mask],
    limit: int,
    draws: int,
    seed: int | Sequence[int],
    controls: int = 0,
) -> Iterator[tuple[str, int, bytes]]:
    """(arm, draw, choice): `draws` random ones, one of each arm, and `controls` of each control.

    :param texts: the pool's documents; arms: name -> (N,) bool.
    :param limit: bytes of every choice.
    :raises InputError: an arm, or the pool, holds fewer bytes than `limit`; an arm has the name of a draw or control.
    """
    seeds = [seed] if isinstance(seed, int) else list(seed)
    for draw in range(draws):
        yield RANDOM, draw, _named(RANDOM, texts, limit, [*seeds, draw])
    for name, mask in arms.items():
        if name in (RANDOM, *CONTROLS):
            raise InputError(f"an arm is called {name!r}, which is what the judge calls its own; give it another name")
        yield name, 0, _named(name, [texts[row] for row in rows_of(mask).tolist()], limit, [*seeds, 0])
    sizes = [len(BETWEEN) + len(text) for text in texts]
    for draw in range(controls):
        generator = np.random.default_rng([*seeds, draw, 59])
        order = np.random.default_rng([43, *seeds, draw]).permutation(len(texts))  # as `cut_texts`: RANDOM's documents
        taken = [texts[row] for row in first_rows(order, sizes, limit)]
        yield SHUFFLED, draw, _join(shuffle_words(taken, generator), limit)
        spoiled = generator.random(len(texts)) < SHARE
        clean = first_rows(order[~spoiled[order]], sizes, limit)
        yield CLEAN, draw, _join([texts[row] for row in clean], limit)
        yield JUNK, draw, _join(_junked(texts, order, spoiled, limit, generator), limit)


def rows_of(mask: Mask) -> npt.NDArray[np.intp]:
    """Row numbers, ascending, each as often as it is taken."""
    return np.repeat(np.arange(len(mask)), mask.astype(np.int64))


def bytes_of(texts: Sequence[bytes], mask: Mask) -> int:
    """Bytes a choice can be read to."""
    return sum(len(BETWEEN) + len(texts[row]) for row in rows_of(mask).tolist())


def most_bytes(texts: Sequence[bytes], tokens: npt.NDArray[np.int64], settings: ResolvedSelect) -> int:
    """What no choice within the settings' budget can hold more of: the longest documents, or the cheapest by token."""
    sizes = np.array([len(BETWEEN) + len(text) for text in texts])
    if not settings.in_tokens:
        count = settings.budget_documents or round((settings.select_ratio or 1.0) * len(texts)) + 1
        return int(np.sort(sizes)[::-1][:count].sum())
    order = np.repeat(np.argsort(-sizes / tokens, kind="stable"), settings.repeat)
    budget = settings.budget_tokens or (settings.token_ratio or 0) * int(tokens.sum())
    taken = int(np.searchsorted(np.cumsum(tokens[order]), budget)) + 1
    return int(sizes[order][:taken].sum())


def shuffle_words(texts: Sequence[bytes], generator: np.random.Generator) -> list[bytes]:
    """The texts, in SHARE of which the words are in another order; the white space and the length stay."""
    spoiled = set(generator.permutation(len(texts))[: round(SHARE * len(texts))].tolist())
    return [_shuffled(text, generator) if row in spoiled else text for row, text in enumerate(texts)]


def _shuffled(text: bytes, generator: np.random.Generator) -> bytes:
    parts = _WORDS.split(text)
    words = parts[::2]
    parts[::2] = [words[place] for place in generator.permutation(len(words))]
    return b"".join(parts)


def _junked(
    texts: Sequence[bytes], order: npt.NDArray[np.intp], spoiled: Mask, limit: int, generator: np.random.Generator
) -> list[bytes]:
    """The documents in their order, the spoiled ones replaced by junk, up to `limit` bytes."""
    copied = [texts[row] for row in order[~spoiled[order]][:4].tolist()]
    made: list[bytes] = []
    size = 0
    for row in order.tolist():
        if size >= limit:
            break
        made.append(_junk(texts[row], copied, generator) if spoiled[row] else texts[row])
        size += len(BETWEEN) + len(made[-1])
    return made


def _junk(text: bytes, copied: Sequence[bytes], generator: np.random.Generator) -> bytes:
    """One of four kinds of junk, about as long as the document whose place it takes."""
    kind = generator.integers(4)
    if kind == 0:  # boilerplate
        lines = generator.integers(0, len(_BOILERPLATE), 1 + len(text) // 70)
        return b"\n".join(_BOILERPLATE[line] for line in lines)
    if kind == 1:  # garble: every third letter another
        values = np.frombuffer(text, dtype=np.uint8).copy()
        hit = generator.random(len(values)) < 1 / 3
        values[hit] = generator.integers(33, 127, int(hit.sum()), dtype=np.uint8)
        return values.tobytes()
    if kind == 2:  # lines that break off in the middle of a word
        return b"\n".join(text[start : start + 25] for start in range(0, len(text), 100))
    words = _WORDS.split(copied[int(generator.integers(len(copied)))])  # a near-copy: one word in fifty is gone
    return b"".join(word for word in words if generator.random() > 0.02)


def _join(texts: Sequence[bytes], limit: int) -> bytes:
    joined = b"".join(BETWEEN + text for text in texts)[:limit]
    if len(joined) < limit:
        raise InputError(
            f"the pool holds too little text for the controls at {limit:,} bytes a choice; judge fewer bytes"
        )
    return joined


def _named(name: str, texts: Sequence[bytes], limit: int, seed: Sequence[int]) -> bytes:
    try:
        return cut_texts(texts, limit, seed)
    except InputError as error:
        raise InputError(f"arm {name}: {error}") from error
